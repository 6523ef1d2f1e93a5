// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/tracing"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/config"
)

// rules are the brokers of a configuration's policy.
type rules struct {
	defs container.Definitions
	list []rule
	// other is for containers that no rule matches.
	other *broker.Broker
}

type rule struct {
	config.Rule
	broker *broker.Broker
}

// newRules makes the brokers; audit may be nil.
func newRules(conf *config.Config, audit io.Writer) (*rules, error) {
	r := &rules{defs: container.BuiltIn().With(conf.Definitions)}
	for i := range conf.Policy {
		p, err := policyOf(&conf.Policy[i])
		if err != nil {
			return nil, err
		}
		b, err := newBroker(p, audit)
		if err != nil {
			return nil, err
		}
		r.list = append(r.list, rule{conf.Policy[i], b})
	}
	var err error
	r.other, err = newBroker(broker.DefaultPolicy(), audit)
	return r, err
}

func newBroker(p broker.Policy, audit io.Writer) (*broker.Broker, error) {
	o := &broker.Options{Policy: p, Audit: audit}
	points, err := tracing.Find(p.Tracepoints)
	if err != nil {
		return nil, err
	}
	o.Tracepoint = points.Name
	return broker.New(o), nil
}

// policyOf is a rule's policy: the default with what the rule says.
func policyOf(r *config.Rule) (broker.Policy, error) {
	p := broker.DefaultPolicy()
	var err error
	for _, w := range []struct {
		text string
		to   *broker.Who
	}{{r.Tasks, &p.Tasks}, {r.AllTasks, &p.AllTasks}} {
		if w.text != "" && err == nil {
			*w.to, err = broker.ParseWho(w.text)
		}
	}
	if err != nil {
		return p, err
	}
	if r.Kernel != nil {
		p.Kernel = *r.Kernel
	}
	if r.Events != nil {
		p.Classes = 0
		for _, text := range r.Events {
			class, err := broker.ParseClass(text)
			if err != nil {
				return p, err
			}
			p.Classes |= class
		}
	}
	p.Tracepoints = r.Tracepoints
	for from, to := range map[*uint64]*uint64{r.MaxFrequency: &p.MaxFrequency, r.MaxRings: &p.MaxRings} {
		if from != nil {
			*to = *from
		}
	}
	for from, to := range map[*uint64]*int{r.MaxEvents: &p.MaxEvents, r.MaxOpens: &p.MaxOpens} {
		if from != nil {
			*to = int(*from)
		}
	}
	return p, nil
}

// of is the broker for a container: that of the first rule that matches.
func (r *rules) of(p *place) *broker.Broker {
	for i := range r.list {
		if r.list[i].matches(p, r.defs) {
			return r.list[i].broker
		}
	}
	return r.other
}

func (r *rule) matches(p *place, defs container.Definitions) bool {
	if r.Definition != "" {
		d := defs.Find(r.Definition)
		if d == nil {
			return false
		}
		if _, in := p.table.Judge(d, &p.task); in != container.Inside {
			return false
		}
	}
	if r.Match.IsEmpty() {
		return true
	}
	found, err := r.Match.Select([]*container.Container{p.container})
	return err == nil && len(found) == 1
}

// all are the brokers, for counters.
func (r *rules) all() []*broker.Broker {
	list := []*broker.Broker{r.other}
	for i := range r.list {
		list = append(list, r.list[i].broker)
	}
	return list
}

func (r *rules) flush() error {
	for _, b := range r.all() {
		if err := b.Flush(0); err != nil {
			return fmt.Errorf("write the audit log: %w", err)
		}
	}
	return nil
}
