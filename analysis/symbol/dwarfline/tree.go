// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"cmp"
	"math"
	"slices"
)

// tree has the functions of a unit and the calls inlined into them.
type tree struct {
	funcs []function
	// The innermost function at an address is that of the last segment that
	// begins at or before it.
	starts []uint64
	inner  []int32
	index  addressIndex
}

// function is a function or a call inlined into one.
type function struct {
	ref      uint64 // the DIE that its name is looked for at
	parent   int32  // the function around it, -1 for none
	callLine uint32
	callFile uint32
	inlined  bool
}

// span is a range of addresses of a function.
type span struct {
	start, end uint64
	fn         int32
}

// at is the innermost function at an address, -1 if there is none.
func (t *tree) at(addr uint64) int32 {
	lo, hi := t.index.around(addr)
	for lo < hi {
		mid := (lo + hi) >> 1
		if t.starts[mid] <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return -1
	}
	return t.inner[lo-1]
}

// treeReader walks the DIEs of a unit.
type treeReader struct {
	u     *unit
	t     *tree
	r     *buf
	spans []span
	// groups are the spans of each outermost function.
	groups []group
	around []int32 // the function around the DIEs of each depth
	die    uint64  // where the current one begins
}

// read reads the functions of a unit.
func (t *tree) read(u *unit) {
	scratch := &u.file.d.scratch
	w := &treeReader{u: u, t: t, r: u.file.reader(u.file.src.Info[:u.end]), spans: scratch.spans[:0],
		groups: scratch.groups[:0]}
	t.funcs = scratch.funcs[:0]
	w.r.seek(u.dies)
	w.walk(u.file.abbrevsAt(u.abbrevAt, u.enc))
	u.file.d.spend(u.end - u.dies)
	if w.r.bad {
		u.file.d.broken("info", u.dies)
	}
	w.flatten()
	scratch.spans, scratch.groups, scratch.funcs = w.spans, w.groups, t.funcs
	scratch.starts, scratch.inner = t.starts, t.inner
	t.funcs, t.starts, t.inner = slices.Clone(t.funcs), slices.Clone(t.starts), slices.Clone(t.inner)
	t.index = newAddressIndex(len(t.starts), func(i int) uint64 { return t.starts[i] })
}

func (w *treeReader) walk(table *abbrevs) {
	r, enc := w.r, w.u.enc
	around := int32(-1)
	for r.off < uint64(len(r.b)) {
		w.die = r.off
		code := r.uleb()
		if code == 0 {
			n := len(w.around) - 1
			if n < 0 {
				return
			}
			around = w.around[n]
			if w.around = w.around[:n]; n == 0 {
				return // the unit's own list of children
			}
			continue
		}
		ab := table.get(code)
		if ab == nil {
			r.fail()
			return
		}
		inside := around
		switch ab.role {
		case rolePass:
			for _, op := range ab.skips {
				if op.kind == skipBytes {
					r.skip(uint64(op.n))
				} else {
					r.step(op, enc)
				}
			}
		default:
			if fn := w.function(ab, around); fn >= 0 {
				inside = fn
			}
		}
		if r.bad {
			return
		}
		if !ab.children {
			continue
		}
		if len(w.around) == maxDepth {
			r.fail()
			return
		}
		w.around = append(w.around, around)
		around = inside
	}
}

