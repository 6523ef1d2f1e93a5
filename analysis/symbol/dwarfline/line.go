// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"cmp"
	"math"
	"slices"
)

// lineTable is what the line number program of a unit makes.
type lineTable struct {
	rows []row
	seqs []sequence // ascending by start
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
	n, _ := slices.BinarySearchFunc(t.seqs, addr, func(s sequence, addr uint64) int {
		if s.start <= addr {
			return -1
		}
		return 1
	})
	for i := n - 1; i >= 0 && i >= n-maxOverlap; i-- {
		s := &t.seqs[i]
		if addr >= s.end {
			continue
		}
		rows := t.rows[s.first : s.first+s.n]
		lo, hi := 0, len(rows)
		for lo < hi {
			mid := int(uint(lo+hi) >> 1)
			if rows[mid].addr <= addr {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		if lo > 0 {
			return rows[lo-1], true
		}
	}
	return row{}, false
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
	slices.SortStableFunc(t.seqs, func(a, b sequence) int { return cmp.Compare(a.start, b.start) })
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
		add(e)
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
	e := &t.files[n]
	name := string(u.text(e.name))
	if name == "" {
		return ""
	}
	if !absolute(name) {
		dir := ""
		if e.dir < uint64(len(t.dirs)) {
			dir = string(u.text(t.dirs[e.dir]))
		}
		if dir != "" {
			name = join(dir, name)
		}
		if !absolute(name) && (dir == "" || t.version < 5 || e.dir != 0) {
			name = join(u.compDir, name)
		}
	}
	t.paths[n] = name
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
