// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/gantry-tools/gantry/analysis/profile"

// selection is the samples of a profile that a report is of, and their sums.
type selection struct {
	p      *profile.Profile
	o      *Options
	groups []profile.Labels // label sets that the sort keys tell apart
	// order has the selected samples, those of one event and group together.
	order   []uint32
	groupOf []uint32 // by LabelsID
	shown   []bool   // by event
	events  []eventTotal
	// keep decides by the whole stack, where rows do not; nil keeps all.
	keep func(profile.Sample) bool
}

// eventTotal says how much of an event was selected.
type eventTotal struct {
	samples, value uint64 // selected
	whole          uint64 // what 100 percent are
	unresolved     uint64 // selected samples whose leaf has no name
	byCount        bool   // the event has no values: weigh samples
}

const noGroup = ^uint32(0)

// selectSamples finds the samples that pass the filter, and sums them up.
// Filters of frames select rows in a table; with wholeStacks they select the
// samples that have such a frame anywhere, as flame graphs and exports have it.
func selectSamples(p *profile.Profile, o *Options, wholeStacks bool) *selection {
	o.Filter.prepare(p)
	t := &selection{p: p, o: o, events: make([]eventTotal, len(p.Events)), shown: o.Filter.events(p)}
	if wholeStacks {
		t.keep = o.SampleFilter(p)
	}
	t.group()
	t.sortSamples()
	t.sum()
	return t
}

// group gives label sets that look the same in the table the same number.
func (t *selection) group() {
	fields, defs := fieldsOf(t.o.Sort), definitionsOf(t.o.Sort)
	seen := map[profile.Labels]uint32{}
	t.groupOf = make([]uint32, t.p.NumLabels())
	for id := range t.groupOf {
		l := t.p.Labels(profile.LabelsID(id))
		if !t.o.Filter.labels(l) {
			t.groupOf[id] = noGroup
			continue
		}
		g := project(l, fields, defs)
		n, ok := seen[g]
		if !ok {
			n = uint32(len(t.groups))
			seen[g] = n
			t.groups = append(t.groups, g)
		}
		t.groupOf[id] = n
	}
}

// project keeps what the columns of the given fields and definitions show.
func project(l *profile.Labels, f profile.Fields, defs []string) profile.Labels {
	c := *l
	c.Identities = l.Identities.Shown(defs)
	if f.Has(profile.FieldContainer) {
		c.Container = containerText(l)
	}
	c.ContainerID = ""
	for _, s := range []struct {
		field profile.Fields
		value *string
	}{
		{profile.FieldContainer, &c.Container},
		{profile.FieldPod, &c.Pod}, {profile.FieldNamespace, &c.Namespace}, {profile.FieldImage, &c.Image},
		{profile.FieldCgroup, &c.Cgroup}, {profile.FieldComm, &c.Comm},
	} {
		if !f.Has(s.field) {
			*s.value = ""
		}
	}
	for _, s := range []struct {
		field profile.Fields
		value *int32
	}{{profile.FieldPID, &c.PID}, {profile.FieldTID, &c.TID}, {profile.FieldCPU, &c.CPU}} {
		if !f.Has(s.field) {
			*s.value = 0
		}
	}
	return c
}

// sortSamples puts the samples of one event and group together, by two stable
// counting sorts: a profile may have as many groups as threads.
func (t *selection) sortSamples() {
	n := t.p.NumSamples()
	all := make([]uint32, 0, n)
	for i := range n {
		s := t.p.Sample(i)
		if t.shown[s.Event] && t.groupOf[s.Labels] != noGroup && (t.keep == nil || t.keep(s)) {
			all = append(all, uint32(i))
		}
	}
	byGroup := countingSort(all, len(t.groups), func(i uint32) uint32 { return t.groupOf[t.p.Sample(int(i)).Labels] })
	t.order = byGroup
	if len(t.p.Events) > 1 {
		t.order = countingSort(byGroup, len(t.p.Events),
			func(i uint32) uint32 { return uint32(t.p.Sample(int(i)).Event) })
	}
}

func countingSort(in []uint32, n int, key func(uint32) uint32) []uint32 {
	at := make([]uint32, n+1)
	for _, i := range in {
		at[key(i)+1]++
	}
	for k := range n {
		at[k+1] += at[k]
	}
	out := make([]uint32, len(in))
	for _, i := range in {
		k := key(i)
		out[at[k]] = i
		at[k]++
	}
	return out
}

// sum finds what 100 percent are.
func (t *selection) sum() {
	nameless := make([]bool, t.p.NumFrames())
	for id := range nameless {
		nameless[id] = t.p.FrameRef(profile.FrameID(id)).Name == 0
	}
	for i := range t.events {
		e := &t.events[i]
		e.byCount = t.p.Events[i].Value == 0
	}
	for _, i := range t.order {
		s := t.p.Sample(int(i))
		e := &t.events[s.Event]
		e.samples += s.Count
		e.value += t.weight(s)
		if st := t.p.Stack(s.Stack); len(st) == 0 || nameless[st[0]] {
			e.unresolved += s.Count
		}
	}
	for i := range t.events {
		e := &t.events[i]
		switch {
		case t.o.Relative:
			e.whole = e.value
		case e.byCount:
			e.whole = t.p.Events[i].Samples
		default:
			e.whole = t.p.Events[i].Value
		}
	}
}

// weight is the value of s, or its count if the event has no values.
func (t *selection) weight(s profile.Sample) uint64 {
	if t.events[s.Event].byCount {
		return s.Count
	}
	return s.Value
}

// percent is v's share of all that was seen of an event.
func (e *eventTotal) percent(v uint64) float64 {
	if e.whole == 0 {
		return 0
	}
	return 100 * float64(v) / float64(e.whole)
}

// nameless counts the selected samples whose innermost function has no name, by
// the path of the object that it is in.
func (t *selection) nameless() map[string]uint64 {
	leaves := make([]uint64, t.p.NumFrames())
	for _, i := range t.order {
		s := t.p.Sample(int(i))
		if st := t.p.Stack(s.Stack); len(st) > 0 {
			leaves[st[0]] += s.Count
		}
	}
	paths := map[string]uint64{}
	for id, n := range leaves {
		if n == 0 {
			continue
		}
		if fr := t.p.Frame(profile.FrameID(id)); fr.Name == "" {
			paths[fr.Path] += n
		}
	}
	return paths
}