// function reads the DIE of a function or an inlined call. It returns its
// number, -1 if it has no code. Its children count all the same: the functions
// of a local class or a lambda may be below it.
func (w *treeReader) function(ab *abbrev, around int32) int32 {
	u, r := w.u, w.r
	f := function{ref: w.die, parent: around, inlined: ab.role == roleInline}
	var low, high, list, origin value
	for i := range ab.attrs {
		a := &ab.attrs[i]
		switch a.name {
		case atLowpc:
			low = u.value(r, a)
		case atHighpc:
			high = u.value(r, a)
		case atRanges:
			list = u.value(r, a)
		case atAbstractOrigin:
			origin = u.value(r, a)
		case atCallFile:
			f.callFile = uint32(min(u.value(r, a).n, math.MaxUint32))
		case atCallLine:
			f.callLine = uint32(min(u.value(r, a).n, math.MaxUint32))
		default:
			u.value(r, a)
		}
	}
	if !low.ok() && !list.ok() {
		return -1
	}
	if f.inlined && origin.ok() {
		if ref, ok := u.reference(origin); ok {
			f.ref = ref
		}
	}
	d := u.file.d
	if d.funcs >= maxFuncs {
		d.tooMuch()
		return -1
	}
	d.funcs++
	fn := int32(len(w.t.funcs))
	w.t.funcs = append(w.t.funcs, f)
	if around < 0 {
		w.groups = append(w.groups, group{first: len(w.spans)})
	}
	u.eachRange(low, high, list, func(start, end uint64) {
		if len(w.spans) == maxRanges {
			d.tooMuch()
			return
		}
		w.spans = append(w.spans, span{start, end, fn})
	})
	return fn
}

// group is the spans of a function and of all that is in it.
type group struct {
	first, last int
	start, end  uint64
}

// flatten turns the spans, which lie in each other, into segments that do not.
func (w *treeReader) flatten() {
	groups := w.groups[:0]
	for i := range w.groups {
		g := group{first: w.groups[i].first, last: len(w.spans)}
		if i+1 < len(w.groups) {
			g.last = w.groups[i+1].first
		}
		if g.first == g.last {
			continue
		}
		spans := w.spans[g.first:g.last]
		sortSpans(spans)
		g.start = spans[0].start
		for _, s := range spans {
			g.end = max(g.end, s.end)
		}
		groups = append(groups, g)
	}
	byStart := func(a, b group) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(groups, byStart) {
		slices.SortStableFunc(groups, byStart)
	}
	overlap := false
	for i := range groups {
		overlap = overlap || i > 0 && groups[i-1].end > groups[i].start
	}
	scratch := &w.u.file.d.scratch
	s := sweep{t: w.t, open: scratch.open[:0]}
	w.t.starts, w.t.inner = scratch.starts[:0], scratch.inner[:0]
	if overlap {
		sortSpans(w.spans)
		s.add(w.spans)
	} else {
		for _, g := range groups {
			s.add(w.spans[g.first:g.last])
		}
	}
	s.close(math.MaxUint64)
	scratch.open = s.open
}

// sortSpans sorts by start; of spans that begin together, what is further in is
// shorter, or comes later in the file.
func sortSpans(spans []span) {
	less := func(a, b *span) bool {
		switch {
		case a.start != b.start:
			return a.start < b.start
		case a.end != b.end:
			return a.end > b.end
		}
		return a.fn < b.fn
	}
	if len(spans) <= 12 {
		for i := 1; i < len(spans); i++ {
			for j := i; j > 0 && less(&spans[j], &spans[j-1]); j-- {
				spans[j], spans[j-1] = spans[j-1], spans[j]
			}
		}
		return
	}
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), cmp.Compare(a.fn, b.fn))
	})
}

// sweep makes segments of sorted spans.
type sweep struct {
	t    *tree
	open []span
}

func (s *sweep) add(spans []span) {
	for _, sp := range spans {
		s.close(sp.start)
		s.emit(sp.start, sp.fn)
		s.open = append(s.open, sp)
	}
}

// close ends the open spans that end at or before an address.
func (s *sweep) close(addr uint64) {
	for n := len(s.open) - 1; n >= 0 && s.open[n].end <= addr; n = len(s.open) - 1 {
		end := s.open[n].end
		for n >= 0 && s.open[n].end <= end {
			n--
		}
		s.open = s.open[:n+1]
		inner := int32(-1)
		if n >= 0 {
			inner = s.open[n].fn
		}
		s.emit(end, inner)
	}
}

func (s *sweep) emit(addr uint64, fn int32) {
	if n := len(s.t.starts) - 1; n >= 0 && s.t.starts[n] == addr {
		s.t.inner[n] = fn
		return
	}
	s.t.starts = append(s.t.starts, addr)
	s.t.inner = append(s.t.inner, fn)
}
