// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"strings"
)

// Symbol is one entry of a Table. It covers the addresses from Start up to,
// but not including, End.
type Symbol struct {
	Name       string
	Start, End uint64
}

// Table maps addresses to symbols. It is immutable: any number of goroutines
// may use it. Its zero value is empty.
type Table struct {
	names  string // every name, each ended by a NUL byte
	name   []uint32
	starts addressIndex
	ends   []uint64
	outer  []int32 // the symbol around this one, -1 for none; nil if none overlap
}

// maxNesting bounds the walk outwards through symbols that lie in each other.
// Real files nest two deep.
const maxNesting = 16

// Len is the number of symbols.
func (t *Table) Len() int { return len(t.ends) }

// Lookup returns the innermost symbol that covers addr. Its index is the
// argument of Name and Sym.
func (t *Table) Lookup(addr uint64) (sym int32, ok bool) {
	at := t.starts.last(addr)
	if at < 0 {
		return -1, false
	}
	if addr < t.ends[at] {
		return int32(at), true
	}
	if t.outer == nil {
		return -1, false
	}
	return t.lookupOuter(int32(at), addr)
}

func (t *Table) lookupOuter(sym int32, addr uint64) (int32, bool) {
	for range maxNesting {
		if sym = t.outer[sym]; sym < 0 {
			break
		}
		if addr < t.ends[sym] {
			return sym, true
		}
	}
	return -1, false
}

// Name is the name of a symbol as the file has it. It does not allocate.
func (t *Table) Name(sym int32) string { return cString(t.names, t.name[sym]) }

// Sym is the symbol of an index from 0 to Len()-1; they are in the order of
// their start addresses.
func (t *Table) Sym(sym int32) Symbol {
	return Symbol{Name: t.Name(sym), Start: t.starts.addrs[sym], End: t.ends[sym]}
}

// minCompact is the size of names that may stay whatever they are.
const minCompact = 64 << 10

// compact copies the names in use, if most are not: those of variables, or what
// a hostile file claims to be names. Of a few names, it is not worth the look.
func (t *Table) compact() {
	if len(t.names) < minCompact {
		return
	}
	if half := len(t.names) / 2; t.nameBytes(half) <= half {
		t.copyNames()
	}
}

// nameBytes is the size of the names in use, or something above limit.
func (t *Table) nameBytes(limit int) int {
	used := 0
	for _, off := range t.name {
		if used += len(cString(t.names, off)) + 1; used > limit {
			break
		}
	}
	return used
}

// copyNames makes the names in use the table's own; or all names, if those in
// use are more because they lie in each other.
func (t *Table) copyNames() {
	size := t.nameBytes(len(t.names))
	if size > len(t.names) {
		t.names = strings.Clone(t.names)
		return
	}
	var b strings.Builder
	b.Grow(size)
	for i, off := range t.name {
		t.name[i] = uint32(b.Len())
		b.WriteString(cString(t.names, off))
		b.WriteByte(0)
	}
	t.names = b.String()
}

// cString is the text of s from off to the next NUL byte.
func cString(s string, off uint32) string {
	if uint64(off) >= uint64(len(s)) {
		return ""
	}
	s = s[off:]
	if end := strings.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return s
}
