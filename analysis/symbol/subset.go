// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"slices"
	"unsafe"
)

// A symbolSubset keeps of the symbols of a binary those that the look-ups of some
// addresses find: for each address, the last one that begins at or before it.
// Most look-ups need no more, and then nothing has to be sorted, and no table
// of all symbols be made. Where more would be needed, as with functions that
// lie in each other, entries says so.
type symbolSubset struct {
	between
	gaps    []gap
	list    []entry // room for entries
	failed  bool    // what was added is not what is in the file
	aliases demangling
}

// gap is what is known of the symbols that begin between two addresses.
type gap struct {
	last entry // the one that begins last, if found
	// label is where the last label begins, if labelled.
	label           uint64
	found, labelled bool
	// cover is where the symbols end that are not kept.
	cover uint64
}

// reset makes s a subset of addresses that ascend, none of them twice.
func (s *symbolSubset) reset(wanted []uint64) {
	s.between.reset(wanted)
	s.gaps, s.failed, s.aliases = s.gaps[:0], false, demangling{}
}

// between finds the gap between two wanted addresses that a symbol begins in.
type between struct {
	wanted addressIndex
	// slots are numbers of gaps, plus one, 0 for one where nothing begins: the
	// i-th is behind wanted[i-1] and up to wanted[i], one more behind all.
	slots []int32
	at    int // the one found last: symbol tables are in order here and there
}

func (b *between) reset(wanted []uint64) {
	b.wanted.reset(wanted)
	b.slots = slices.Grow(b.slots[:0], len(wanted)+1)[:len(wanted)+1]
	clear(b.slots)
	b.at = 0
}

// slot is the slot of the gap that start lies in.
func (b *between) slot(start uint64) *int32 {
	addrs, i := b.wanted.addrs, b.at
	if i == 0 || start > addrs[i-1] {
		for end := min(i+maxProbes, len(addrs)); i < end && start > addrs[i]; i++ {
		}
		if i == len(addrs) || start <= addrs[i] {
			b.at = i
			return &b.slots[i]
		}
	}
	b.at = 0 // of the first address that is not before start
	if start > 0 {
		b.at = b.wanted.last(start-1) + 1
	}
	return &b.slots[b.at]
}

// maxProbes is how many gaps are tried before the right one is searched for.
const maxProbes = 8

// wants reports whether an address lies between start and end.
func (s *symbolSubset) wants(start, end uint64) bool {
	if end <= start {
		return false
	}
	at := s.wanted.last(end - 1)
	return at >= 0 && s.wanted.addrs[at] >= start
}

// add takes the next symbol of the file, if named accepts it. That is asked
// only where it counts, since names are all over the memory.
func (s *symbolSubset) add(names []byte, e *entry, named func(e *entry) bool) {
	slot := s.slot(e.start)
	if *slot == 0 {
		s.gaps = append(s.gaps, gap{})
		*slot = int32(len(s.gaps))
	}
	g := &s.gaps[*slot-1]
	isLabel := e.label && e.noSize
	switch {
	case isLabel && g.labelled && e.start <= g.label:
	case !isLabel && g.found && e.start < g.last.start:
		g.drop(e)
	case !named(e):
	case isLabel:
		g.label, g.labelled = e.start, true
	case !g.found || e.start > g.last.start:
		g.drop(&g.last)
		g.last, g.found = *e, true
	case s.aliases.better(unsafe.String(unsafe.SliceData(names), len(names)), &g.last, e):
		g.last = *e
	}
}

// drop remembers how far e reached.
func (g *gap) drop(e *entry) {
	if !e.noSize {
		g.cover = max(g.cover, e.end)
	}
}

// entries returns the symbols for a table in which each address is found as
// in a table of all symbols. It is not ok if these do not do.
//
// A symbol that covers the address and begins closest to it is found,
// whatever the others are. One without a size ends at the next that begins,
// which is behind the address. A label in a function that has a size does not
// count, and so not the one between the start of a function and an address in
// it. If the closest does not cover the address, one that was not kept may do,
// or a label. They are valid until the next reset.
func (s *symbolSubset) entries() (_ []entry, ok bool) {
	list := s.list[:0]
	var last *entry    // begins closest to the address
	var label *gap     // has the label that begins closest
	reach := uint64(0) // how far the symbols go that are not last
	for i, addr := range s.wanted.addrs {
		if s.slots[i] > 0 {
			g := &s.gaps[s.slots[i]-1]
			reach = max(reach, g.cover)
			if g.labelled {
				label = g
			}
			if g.found {
				if last != nil && !last.noSize {
					reach = max(reach, last.end)
				}
				last = &g.last
				list = append(list, g.last)
			}
		}
		labelled := label != nil && (last == nil || label.label >= last.start)
		switch covered := last != nil && addr < last.end; {
		case !covered && (labelled || addr < reach):
			return nil, false
		case covered && labelled && (last.noSize || last.second):
			return nil, false
		}
	}
	s.list = list
	return list, !s.failed
}
