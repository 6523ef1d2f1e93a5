// SPDX-License-Identifier: Apache-2.0

// Package pclntab reads the tables that the Go runtime prints its tracebacks
// from: functions, source lines, and the calls that the compiler inlined. Go
// programs have them also when they are stripped.
//
// It knows the tables of Go 1.18 and later. Their form is described in the Go
// sources: runtime/symtab.go (pcHeader, moduledata), runtime/runtime2.go (_func),
// runtime/symtabinl.go (inlinedCall).
//
// Files are taken as hostile: each offset is checked when it is used, and what
// makes no sense is as good as missing. Nothing is kept but the sections.
package pclntab

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrNone is returned for a file that has no table, or one of another version.
var ErrNone = errors.New("no table of Go functions that can be read")

// Limits, whatever a file claims.
const (
	maxSection  = 1 << 29
	maxName     = 1 << 14
	maxSearch   = 1 << 28 // bytes that are looked through for the module data
	maxInlined  = 1 << 10 // calls inlined into each other
	maxDecoded  = 1 << 16 // through a list
	maxWork     = 1 << 30 // steps in all
	searchBlock = 1 << 20
)

// Magic numbers of the header.
const (
	magic118 = 0xfffffff0
	magic120 = 0xfffffff1
)

// Words of runtime.moduledata.
const (
	wordFuncNames = 1
	wordText      = 22
	wordGoFunc118 = 38
	wordGoFunc    = 40
)

// Table is the table of one program. It is not safe for use by several
// goroutines.
type Table struct {
	fuel     int64 // steps that may still be taken through the lists
	order    binary.ByteOrder
	v120     bool
	quantum  uint64
	ptr      int // size of a pointer
	text     uint64
	n        int // functions
	namesOff uint64

	names, cus, files, pcs, funcs []byte
	data                          []byte // what funcdata offsets count from; nil if not found
}

// Call is one of the calls that an address belongs to.
type Call struct {
	Name string
	File string
	Line uint32
}

// Read reads the table of the program f, which r has in size bytes.
func Read(f *elf.File, r io.ReaderAt, size uint64) (*Table, error) {
	sec := f.Section(".gopclntab")
	if sec == nil {
		sec = f.Section(".data.rel.ro.gopclntab") // position independent
	}
	if sec == nil {
		return nil, ErrNone
	}
	l := &loader{f: f, r: r, size: size}
	b, err := l.content(sec)
	if err != nil {
		return nil, err
	}
	t := &Table{fuel: maxWork}
	if err := t.header(b); err != nil {
		return nil, err
	}
	module := l.module(sec.Addr, t)
	if t.text == 0 {
		t.text = module.text
	}
	if t.text == 0 {
		if text := f.Section(".text"); text != nil {
			t.text = text.Addr
		}
	}
	if module.goFunc != 0 {
		t.data = l.from(module.goFunc)
	}
	return t, nil
}

// header reads the header and cuts the table into its parts.
func (t *Table) header(b []byte) error {
	if len(b) < 8 || b[4] != 0 || b[5] != 0 || b[6] == 0 || b[7] != 4 && b[7] != 8 {
		return ErrNone
	}
	for _, o := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if m := o.Uint32(b); m == magic118 || m == magic120 {
			t.order, t.v120 = o, m == magic120
		}
	}
	if t.order == nil {
		return ErrNone
	}
	t.quantum, t.ptr = uint64(b[6]), int(b[7])
	word := func(n int) uint64 { return t.word(b, 8+n*t.ptr) }
	if len(b) < 8+8*t.ptr {
		return fmt.Errorf("header: %w", io.ErrUnexpectedEOF)
	}
	count := word(0)
	t.text = word(2) // 0 since Go 1.26
	parts := [5]uint64{word(3), word(4), word(5), word(6), word(7)}
	for i, off := range parts {
		if off > uint64(len(b)) {
			return fmt.Errorf("part %d at %#x of %d bytes: %w", i, off, len(b), io.ErrUnexpectedEOF)
		}
	}
	t.namesOff = parts[0]
	t.names, t.cus, t.files, t.pcs, t.funcs = b[parts[0]:], b[parts[1]:], b[parts[2]:], b[parts[3]:], b[parts[4]:]
	if count >= uint64(len(t.funcs))/8 {
		return fmt.Errorf("%d functions: %w", count, io.ErrUnexpectedEOF)
	}
	t.n = int(count)
	return nil
}

// word is the number at an offset, which must be there.
func (t *Table) word(b []byte, off int) uint64 {
	if t.ptr == 4 {
		return uint64(t.order.Uint32(b[off:]))
	}
	return t.order.Uint64(b[off:])
}

// Len is the number of functions.
func (t *Table) Len() int { return t.n }

// Func is the i-th function, in the order of their addresses: its name, where it
// begins, and where the next one does.
func (t *Table) Func(i int) (name string, start, end uint64) {
	start, end = t.entry(i), t.entry(i+1)
	if fn, ok := t.function(i); ok {
		name = t.name(fn.nameOff)
	}
	return name, start, end
}

// entry is where the i-th function begins; there is one more than functions.
func (t *Table) entry(i int) uint64 { return t.text + uint64(t.order.Uint32(t.funcs[8*i:])) }

