// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"cmp"
	"fmt"
	"slices"
)

// Source is the content of the debug sections of one file, unpacked. What a file
// does not have is nil. The content must not change.
type Source struct {
	Info, Abbrev, Line, Str, LineStr []byte
	Ranges, Rnglists                 []byte
	Addr, StrOffsets                 []byte
	CUIndex                          []byte // of a package of split DWARF
	BigEndian                        bool

	packed []packed // what is to be unpacked before use
}

// Options say where the parts are that are in other files. Each may be nil, and
// may return nil.
type Options struct {
	// Alt is what .gnu_debugaltlink leads to: what dwz moved out of several
	// files into one.
	Alt func() *Source
	// Split is the split DWARF of a unit: the file name, relative to the
	// directory dir in which the unit was compiled, unless it is absolute.
	Split func(dir, name string) *Source
	// Package is the package of all units' split DWARF.
	Package func() *Source
	// Cache keeps what was worked out, for the next time. See Data.Save.
	Cache Cache
}

// Data answers questions about one binary. It is not safe for use by several
// goroutines.
type Data struct {
	opts    Options
	src     *Source       // of main
	main    *file         // nil until it is needed
	cached  *cachedTables // nil if there is none
	key     [32]byte
	altSum  [32]byte // of the alternate file, if there is one
	alt     *file
	altSrc  *Source
	pack    *file
	packed  map[uint64]contribution
	asked   struct{ alt, pack bool }
	splits  int
	ranges  []unitRange // ascending by start
	longest uint64      // of the ranges
	indexed bool

	scratch scratch
	fuel    int64
	rows    int
	funcs   int
	texts   int // bytes of names and paths
	err     error
	split   error // ErrSplit
}

// file is one file's sections, and what is known of them.
type file struct {
	d      *Data
	src    *Source
	units  []*unit // ascending by offset
	tables map[abbrevKey]*abbrevs
	names  map[uint64]string // by offset of a DIE
	split  bool
}

// scratch is memory that reading one unit after the other reuses: what is kept of
// each is copied out of it, as large as it is.
type scratch struct {
	rows   []row
	joined []row
	spans  []span
	groups []group
	funcs  []function
	starts []uint64
	inner  []int32
	open   []span
}

// unitRange is a range of addresses that a unit covers.
type unitRange struct {
	start, end uint64
	unit       *unit
}

// workPerByte is how often each byte of the sections may be looked at. Files
// of compilers need less than two. maxWork is the most of all.
const (
	workPerByte = 8
	maxWork     = 1 << 32
)

// New prepares to answer from src. o may be nil.
func New(src *Source, o *Options) *Data {
	d := &Data{src: src}
	if o != nil {
		d.opts = *o
	}
	d.openCache()
	return d
}

// newFile adds a file, with the work that its size allows for.
func (d *Data) newFile(src *Source) *file {
	d.err = cmp.Or(d.err, src.unpack())
	d.fuel += min(int64(src.Size())*workPerByte+1<<16, maxWork)
	return d.partOf(src)
}

// partOf is newFile for what the work was allowed for already.
func (d *Data) partOf(src *Source) *file {
	return &file{d: d, src: src, names: make(map[uint64]string)}
}

// Err tells what of the DWARF looked at so far was left out because it is
// malformed, was too much, or is in a file that is not there; nil if all was well.
func (d *Data) Err() error { return cmp.Or(d.err, d.split) }

// broken remembers the first thing that went wrong.
func (d *Data) broken(section string, off uint64) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: section .debug_%s, offset %#x", ErrMalformed, section, off)
	}
}

// tooMuch remembers that something was left out because of its size.
func (d *Data) tooMuch() { d.err = cmp.Or(d.err, ErrTooMuch) }

// spend pays for n bytes of work.
func (d *Data) spend(n uint64) {
	if d.fuel -= int64(n) + 1; d.fuel <= 0 {
		d.tooMuch()
	}
}

// mayKeep counts n bytes of a name or a path that is to be kept, and reports
// whether there is room for it.
func (d *Data) mayKeep(n int) bool {
	if n > maxTexts-d.texts {
		d.tooMuch()
		return false
	}
	d.texts += n
	return true
}

func (f *file) reader(section []byte) *buf {
	return &buf{b: section, big: f.src.BigEndian}
}

// index finds out which addresses belong to which unit.
func (d *Data) index() {
	if d.indexed {
		return
	}
	d.indexed = true
	d.main = d.newFile(d.src)
	d.main.readUnits(0, uint64(len(d.main.src.Info)))
	for _, u := range d.main.units {
		d.addRanges(u)
	}
	slices.SortStableFunc(d.ranges, func(a, b unitRange) int { return cmp.Compare(a.start, b.start) })
	for _, r := range d.ranges {
		d.longest = max(d.longest, r.end-r.start)
	}
}

// addRanges adds what a unit says that it covers. One that does not tell covers
// what its line table does; so do those of DWARF 2, which cannot tell of several
// ranges.
func (d *Data) addRanges(u *unit) {
	if u.kind == unitPartial || u.kind == unitType {
		return
	}
	before := len(d.ranges)
	add := func(start, end uint64) {
		if len(d.ranges) == maxRanges {
			d.tooMuch()
			return
		}
		d.ranges = append(d.ranges, unitRange{start, end, u})
	}
	u.eachRange(u.low, u.high, u.rangesAt, add)
	if u.enc.version > 2 && (len(d.ranges) > before || u.high.ok() || u.rangesAt.ok()) {
		return
	}
	u.readLines()
	for _, s := range u.lines.spans() {
		add(s.start, s.end)
	}
}

// maxOverlap is how many ranges are looked at for an address. Those of sane
// files do not overlap.
const maxOverlap = 64

// unitAt is the unit that an address belongs to, nil if there is none.
func (d *Data) unitAt(addr uint64) *unit {
	d.index()
	n := lastAt(d.ranges, addr, func(r *unitRange) uint64 { return r.start })
	for i := n; i >= 0 && i > n-maxOverlap && addr-d.ranges[i].start < d.longest; i-- {
		if addr < d.ranges[i].end {
			return d.ranges[i].unit
		}
	}
	return nil
}

// Calls appends the calls that addr, an address of the file's own address space,
// belongs to: leaf first, each but the last inlined into the next one. It appends
// nothing if DWARF does not know the address.
func (d *Data) Calls(dst []Call, addr uint64) []Call {
	if d.cached != nil {
		if calls, ok := d.cached.calls(dst, addr); ok {
			return calls
		}
	}
	u := d.unitAt(addr)
	if u == nil {
		return dst
	}
	u.load()
	line, hasLine := u.lines.at(addr)
	fn := u.tree.at(addr)
	if fn < 0 {
		if hasLine {
			dst = append(dst, Call{File: u.fileName(line.file), Line: line.line})
		}
		return dst
	}
	file, number := uint64(line.file), line.line
	for ; fn >= 0; fn = u.tree.funcs[fn].parent {
		f := &u.tree.funcs[fn]
		c := Call{Name: u.nameOf(f.ref), Line: number}
		if hasLine {
			c.File = u.fileName(uint32(file))
		}
		dst = append(dst, c)
		if !f.inlined {
			break
		}
		file, number, hasLine = uint64(f.callFile), f.callLine, true
	}
	return dst
}
