// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-tools/gantry/container"
)

// Rule says what the processes of some containers may do with perf events. What is
// nil or empty is the agent's default: docs/agent.md.
type Rule struct {
	// Match says which containers, by what they are called; an empty one is all.
	Match container.Matcher
	// Definition is one that the containers must be of, "" for any.
	Definition string
	// Tasks and AllTasks are who may open events of tasks, and of all tasks of the
	// container: one of Who, or "".
	Tasks, AllTasks string
	// Kernel allows samples in the kernel.
	Kernel *bool
	// Events are the classes that are allowed, of EventClasses; nil is the default.
	Events []string
	// Tracepoints are patterns of SYSTEM:NAME.
	Tracepoints []string
	// The limits; nil is the default, 0 is none.
	MaxFrequency, MaxEvents, MaxOpens, MaxRings *uint64
}

// Who are the users of a container that a Rule can mean.
var Who = []string{"nobody", "root", "anyone"}

// EventClasses are the kinds of events that a Rule can allow.
var EventClasses = []string{"software", "hardware", "raw"}

// policy reads the list of rules.
func (p *parser) policy(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return p.wrong(n, "policy is not a list of rules: write - namespace: NAME and so on")
	}
	for _, e := range n.Content {
		var r Rule
		if err := p.rule(e, &r); err != nil {
			return err
		}
		p.config.Policy = append(p.config.Policy, r)
	}
	return nil
}

func (p *parser) rule(n *yaml.Node, r *Rule) error {
	one := func(list *[]string) func(_, v *yaml.Node) error {
		return func(_, v *yaml.Node) error { return p.oneOrMore(v, list) }
	}
	return p.fields(n, "a rule", map[string]func(key, value *yaml.Node) error{
		"container": one(&r.Match.Names), "pod": one(&r.Match.Pods), "namespace": one(&r.Match.Namespaces),
		"image": one(&r.Match.Images),
		"selector": func(_, v *yaml.Node) (err error) {
			r.Match.Labels, err = container.ParseLabels(v.Value)
			return p.located(v, err)
		},
		"definition": func(_, v *yaml.Node) error { r.Definition = v.Value; return nil },
		"tasks":      func(_, v *yaml.Node) error { return p.among(v, Who, &r.Tasks) },
		"all-tasks":  func(_, v *yaml.Node) error { return p.among(v, Who, &r.AllTasks) },
		"kernel": func(_, v *yaml.Node) error {
			r.Kernel = new(bool)
			if v.Decode(r.Kernel) != nil {
				return p.wrong(v, "kernel: %q is neither true nor false", v.Value)
			}
			return nil
		},
		"events": func(_, v *yaml.Node) error {
			list, err := p.texts(v)
			r.Events = []string{}
			for _, e := range list {
				var text string
				if err := p.among(e, EventClasses, &text); err != nil {
					return err
				}
				r.Events = append(r.Events, text)
			}
			return err
		},
		"tracepoints": func(_, v *yaml.Node) error {
			list, err := p.texts(v)
			for _, e := range list {
				if !strings.Contains(e.Value, ":") {
					return p.wrong(e, "%q is not SYSTEM:NAME", e.Value)
				}
			}
			r.Tracepoints = values(list)
			return err
		},
		"max-frequency": func(_, v *yaml.Node) error { return p.limit(v, &r.MaxFrequency) },
		"max-events":    func(_, v *yaml.Node) error { return p.limit(v, &r.MaxEvents) },
		"max-opens":     func(_, v *yaml.Node) error { return p.limit(v, &r.MaxOpens) },
		"max-memory": func(_, v *yaml.Node) error {
			size, err := ParseSize("max-memory", v.Value)
			bytes := uint64(size)
			r.MaxRings = &bytes
			return p.located(v, err)
		},
	})
}

// oneOrMore reads a text or a list of them.
func (p *parser) oneOrMore(n *yaml.Node, list *[]string) error {
	if n.Kind == yaml.ScalarNode && !isNull(n) {
		*list = []string{n.Value}
		return nil
	}
	nodes, err := p.texts(n)
	*list = values(nodes)
	return err
}

// among reads one of some words.
func (p *parser) among(n *yaml.Node, words []string, text *string) error {
	if !slices.Contains(words, n.Value) {
		return p.wrong(n, "%q is not one of %s", n.Value, strings.Join(words, ", "))
	}
	*text = n.Value
	return nil
}

// maxLimit bounds limits, so that they fit into every number.
const maxLimit = 1 << 31

func (p *parser) limit(n *yaml.Node, value **uint64) error {
	v, err := strconv.ParseUint(n.Value, 10, 64)
	if err != nil || v > maxLimit {
		return p.wrong(n, "%q is not a number from 0 (no limit) to %d", n.Value, maxLimit)
	}
	*value = &v
	return nil
}