// find is the function that an address lies in, -1 if it is in none.
func (t *Table) find(pc uint64) int {
	if t.n == 0 || pc < t.entry(0) || pc >= t.entry(t.n) {
		return -1
	}
	lo, hi := 0, t.n
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		if t.entry(mid) <= pc {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// function is runtime._func.
type function struct {
	entry         uint64
	nameOff       uint32
	pcFile, pcLn  uint32
	cuOff         uint32
	inlineIndex   uint32 // offset into pcs, 0 for none
	inlineTree    uint32 // offset into data
	hasInlineTree bool
}

const (
	pcdataInlTreeIndex = 2
	funcdataInlTree    = 3
	noFuncdata         = math.MaxUint32
)

func (t *Table) function(i int) (function, bool) {
	off := uint64(t.order.Uint32(t.funcs[8*i+4:]))
	head := uint64(40)
	if t.v120 {
		head = 44 // with startLine
	}
	if off+head > uint64(len(t.funcs)) {
		return function{}, false
	}
	b := t.funcs[off:]
	u32 := func(n uint64) uint32 { return t.order.Uint32(b[4*n:]) }
	f := function{entry: t.entry(i), nameOff: u32(1), pcFile: u32(5), pcLn: u32(6), cuOff: u32(8)}
	pcdata, funcdata := uint64(u32(7)), uint64(b[head-1])
	first := head / 4
	if (first+pcdata+funcdata)*4 > uint64(len(b)) {
		return f, true
	}
	if pcdata > pcdataInlTreeIndex && funcdata > funcdataInlTree {
		f.inlineIndex = u32(first + pcdataInlTreeIndex)
		f.inlineTree = u32(first + pcdata + funcdataInlTree)
		f.hasInlineTree = f.inlineTree != noFuncdata && f.inlineIndex != 0
	}
	return f, true
}

func (t *Table) name(off uint32) string { return text(t.names, off) }

// text is what b has at an offset, up to a NUL byte.
func text(b []byte, off uint32) string {
	if uint64(off) >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	for i := range min(len(b), maxName) {
		if b[i] == 0 {
			return string(b[:i])
		}
	}
	return ""
}

// value looks up the value for an address in one of the tables of a function,
// which are lists of differences.
func (t *Table) value(f *function, off uint32, pc uint64) (int32, bool) {
	if off == 0 || uint64(off) >= uint64(len(t.pcs)) {
		return -1, false
	}
	b := t.pcs[off:]
	at, value := f.entry, int32(-1)
	for i := range min(maxDecoded, t.fuel) {
		t.fuel--
		delta, n := uvarint(b)
		if n == 0 || delta == 0 && i > 0 {
			return -1, false
		}
		b = b[n:]
		value += int32(delta>>1) ^ -int32(delta&1)
		step, n := uvarint(b)
		if n == 0 {
			return -1, false
		}
		b = b[n:]
		if at += uint64(step) * t.quantum; pc < at {
			return value, true
		}
	}
	return -1, false
}

func uvarint(b []byte) (v uint32, n int) {
	for shift := uint(0); n < len(b) && shift < 35; shift += 7 {
		c := b[n]
		n++
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v, n
		}
	}
	return 0, 0
}

// place is the source line of an address.
func (t *Table) place(f *function, pc uint64) (file string, line uint32) {
	number, ok := t.value(f, f.pcFile, pc)
	if ok {
		if off := (uint64(f.cuOff) + uint64(uint32(number))) * 4; number >= 0 && off+4 <= uint64(len(t.cus)) {
			file = text(t.files, t.order.Uint32(t.cus[off:]))
		}
	}
	if n, ok := t.value(f, f.pcLn, pc); ok && n > 0 {
		line = uint32(n)
	}
	return file, line
}

// Calls appends the calls that an address belongs to: leaf first, each but the
// last inlined into the next one. It appends nothing if it is in no function.
func (t *Table) Calls(dst []Call, pc uint64) []Call {
	i := t.find(pc)
	if i < 0 {
		return dst
	}
	f, ok := t.function(i)
	if !ok {
		return dst
	}
	for range maxInlined {
		c := Call{}
		c.File, c.Line = t.place(&f, pc)
		name, parent, ok := t.inlined(&f, pc)
		if !ok {
			break
		}
		c.Name = name
		dst = append(dst, c)
		pc = parent
	}
	c := Call{Name: t.name(f.nameOff)}
	c.File, c.Line = t.place(&f, pc)
	return append(dst, c)
}

// inlined is the call that is inlined at an address, and an address of the line
// where it is called.
func (t *Table) inlined(f *function, pc uint64) (name string, parent uint64, ok bool) {
	if !f.hasInlineTree || t.data == nil {
		return "", 0, false
	}
	index, ok := t.value(f, f.inlineIndex, pc)
	if !ok || index < 0 {
		return "", 0, false
	}
	size, nameAt, parentAt := uint64(16), 4, 8
	if !t.v120 {
		size, nameAt, parentAt = 20, 12, 16
	}
	off := uint64(f.inlineTree) + uint64(index)*size
	if off+size > uint64(len(t.data)) {
		return "", 0, false
	}
	b := t.data[off:]
	name = t.name(t.order.Uint32(b[nameAt:]))
	return name, f.entry + uint64(t.order.Uint32(b[parentAt:])), name != ""
}
