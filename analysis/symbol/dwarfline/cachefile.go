// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Cache keeps what was worked out. Several goroutines may use it.
type Cache interface {
	// Derived is what was kept under a key. The error says why there is nothing.
	Derived(key [32]byte) ([]byte, error)
	// AddDerived keeps content under a key. That it could not is no loss.
	AddDerived(key [32]byte, content []byte) error
}

// Kept tables are one block, which is searched as it is:
//
//	magic and version, key, hash of the alternate file
//	counts                  ranges, units, bytes of texts, bytes of parts
//	ranges                  of addresses, ascending, each with its unit
//	units                   where the part of each is; size 0: it was not read
//	texts                   names and paths, each with its length before
//	parts                   one of each unit that was read
//
// A part has numbers of texts for its files, its functions and, in blocks of
// keptBlock, what changes from address to address. Numbers are little-endian.
// The key is a hash of all sections, so that a build-id that lies leads nowhere.
// Units with split DWARF are not kept.
const (
	cacheMagic  = "gantry lines 01\x00"
	cacheHead   = len(cacheMagic) + 2*sha256.Size + 16
	cacheRange  = 20 // start, end, unit
	cacheUnit   = 8  // offset, size
	cachePart   = 12 // counts of files, functions, blocks
	cacheFunc   = 16 // name, parent + 1 and keptInline, file and line of the call
	cacheIndex  = 12 // of a block: address, offset
	cacheInline = 1 << 31
	cacheBlock  = 16 // changes

	// What changes at an address is a number: how far it is from the one
	// before, and these.
	changesFunc = 1 << 0
	changesLine = 1 << 1
	changeBits  = 2

	// minCached is the size of sections that are worth it, maxKept the most
	// bytes that are kept of a file.
	minCached = 1 << 18
	maxCache  = 1 << 28
)

var errCache = errors.New("kept lines are of another version or file, or damaged")

// cachedTables is a block. What it says is checked where it is used.
type cachedTables struct {
	altSum  [sha256.Size]byte
	ranges  []byte
	units   []byte
	texts   string
	parts   []byte
	opened  []*part // by unit
	longest uint64  // of the ranges
}

// part is what is kept of a unit.
type part struct {
	files, funcs, blocks, changes []byte
}

// state is what there is at an address. Numbers count from 1, 0 is none.
type state struct{ file, line, fn uint32 }

// readCached checks what finding a part needs.
func readCached(b []byte, key [sha256.Size]byte) (*cachedTables, error) {
	if len(b) < cacheHead || len(b) > maxCache || string(b[:len(cacheMagic)]) != cacheMagic ||
		[sha256.Size]byte(b[len(cacheMagic):]) != key {
		return nil, errCache
	}
	le, k := binary.LittleEndian, &cachedTables{altSum: [sha256.Size]byte(b[len(cacheMagic)+sha256.Size:])}
	counts, b := b[cacheHead-16:cacheHead], b[cacheHead:]
	var size [4]uint64
	total := uint64(0)
	for i, each := range []uint64{cacheRange, cacheUnit, 1, 1} {
		size[i] = uint64(le.Uint32(counts[4*i:])) * each
		total += size[i]
	}
	if total != uint64(len(b)) {
		return nil, errCache
	}
	k.ranges, b = b[:size[0]], b[size[0]:]
	k.units, b = b[:size[1]], b[size[1]:]
	k.texts, k.parts = string(b[:size[2]]), b[size[2]:]
	k.opened = make([]*part, len(k.units)/cacheUnit)
	before := uint64(0)
	for at := 0; at < len(k.ranges); at += cacheRange {
		start, end, unit := k.rangeAt(at)
		if start < before || end <= start || unit >= uint32(len(k.opened)) {
			return nil, errCache
		}
		before, k.longest = start, max(k.longest, end-start)
	}
	return k, nil
}

func (k *cachedTables) rangeAt(at int) (start, end uint64, unit uint32) {
	b, le := k.ranges[at:at+cacheRange], binary.LittleEndian
	return le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:])
}

// unitAt is as Data.unitAt.
func (k *cachedTables) unitAt(addr uint64) (unit uint32, ok bool) {
	n := search(k.ranges, cacheRange, addr)
	for i := n; i >= 0 && i > n-maxOverlap; i-- {
		start, end, unit := k.rangeAt(i * cacheRange)
		if addr-start >= k.longest {
			break
		}
		if addr < end {
			return unit, true
		}
	}
	return 0, false
}

