// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/container"
)

// selectorFlags choose containers. They are the same for all commands; what they
// mean is container.Matcher's.
type selectorFlags struct {
	containers, pods, namespaces, images, labels []string

	names []string          // of containers, one by one: names and identities
	match container.Matcher // the rest of them
}

func (f *selectorFlags) register(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.containers, "container", nil,
		"only these containers, by comma: `NAME`, begin of an id, pod, image or cgroup path (/...); "+
			"* is any text; or DEFINITION:any, an identity")
	f.registerPods(fl)
}

// registerPods adds the flags beside --container.
func (f *selectorFlags) registerPods(fl *pflag.FlagSet) {
	fl.StringSliceVar(&f.pods, "pod", nil, "only these `POD`s")
	fl.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only these Kubernetes `NAMESPACE`s")
	fl.StringSliceVar(&f.images, "image", nil, "only containers of these `IMAGE`s, with or without registry and tag")
	fl.StringArrayVarP(&f.labels, "selector", "l", nil, "only containers with these `LABELS`: app=web,tier!=test")
}

// parse checks the flags.
func (f *selectorFlags) parse() (err error) {
	if err := checkNamespaces(f.namespaces); err != nil {
		return err
	}
	if f.names, err = splitContainers(f.containers); err != nil {
		return err
	}
	f.match = container.Matcher{Pods: f.pods, Namespaces: f.namespaces, Images: f.images}
	for _, text := range f.labels {
		list, err := container.ParseLabels(text)
		if err != nil {
			return fmt.Errorf("-l: %w", err)
		}
		f.match.Labels = append(f.match.Labels, list...)
	}
	return nil
}

// given reports whether a flag chooses containers.
func (f *selectorFlags) given() bool { return len(f.names) > 0 || !f.match.IsEmpty() }

// choices are the flags as choices, each of --container with what the others say.
// Definitions are those that there are.
func (f *selectorFlags) choices(defs container.Definitions) ([]container.Choice, error) {
	var list []container.Choice
	for _, text := range f.names {
		c, err := defs.ParseChoice(text)
		if err != nil {
			return list, err
		}
		if !f.match.IsEmpty() {
			if !c.ByName() {
				return list, fmt.Errorf("%q is an identity, which has no %s: leave one of them out", text,
					f.match.String())
			}
			names := c.Match.Names
			c.Match = f.match
			c.Match.Names = names
		}
		list = append(list, c)
	}
	if len(list) == 0 && !f.match.IsEmpty() {
		list = append(list, container.Choice{Text: f.match.String(), Match: f.match})
	}
	return list, nil
}

// splitContainers splits each value of --container at its commas and line ends, but
// not those of an identity: "web,pod:net:1,ipc:2" is web and one identity. Line
// ends come from "$(gantry containers -q web)".
func splitContainers(values []string) ([]string, error) {
	var out []string
	for _, v := range values {
		lines := strings.Fields(v)
		if len(lines) == 0 {
			return nil, errors.New("--container is empty")
		}
		for _, line := range lines {
			parts, err := csv.NewReader(strings.NewReader(line)).Read()
			if err != nil {
				return nil, fmt.Errorf("--container %q: %w", line, err)
			}
			start := len(out)
			for _, p := range parts {
				if last := len(out) - 1; last >= start && continues(out[last], p) {
					out[last] += "," + p
					continue
				}
				out = append(out, p)
			}
		}
	}
	return out, nil
}

// continues reports whether part goes on with the identity that text is, with or
// without a definition.
func continues(text, part string) bool {
	_, err := container.ParseIdentity(part)
	name, rest, _ := strings.Cut(text, ":")
	if err == nil && container.CheckName(name) != nil && container.BuiltIn().Find(name) == nil {
		rest = text
	}
	if err == nil {
		_, err = container.ParseIdentity(rest + "," + part)
	}
	return err == nil
}

// looksLikeID reports whether a text is what 'gantry containers -q' prints: an id
// of 12 or 64 hexadecimal digits.
func looksLikeID(s string) bool {
	return (len(s) == 12 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
