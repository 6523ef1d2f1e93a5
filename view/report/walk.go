// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/gantry-tools/gantry/analysis/profile"

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
