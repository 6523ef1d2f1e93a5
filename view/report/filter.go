// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

// Filter selects samples. An empty list selects all; within a list one match
// is enough; all lists must match. In patterns, * stands for any text.
//
// The lists of labels drop samples. DSO and Symbol select the rows of a table
// by their frame; flame graphs and exports keep the stacks that have such a
// frame anywhere.
type Filter struct {
	// Match selects containers. The name of the host is profile.Host.
	Match container.Matcher
	// Known are the containers that the recording tells of: what a name means
	// depends on them, and they have labels. Nil is none; copies share them.
	Known *Containers
	// Identities select containers, too, under any definition: what one of
	// them or Match selects is selected.
	Identities    []container.Selector
	Cgroup, Comm  []string
	PID, TID, CPU []int32
	DSO, Symbol   []string
	// Event matches names of events.
	Event []string
}

func (f *Filter) empty() bool { return !f.labelled() && len(f.DSO)+len(f.Symbol)+len(f.Event) == 0 }

// labelled reports whether labels decide, and so samples are dropped.
func (f *Filter) labelled() bool { return f.fields() != 0 || len(f.Identities) > 0 }

func (f *Filter) fields() profile.Fields {
	var set profile.Fields
	for _, l := range []struct {
		n     int
		field profile.Fields
	}{
		{len(f.Cgroup), profile.FieldCgroup}, {len(f.Comm), profile.FieldComm},
		{len(f.PID), profile.FieldPID}, {len(f.TID), profile.FieldTID}, {len(f.CPU), profile.FieldCPU},
	} {
		if l.n > 0 {
			set |= l.field
		}
	}
	if !f.Match.IsEmpty() {
		set |= profile.FieldContainer | profile.FieldPod | profile.FieldNamespace | profile.FieldImage
	}
	if slices.ContainsFunc(f.Match.Names, func(p string) bool { return strings.HasPrefix(p, "/") }) {
		set |= profile.FieldCgroup
	}
	return set
}

func (f *Filter) labels(l *profile.Labels) bool {
	return f.container(l) && match(f.Cgroup, l.Cgroup) && match(f.Comm, l.Comm) &&
		has(f.PID, l.PID) && has(f.TID, l.TID) && has(f.CPU, l.CPU)
}

func (f *Filter) frame(fr *profile.Frame) bool {
	return match(f.DSO, dsoText(fr)) && match(f.Symbol, fr.Name)
}

// frames tells for each frame whether it passes; nil if all do.
func (f *Filter) frames(p *profile.Profile) []bool {
	if len(f.DSO)+len(f.Symbol) == 0 {
		return nil
	}
	pass := make([]bool, p.NumFrames())
	for id := range pass {
		fr := p.Frame(profile.FrameID(id))
		pass[id] = f.frame(&fr)
	}
	return pass
}

// events tells for each event whether it passes.
func (f *Filter) events(p *profile.Profile) []bool {
	pass := make([]bool, len(p.Events))
	for i := range pass {
		pass[i] = match(f.Event, p.Events[i].Name)
	}
	return pass
}

// String lists what the filter selects, for the head of a report.
func (f *Filter) String() string {
	var parts []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, name+" "+strings.Join(list, ","))
		}
	}
	ints := func(name string, list []int32) {
		if len(list) > 0 {
			parts = append(parts, name+" "+strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]"))
		}
	}
	containers := slices.Clone(f.Match.Names)
	for _, s := range f.Identities {
		if text := s.String(); !slices.Contains(containers, text) { // a name may mean several
			containers = append(containers, text)
		}
	}
	add("container", containers)
	add("pod", f.Match.Pods)
	add("namespace", f.Match.Namespaces)
	add("image", f.Match.Images)
	var labels []string
	for i := range f.Match.Labels {
		labels = append(labels, f.Match.Labels[i].String())
	}
	add("label", labels)
	add("cgroup", f.Cgroup)
	add("comm", f.Comm)
	ints("pid", f.PID)
	ints("tid", f.TID)
	ints("cpu", f.CPU)
	add("dso", f.DSO)
	add("symbol", f.Symbol)
	add("event", f.Event)
	return strings.Join(parts, "; ")
}

func has(list []int32, n int32) bool { return len(list) == 0 || slices.Contains(list, n) }

func match(patterns []string, s string) bool {
	return len(patterns) == 0 ||
		slices.ContainsFunc(patterns, func(p string) bool { return container.MatchStars(p, s) })
}

// Fields are the labels that the filter looks at.
func (f *Filter) Fields() profile.Fields { return f.fields() }

// Definitions are the names of those whose identities the filter looks at.
func (f *Filter) Definitions() []string {
	var names []string
	for _, s := range f.Identities {
		names = append(names, s.Definition)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Selects reports whether the filter takes samples with these labels.
func (f *Filter) Selects(l *profile.Labels) bool { return f.labels(l) }

// SampleFilter tells which samples pass the filter, as flame graphs and exports
// have it: by their labels and at least one of their frames. Nil if all do.
func (o *Options) SampleFilter(p *profile.Profile) func(profile.Sample) bool {
	o.Filter.prepare(p)
	if o.Filter.empty() {
		return nil
	}
	labels := make([]bool, p.NumLabels())
	for id := range labels {
		labels[id] = o.Filter.labels(p.Labels(profile.LabelsID(id)))
	}
	events := o.Filter.events(p)
	frames := o.Filter.frames(p)
	return func(s profile.Sample) bool {
		if !labels[s.Labels] || !events[s.Event] {
			return false
		}
		if frames == nil {
			return true
		}
		for _, f := range p.Stack(s.Stack) {
			if frames[f] {
				return true
			}
		}
		return false
	}
}
