// SPDX-License-Identifier: Apache-2.0

package symbol

import "slices"

// binding orders symbols at one address by how far they can be seen.
type binding uint8

const (
	bindLocal binding = iota
	bindGlobal
	bindWeak // loses against all others
)

// entry is a symbol on its way into a Table.
type entry struct {
	start uint64
	end   uint64 // with noSize: where it ends at the latest
	name  uint32 // offset into the names
	kind  uint16 // for the caller, kept in the order of the table
	bind  binding

	second bool // from a table that only adds to another
	noSize bool // ends where the next symbol begins
	label  bool // has neither size nor type: yields to a function around it
	stop   bool // only ends the symbol before it
}

// chooser reports whether b is to be shown rather than a, which is at the same
// address and came before it.
type chooser func(names string, a, b *entry) bool

// better chooses among the symbols of a binary, those of the first table before
// those of the second. The rule within a table is perf's, so that both tools give a
// function the same name: one with a size before one without, then strong
// before weak, global before local, fewer leading underscores, and the longer
// name, both counted in the demangled form, or as they are after too many long
// ones. Where all is equal, the first stays.
func (d *demangling) better(names string, a, b *entry) bool {
	switch {
	case a.stop != b.stop:
		return a.stop
	case a.second != b.second:
		return a.second
	case a.noSize != b.noSize:
		return a.noSize
	case (a.bind == bindWeak) != (b.bind == bindWeak):
		return a.bind == bindWeak
	case a.bind != b.bind:
		return b.bind == bindGlobal
	}
	na, nb := cString(names, a.name), cString(names, b.name)
	if sameStructor(na, nb) {
		return false
	}
	na, nb = d.pair(na, nb)
	if ua, ub := underscores(na), underscores(nb); ua != ub {
		return ub < ua
	}
	return len(nb) > len(na)
}

// sameStructor reports whether two names are of one constructor or destructor,
// in the variants of it that mostly lie at one address: their demangled forms
// are equal, and need not be made. They differ in the digit of C1 or D1.
func sameStructor(a, b string) bool {
	if len(a) != len(b) || !mangled(a) || !mangled(b) {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	return i > 0 && i < len(a) && a[i+1:] == b[i+1:] &&
		(a[i-1] == 'C' || a[i-1] == 'D') && '0' <= min(a[i], b[i]) && max(a[i], b[i]) <= '9'
}

// later chooses among the symbols of the kernel, where perf shows the last one
// that /proc/kallsyms has at an address, whatever its name.
func later(_ string, a, b *entry) bool { return a.stop || !b.stop }

func underscores(s string) int {
	n := 0
	for n < len(s) && s[n] == '_' {
		n++
	}
	return n
}

// buildTable makes a table of entries, which it reorders. The names are kept.
// It also returns the kind of each symbol, in the order of the table. With a
// page size, code of different kinds is not taken to be contiguous.
func buildTable(names string, entries []entry, choose chooser, page uint64) (Table, []uint16) {
	sortEntries(entries)
	entries = dropAliases(names, entries, choose)
	entries = dropLabels(entries)
	setEnds(entries, page)
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.stop || e.end <= e.start })

	n := len(entries)
	t := Table{names: names, name: make([]uint32, n), ends: make([]uint64, n)}
	starts, kinds := make([]uint64, n), make([]uint16, n)
	for i := range entries {
		e := &entries[i]
		t.name[i], starts[i], t.ends[i], kinds[i] = e.name, e.start, e.end, e.kind
	}
	t.starts.reset(starts)
	t.outer = nesting(starts, t.ends)
	return t, kinds
}

// dropAliases keeps of the entries at each address the best.
func dropAliases(names string, entries []entry, choose chooser) []entry {
	if len(entries) == 0 {
		return entries
	}
	kept := entries[:1]
	for i := 1; i < len(entries); i++ {
		best := &kept[len(kept)-1]
		switch {
		case best.start != entries[i].start:
			kept = append(kept, entries[i])
		case choose(names, best, &entries[i]):
			*best = entries[i]
		}
	}
	return kept
}

// dropLabels removes labels inside of a function that has a size: a jump
// target written in assembler is not what a profile should show.
func dropLabels(entries []entry) []entry {
	var end uint64 // of the functions seen so far
	return slices.DeleteFunc(entries, func(e entry) bool {
		if e.label && e.noSize && e.start < end {
			return true
		}
		if !e.noSize && !e.stop {
			end = max(end, e.end)
		}
		return false
	})
}

// setEnds gives an end to symbols without a size: where the next one begins. If
// that is of another kind, there is a gap of unknown length between them, and
// the symbol ends with the page behind the one it begins in, as it does in perf.
func setEnds(entries []entry, page uint64) {
	for i := range entries {
		e := &entries[i]
		if !e.noSize {
			continue
		}
		last := i+1 == len(entries)
		if !last {
			e.end = min(e.end, entries[i+1].start)
		}
		if page != 0 && (last || entries[i+1].kind != e.kind) {
			e.end = min(e.end, (e.start+2*page-1)&^(page-1))
		}
	}
}

// nesting finds for each symbol the one that it lies in. It returns nil if
// there is none, as in nearly every file.
func nesting(starts, ends []uint64) []int32 {
	var outer []int32
	var open []int32 // symbols that may cover what comes next, outermost first
	for i := range starts {
		for len(open) > 0 && ends[open[len(open)-1]] <= starts[i] {
			open = open[:len(open)-1]
		}
		if len(open) > 0 && outer == nil {
			outer = make([]int32, len(starts))
			for j := range outer {
				outer[j] = -1
			}
		}
		if len(open) > 0 {
			outer[i] = open[len(open)-1]
		}
		open = append(open, int32(i))
	}
	return outer
}
