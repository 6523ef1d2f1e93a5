// SPDX-License-Identifier: Apache-2.0

package symbol

// A kernelSubset is a subset of the symbols of the kernel. None of these has a
// size: each ends where the next begins, so that besides the last symbol at or
// before an address, it keeps the first behind it.
type kernelSubset struct {
	between
	gaps   []kernelGap
	names  []byte
	newest uint32 // where the name begins that was added last
}

// kernelGap is what is known of the symbols that begin between two addresses:
// which is the first, and which the last.
type kernelGap struct{ first, last entry }

// newKernelSubset makes a subset of addresses that ascend, none of them twice.
func newKernelSubset(wanted []uint64) *kernelSubset {
	s := new(kernelSubset)
	s.between.reset(wanted)
	return s
}

// add takes the next symbol of the file. The name is copied if it counts.
func (s *kernelSubset) add(e *entry, name []byte) {
	slot := s.slot(e.start)
	if *slot == 0 {
		s.addName(e, name)
		s.gaps = append(s.gaps, kernelGap{first: *e, last: *e})
		*slot = int32(len(s.gaps))
		return
	}
	g := &s.gaps[*slot-1]
	first := e.start < g.first.start || e.start == g.first.start && later("", &g.first, e)
	last := e.start > g.last.start || e.start == g.last.start && later("", &g.last, e)
	if !first && !last {
		return
	}
	if !first && g.last.start != g.first.start && !g.last.stop && g.last.name == s.newest {
		s.names = s.names[:s.newest] // nobody needs it any more
	}
	s.addName(e, name)
	if first {
		g.first = *e
	}
	if last {
		g.last = *e
	}
}

func (s *kernelSubset) addName(e *entry, name []byte) {
	if e.stop {
		return
	}
	s.newest = uint32(len(s.names))
	e.name = s.newest
	s.names = append(append(double(s.names, len(name)+1), name...), 0)
}

// entries returns what was kept, in no order.
func (s *kernelSubset) entries() []entry {
	list := make([]entry, 0, 2*len(s.gaps))
	for i := range s.gaps {
		g := &s.gaps[i]
		list = append(list, g.first)
		if g.last.start != g.first.start {
			list = append(list, g.last)
		}
	}
	return list
}