// search is the last of the elements of a size, each of which begins with an
// address, that begins at or before addr; -1 for none.
func search(b []byte, size int, addr uint64) int {
	lo, hi := 0, len(b)/size
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if binary.LittleEndian.Uint64(b[mid*size:]) <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// part is that of a unit, nil if there is none or it is malformed.
func (k *cachedTables) part(unit uint32) *part {
	if p := k.opened[unit]; p != nil {
		return p
	}
	b, le := k.partBytes(unit), binary.LittleEndian
	if len(b) < cachePart {
		return nil
	}
	files, funcs, blocks := 4*uint64(le.Uint32(b)), cacheFunc*uint64(le.Uint32(b[4:])),
		cacheIndex*uint64(le.Uint32(b[8:]))
	b = b[cachePart:]
	if files+funcs+blocks > uint64(len(b)) {
		return nil
	}
	p := &part{files: b[:files], funcs: b[files : files+funcs], blocks: b[files+funcs : files+funcs+blocks],
		changes: b[files+funcs+blocks:]}
	k.opened[unit] = p
	return p
}

// partBytes is nil if nothing is kept of a unit.
func (k *cachedTables) partBytes(unit uint32) []byte {
	b, le := k.units[unit*cacheUnit:], binary.LittleEndian
	off, size := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:]))
	if size == 0 || off+size > uint64(len(k.parts)) {
		return nil
	}
	return k.parts[off : off+size]
}

// at is the state at an address. It is false if the part is malformed.
func (p *part) at(addr uint64) (s state, ok bool) {
	n := search(p.blocks, cacheIndex, addr)
	if n < 0 {
		return s, true
	}
	le, entry := binary.LittleEndian, p.blocks[n*cacheIndex:]
	here, b, i := le.Uint64(entry), p.changes, int(le.Uint32(entry[8:]))
	var left, what, v uint64
	for _, into := range []*uint32{&s.file, &s.line, &s.fn} {
		v, i = number(b, i)
		*into = uint32(v)
	}
	for left, i = number(b, i); left > 0 && i <= len(b); left-- {
		what, i = number(b, i)
		if here += what >> changeBits; here > addr {
			break
		}
		if what&changesLine != 0 {
			var line uint64
			line, i = number(b, i)
			if line&1 != 0 {
				v, i = number(b, i)
				s.file = uint32(v)
			}
			s.line += uint32(unzigzag(line >> 1))
		}
		if what&changesFunc != 0 {
			v, i = number(b, i)
			s.fn += uint32(unzigzag(v))
		}
	}
	return s, i <= len(b)
}

// number reads a number of variable length at i. If there is none, the next
// one is behind the end.
func number(b []byte, i int) (n uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return longNumber(b, i)
}

func longNumber(b []byte, i int) (n uint64, next int) {
	if i < len(b) {
		if n, size := binary.Uvarint(b[i:]); size > 0 {
			return n, i + size
		}
	}
	return 0, len(b) + 1
}

func zigzag(n int64) uint64   { return uint64(n<<1) ^ uint64(n>>63) }
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// file is the path of a file of the part, by its number from 1.
func (k *cachedTables) file(p *part, n uint32) (path string, ok bool) {
	if n == 0 {
		return "", true
	}
	at := 4 * (uint64(n) - 1)
	if at >= uint64(len(p.files)) {
		return "", false
	}
	return k.text(binary.LittleEndian.Uint32(p.files[at:]))
}

// text is the text at an offset.
func (k *cachedTables) text(at uint32) (string, bool) {
	if uint64(at)+4 > uint64(len(k.texts)) {
		return "", false
	}
	b := k.texts[at:]
	n := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24
	if n > uint64(len(b)-4) {
		return "", false
	}
	return b[4 : 4+n], true
}

// calls is as Data.Calls. It is false if the unit of the address is not kept.
func (k *cachedTables) calls(dst []Call, addr uint64) (calls []Call, ok bool) {
	unit, ok := k.unitAt(addr)
	if !ok {
		return dst, true
	}
	p := k.part(unit)
	if p == nil {
		return dst, false
	}
	s, ok := p.at(addr)
	path, found := k.file(p, s.file)
	if !ok || !found {
		return dst, false
	}
	c := Call{File: path}
	if s.file != 0 {
		c.Line = s.line
	}
	if s.fn == 0 {
		if s.file != 0 {
			dst = append(dst, c)
		}
		return dst, true
	}
	return k.chain(dst, p, s.fn, c)
}

// chain appends the calls from function fn outwards; c is the innermost, less
// its name.
func (k *cachedTables) chain(dst []Call, p *part, fn uint32, c Call) ([]Call, bool) {
	le, out := binary.LittleEndian, dst
	for {
		at := cacheFunc * (uint64(fn) - 1)
		if at >= uint64(len(p.funcs)) {
			return dst, false
		}
		b := p.funcs[at : at+cacheFunc]
		name, ok := k.text(le.Uint32(b))
		if !ok {
			return dst, false
		}
		c.Name = name
		out = append(out, c)
		around := le.Uint32(b[4:])
		parent := around &^ cacheInline
		if around&cacheInline == 0 || parent == 0 {
			return out, true
		}
		if parent >= fn { // it was read before
			return dst, false
		}
		path, ok := k.file(p, le.Uint32(b[8:]))
		if !ok {
			return dst, false
		}
		c, fn = Call{File: path, Line: le.Uint32(b[12:])}, parent
	}
}
