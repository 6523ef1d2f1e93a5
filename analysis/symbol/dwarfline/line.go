// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"cmp"
	"math"
	"slices"
)

// lineTable is what the line number program of a unit makes.
type lineTable struct {
	rows  []row
	seqs  []sequence   // ascending by start; nil if they are joined
	index addressIndex // of the rows, if they are
	// Of the header:
	version uint16
	dirs    []value
	files   []fileEntry
	paths   []string // by number of file, made when asked for; "" is not yet
}

// row says what is at an address, up to the next row.
type row struct {
	addr       uint64
	file, line uint32
}

// sequence is a run of rows without a gap.
type sequence struct {
	start, end uint64
	first, n   uint32 // rows
}

type fileEntry struct {
	name value
	dir  uint64
}

// at is the row for an address.
func (t *lineTable) at(addr uint64) (row, bool) {
	if t.seqs != nil {
		return t.search(addr)
	}
	lo, hi := t.index.around(addr)
	for lo < hi {
		mid := (lo + hi) >> 1
		if t.rows[mid].addr <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 || t.rows[lo-1].file == gap {
		return row{}, false
	}
	return t.rows[lo-1], true
}

// search is at for sequences that overlap, which compilers do not make.
func (t *lineTable) search(addr uint64) (row, bool) {
	n := lastAt(t.seqs, addr, func(s *sequence) uint64 { return s.start })
	for i := n; i >= 0 && i > n-maxOverlap; i-- {
		s := &t.seqs[i]
		rows := t.rows[s.first : s.first+s.n]
		if k := lastAt(rows, addr, func(r *row) uint64 { return r.addr }); k >= 0 && addr < s.end {
			return rows[k], true
		}
	}
	return row{}, false
}

// lastAt is the last element that begins at or before an address, -1 for none.
func lastAt[T any](list []T, addr uint64, start func(*T) uint64) int {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if start(&list[mid]) <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// spans are the addresses that have a line.
func (t *lineTable) spans() []span {
	var list []span
	for _, s := range t.seqs {
		list = append(list, span{start: s.start, end: s.end})
	}
	for i := range t.rows {
		if t.seqs == nil && t.rows[i].file != gap && i+1 < len(t.rows) {
			if n := len(list) - 1; n >= 0 && list[n].end == t.rows[i].addr {
				list[n].end = t.rows[i+1].addr
			} else {
				list = append(list, span{start: t.rows[i].addr, end: t.rows[i+1].addr})
			}
		}
	}
	return list
}

// gap is the file of a row where there is no line.
const gap = math.MaxUint32

// join puts the rows of all sequences in the order of their addresses, with a
// gap behind each sequence that the next does not adjoin. Sequences that overlap
// stay as they are.
func (t *lineTable) join(scratch []row) []row {
	n := 0
	for i, s := range t.seqs {
		rows := t.rows[s.first : s.first+s.n]
		if i > 0 && s.start < t.seqs[i-1].end ||
			!slices.IsSortedFunc(rows, func(a, b row) int { return cmp.Compare(a.addr, b.addr) }) ||
			rows[len(rows)-1].addr >= s.end {
			return scratch
		}
		n += len(rows) + 1
	}
	scratch = slices.Grow(scratch[:0], n)
	for i, s := range t.seqs {
		scratch = append(scratch, t.rows[s.first:s.first+s.n]...)
		if i+1 == len(t.seqs) || t.seqs[i+1].start != s.end {
			scratch = append(scratch, row{s.end, gap, 0})
		}
	}
	t.rows, t.seqs = slices.Clone(scratch), nil
	t.index = newAddressIndex(len(t.rows), func(i int) uint64 { return t.rows[i].addr })
	return scratch
}

// lineHeader is what the program needs of its header.
type lineHeader struct {
	enc            encoding
	minInst        uint64
	maxOps         uint8
	lineBase       int8
	lineRange      uint8
	opcodeBase     uint8
	opcodeLengths  []byte
	program        *buf
	programAt, end uint64
}

// read runs the line number program of a unit.
func (t *lineTable) read(u *unit) {
	f := u.file
	d := f.d
	r := f.reader(f.src.Line)
	r.seek(u.stmtList.n)
	begin := r.off
	h := t.header(u, r)
	if h == nil {
		d.broken("line", u.stmtList.n)
		return
	}
	d.spend(h.end - begin)
	if d.fuel <= 0 {
		return
	}
	m := &lineMachine{t: t, h: h, d: d}
	m.run()
	if h.program.bad {
		d.broken("line", h.programAt)
	}
	byStart := func(a, b sequence) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(t.seqs, byStart) {
		slices.SortStableFunc(t.seqs, byStart)
	}
	d.scratch.joined = t.join(d.scratch.joined)
}

// header reads the header of a line number program, nil if it is malformed.
func (t *lineTable) header(u *unit, r *buf) *lineHeader {
	h := &lineHeader{enc: u.enc}
	length, offsetSize := r.length()
	if r.bad || length > uint64(len(r.b))-r.off {
		return nil
	}
	r.b = r.b[:r.off+length]
	h.end = uint64(len(r.b))
	h.enc.offsetSize = offsetSize
	h.enc.version = r.u16()
	if h.enc.version < 2 || h.enc.version > 5 {
		return nil
	}
	t.version = h.enc.version
	if h.enc.version == 5 {
		h.enc.addressSize = r.u8()
		r.u8() // size of segment selectors
	}
	headerLength := r.uint(offsetSize)
	h.programAt = r.off + headerLength
	if h.programAt < r.off || h.programAt > h.end {
		return nil
	}
	h.minInst = uint64(r.u8())
	h.maxOps = 1
	if h.enc.version >= 4 {
		h.maxOps = max(r.u8(), 1)
	}
	r.u8() // default_is_stmt
	h.lineBase, h.lineRange, h.opcodeBase = int8(r.u8()), r.u8(), r.u8()
	if h.opcodeBase == 0 || h.lineRange == 0 {
		return nil
	}
	h.opcodeLengths = r.take(uint64(h.opcodeBase) - 1)
	head := *r
	head.b = r.b[:h.programAt]
	lu := *u // forms are as long as this header says
	lu.enc = h.enc
	if h.enc.version == 5 {
		t.tables(&lu, &head)
	} else {
		t.oldTables(&head)
	}
	if head.bad {
		u.file.d.broken("line", u.stmtList.n)
	}
	h.program = &buf{b: r.b, off: h.programAt, big: r.big}
	if r.bad {
		return nil
	}
	return h
}

// oldTables reads directories and files as versions before 5 have them: counted
// from 1, where directory 0 is that of the compilation.
func (t *lineTable) oldTables(r *buf) {
	t.dirs = append(t.dirs, value{})
	for r.more() && len(t.dirs) < maxFiles {
		s := r.str()
		if len(s) == 0 {
			break
		}
		t.dirs = append(t.dirs, value{form: formString, text: s})
	}
	t.files = append(t.files, fileEntry{})
	for r.more() && len(t.files) < maxFiles {
		s := r.str()
		if len(s) == 0 {
			break
		}
		t.addFile(r, s)
	}
}

func (t *lineTable) addFile(r *buf, name []byte) {
	dir := r.uleb()
	r.uleb() // time
	r.uleb() // size
	if len(t.files) < maxFiles {
		t.files = append(t.files, fileEntry{value{form: formString, text: name}, dir})
	}
}

// tables reads directories and files as version 5 has them, counted from 0.
func (t *lineTable) tables(u *unit, r *buf) {
	t.entries(u, r, func(e fileEntry) { t.dirs = append(t.dirs, e.name) })
	t.entries(u, r, func(e fileEntry) { t.files = append(t.files, e) })
}

func (t *lineTable) entries(u *unit, r *buf, add func(fileEntry)) {
	type field struct {
		content uint64
		attr    attr
	}
	var format []field
	for range r.u8() {
		format = append(format, field{r.uleb(), attr{form: uint16(min(r.uleb(), 0xffff))}})
	}
	count := r.uleb()
	if len(format) == 0 {
		return
	}
	for n := uint64(0); n < min(count, maxFiles) && !r.bad && r.more(); n++ {
		var e fileEntry
		begin := r.off
		for i := range format {
			f := &format[i]
			v := u.value(r, &f.attr)
			switch f.content {
			case lnctPath:
				e.name = v
			case lnctDirectoryIndex:
				e.dir = v.n
			}
		}
		if r.off == begin { // else a few bytes would make maxFiles of them
			r.fail()
			return
		}
		add(e)
	}
	if count > maxFiles {
		u.file.d.tooMuch()
	}
}

// fileName is the path of a file by its number in the line table.
func (u *unit) fileName(n uint32) string {
	t := &u.lines
	if uint64(n) >= uint64(len(t.files)) {
		return ""
	}
	if t.paths == nil {
		t.paths = make([]string, len(t.files))
	}
	if t.paths[n] != "" {
		return t.paths[n]
	}
	t.paths[n] = u.makePath(&t.files[n])
	return t.paths[n]
}

// makePath puts the parts of a path together.
func (u *unit) makePath(e *fileEntry) string {
	t := &u.lines
	base := u.text(e.name)
	if len(base) == 0 || !u.file.d.mayKeep(len(base)) {
		return ""
	}
	name := string(base)
	if absolute(name) {
		return name
	}
	var dir []byte
	if e.dir < uint64(len(t.dirs)) {
		dir = u.text(t.dirs[e.dir])
	}
	if !u.file.d.mayKeep(len(dir) + len(u.compDir)) {
		return ""
	}
	if len(dir) > 0 {
		name = join(string(dir), name)
	}
	if !absolute(name) && (len(dir) == 0 || t.version < 5 || e.dir != 0) {
		name = join(string(u.compDir), name)
	}
	return name
}

// absolute reports whether a path needs no directory. Those of Windows come
// from cross compilers.
func absolute(name string) bool {
	return name[0] == '/' || name[0] == '\\' || len(name) > 2 && name[1] == ':' && (name[2] == '\\' || name[2] == '/')
}

func join(dir, name string) string {
	switch {
	case dir == "":
		return name
	case dir[len(dir)-1] == '/':
		return dir + name
	}
	return dir + "/" + name
}

// clampLine keeps the number of a line, whatever a program does with it.
func clampLine(n int64) uint32 { return uint32(max(0, min(n, math.MaxUint32))) }
