// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/gantry-tools/gantry/analysis/profile"

// row is one line of the table.
type row struct {
	number     uint32 // in order of first visit
	event      uint32
	group, key uint32
	// self is the weight of the samples whose leaf it is, total that of all
	// samples that it has a frame in, in units of the event and in samples.
	self, total           uint64
	selfCount, totalCount uint64
	hits                  uint32 // distinct samples that it is made of
}

// table is a profile as rows.
type table struct {
	p      *profile.Profile
	o      *Options
	keys   *keyspace
	groups []profile.Labels
	// order has the selected samples, those of one event and group together.
	order   []uint32
	groupOf []uint32 // by LabelsID
	passes  []bool   // by FrameID, nil if all frames pass the filter
	shown   []bool   // by event
	rows    []row
	events  []eventTotal
}

// eventTotal says how much of an event was selected.
type eventTotal struct {
	samples, value uint64 // selected
	whole          uint64 // what 100 percent are
	unresolved     uint64 // selected samples whose leaf has no name
	byCount        bool   // the event has no values: weigh samples
}

const noGroup = ^uint32(0)

func newTable(p *profile.Profile, o *Options) *table {
	t := newSelection(p, o, nil)
	t.keys = newKeyspace(p, rowKey(o))
	t.passes = o.Filter.frames(p)
	t.accumulate()
	return t
}

// newSelection is a table without rows: the samples that pass the filter's
// labels and keep, sorted and summed up.
func newSelection(p *profile.Profile, o *Options, keep func(profile.Sample) bool) *table {
	o.Filter.prepare(p)
	t := &table{p: p, o: o, events: make([]eventTotal, len(p.Events)), shown: o.Filter.events(p)}
	t.group()
	t.sortSamples(keep)
	t.sum()
	return t
}

// group gives label sets that look the same in the table the same number.
func (t *table) group() {
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
func (t *table) sortSamples(keep func(profile.Sample) bool) {
	n := t.p.NumSamples()
	all := make([]uint32, 0, n)
	for i := range n {
		s := t.p.Sample(i)
		if t.shown[s.Event] && t.groupOf[s.Labels] != noGroup && (keep == nil || keep(s)) {
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
func (t *table) sum() {
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
func (t *table) weight(s profile.Sample) uint64 {
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

func (t *table) pass(f profile.FrameID) bool { return t.passes == nil || t.passes[f] }

// accumulate makes the rows.
func (t *table) accumulate() {
	if !t.o.Children {
		t.rows = make([]row, 0, len(t.order)) // at most one a sample
	}
	t.walk(func(h *hit) {
		if int(h.row) == len(t.rows) {
			t.rows = append(t.rows, row{number: h.row, event: uint32(h.s.Event), group: t.groupOf[h.s.Labels],
				key: h.key})
		}
		r := &t.rows[h.row]
		r.total += h.weight
		r.totalCount += h.s.Count
		r.hits++
		if h.leaf {
			r.self += h.weight
			r.selfCount += h.s.Count
		}
	})
}

// section is the rows of one event, the heaviest first, without those that the
// options hide. With the event as a sort key there is one section for all.
func (t *table) section(event int) (shown []*row, hidden int) {
	shown = make([]*row, 0, len(t.rows))
	for i := range t.rows {
		r := &t.rows[i]
		if int(r.event) != event && !t.o.has(KeyEvent) {
			continue
		}
		if t.events[r.event].percent(r.total) < t.o.PercentLimit {
			hidden++
			continue
		}
		shown = append(shown, r)
	}
	t.sortRows(shown)
	if n := t.o.MaxEntries; n > 0 && len(shown) > n {
		hidden += len(shown) - n
		shown = shown[:n]
	}
	return shown, hidden
}
