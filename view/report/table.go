// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/gantry-tools/gantry/analysis/profile"

// table is a selection as rows. It is built once; the writers of text and JSON
// only read it.
type table struct {
	*selection
	keys     *keyspace
	passes   []bool // by FrameID, nil if all frames pass the filter
	rows     []row  // in order of first visit
	sections []section
}

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

// section is the rows of one event, the heaviest first, without those that the
// options hide. With the event as a sort key there is one section for all, which
// has the number of the first.
type section struct {
	event  int
	rows   []*row
	hidden int
}

func newTable(p *profile.Profile, o *Options) *table {
	t := &table{selection: selectSamples(p, o, false), keys: newKeyspace(p, rowKey(o)), passes: o.Filter.frames(p)}
	t.accumulate()
	for i := range p.Events {
		if t.shown[i] && (len(t.sections) == 0 || !o.has(KeyEvent)) {
			t.sections = append(t.sections, t.section(i))
		}
	}
	return t
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

// section picks and sorts the rows of an event.
func (t *table) section(event int) section {
	s := section{event: event, rows: make([]*row, 0, len(t.rows))}
	for i := range t.rows {
		r := &t.rows[i]
		if int(r.event) != event && !t.o.has(KeyEvent) {
			continue
		}
		if t.events[r.event].percent(r.total) < t.o.PercentLimit {
			s.hidden++
			continue
		}
		s.rows = append(s.rows, r)
	}
	t.sortRows(s.rows)
	if n := t.o.MaxEntries; n > 0 && len(s.rows) > n {
		s.hidden += len(s.rows) - n
		s.rows = s.rows[:n]
	}
	return s
}

// graphs gives the call graphs of the rows of a section; nil if none are asked
// for.
func (s *section) graphs(t *table) *graphs {
	if t.o.CallGraph == CallGraphNone {
		return nil
	}
	return newGraphs(t, s.rows)
}

// hit says that a sample belongs to a row.
type hit struct {
	s           profile.Sample
	weight      uint64
	row, key    uint32
	sample, pos uint32 // number of the sample; where in its stack the row's call graph begins
	leaf        bool   // the row's function is the leaf
}

// walker visits each distinct sample once and finds its rows. Rows are
// numbered by first hit, the same in each walk over a table.
type walker struct {
	t           *table
	f           func(*hit)
	slots       []slot // by row key
	rows, group uint32
}

// slot is the row that a function has in the group at hand, and the last
// sample that hit it: a recursive function counts once.
type slot struct{ group, row, sample uint32 }

// walk calls f for each hit; its argument is valid until f returns.
func (t *table) walk(f func(*hit)) {
	w := walker{t: t, f: f, slots: make([]slot, len(t.keys.list))}
	var last profile.Sample
	h := new(hit)
	for n, i := range t.order {
		s := t.p.Sample(int(i))
		*h = hit{s: s, weight: t.weight(s), sample: i}
		if n == 0 || h.s.Event != last.Event || t.groupOf[h.s.Labels] != t.groupOf[last.Labels] {
			w.group++
		}
		last = h.s
		w.stack(h, t.p.Stack(h.s.Stack))
	}
}

// stack visits the function of the leaf first, which makes it the row's self
// weight, then the callers and the calls inlined into the leaf's function: in a
// caller graph from the outermost, else from the innermost. As perf has it, an
// inlined call has no weight of its own.
func (w *walker) stack(h *hit, st []profile.FrameID) {
	if len(st) == 0 {
		if w.t.passes == nil {
			h.leaf = true
			w.hit(h, 0)
		}
		return
	}
	t, top := w.t, uint32(len(st)-1)
	down := t.o.CallGraph == CallGraphCaller
	leaf := uint32(0)
	if t.keys.inlined {
		leaf = uint32(function(t.p, st))
	}
	if t.pass(st[leaf]) {
		h.leaf = true
		if down {
			h.pos = top
		}
		w.hit(h, t.keys.leaf(st, leaf))
		h.leaf = false
	}
	if !t.o.Children {
		return
	}
	for n := range top + 1 {
		h.pos = n
		if down {
			h.pos = top - n
		}
		if f := st[h.pos]; t.pass(f) { // a sample counts once for a row
			w.hit(h, t.keys.of[f])
		}
	}
}

func (w *walker) hit(h *hit, key uint32) {
	for int(key) >= len(w.slots) { // keys of leaves come on the way
		w.slots = append(w.slots, slot{})
	}
	at := &w.slots[key]
	if at.group != w.group {
		*at = slot{group: w.group, row: w.rows}
		w.rows++
	}
	if at.sample != h.sample+1 {
		at.sample = h.sample + 1
		h.row, h.key = at.row, key
		w.f(h)
	}
}
