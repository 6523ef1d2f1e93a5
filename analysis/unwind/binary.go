// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/perf"
)

// OpenFunc opens a binary and says how long it is.
type OpenFunc func() (f File, size int64, err error)

// Binary is the call frame information of one file. It is read when an address
// in it is met first. It is not safe for use by several goroutines.
type Binary struct {
	open   OpenFunc
	arch   perf.Arch
	id     uint16 // in the slots of its Unwinder, 0 for none
	left   uint64 // bytes of sections that it may read, or were left after it
	slot   slot   // of the address that was asked for last, if it has no id
	loaded bool   // the segments and the CFI are known
	err    error  // why there is no CFI

	separate DebugFunc // nil: there is none, or it was asked

	segs []segment // of the file that could be read
	table

	eh, debug functions
	hdr       hdrTable
	prog      program

	plts    []pltRange
	fp      uint32            // the rule of the frame pointer, plus one
	code    map[uint64][]byte // pages of it, where rules had to be guessed
	page    []byte            // the one that was used last
	pageNum uint64
}

// pltRange is a section of stubs.
type pltRange struct {
	start, end uint64
	lazy       bool // .plt, whose stubs push
}

// functions are those of a section of CFI.
type functions struct {
	section
	// index is made for a section that has no table.
	index   []fdeRef
	indexed bool
	// met has, for each entry of the table or the index, its span plus one.
	met []uint32
}

// fdeRef is where the FDE of an address range is.
type fdeRef struct {
	start, end uint64
	off        uint64
}

// NewBinary makes the Binary of a file. open is called when the file is needed,
// which may be often where rules have to be guessed from its code.
func NewBinary(arch perf.Arch, open OpenFunc) *Binary {
	return &Binary{arch: arch, open: open, left: maxSections}
}

// Err is why there is no CFI: the error of OpenFunc, ErrNotELF, ErrNoCFI, or
// what is wrong in the file. It is nil before the first address was looked up.
func (b *Binary) Err() error { return b.err }

// load reads the sections, once.
func (b *Binary) load() {
	if !b.loaded {
		b.loaded = true
		b.err = b.with(b.loadFrom)
	}
}

// with calls use with the open file.
func (b *Binary) with(use func(*image) error) error {
	if b.open == nil {
		return ErrNoCFI
	}
	f, size, err := b.open()
	if err != nil {
		return err
	}
	defer f.Close()
	im, err := readImage(f, size)
	if err != nil {
		return err
	}
	if im.arch != b.arch {
		return fmt.Errorf("%w: it is for another machine", ErrNotELF)
	}
	return use(im)
}

func (b *Binary) loadFrom(im *image) error {
	b.segs, b.plts, im.left = im.segs, nil, b.left
	defer func() { b.left = im.left }()
	for _, name := range []string{".plt", ".plt.sec", ".plt.got", ".iplt"} {
		if s := im.section(name); s != nil && s.Addr+s.Size > s.Addr {
			b.plts = append(b.plts, pltRange{s.Addr, s.Addr + s.Size, name == ".plt"})
		}
	}
	err := b.loadEH(im)
	if s := im.section(".debug_frame"); s != nil {
		var e error
		b.debug.data, e = im.content(s)
		b.debug.debug = true
		err = errors.Join(err, e)
	}
	if len(b.eh.data)+len(b.debug.data) == 0 && err == nil {
		err = ErrNoCFI
	}
	return err
}

// loadEH reads .eh_frame and its table, by the names of their sections or, in
// a file without those, by the program header of the table.
func (b *Binary) loadEH(im *image) error {
	hdr, addr := []byte(nil), im.ehHdr
	var err error
	if s := im.section(".eh_frame_hdr"); s != nil {
		addr = s.Addr
		hdr, err = im.content(s)
	} else if im.ehHdr != 0 && im.ehSize <= maxSection {
		hdr, err = im.mapped(im.ehHdr, im.ehSize)
	}
	frame := b.hdr.read(hdr, addr)
	if s := im.section(".eh_frame"); s != nil {
		b.eh.addr = s.Addr
		var e error
		b.eh.data, e = im.content(s)
		err = errors.Join(err, e)
	} else if frame != 0 {
		b.eh.addr = frame
		b.eh.data, err = im.mapped(frame, maxSection)
	}
	return err
}

// ruleAt finds the rule for an address of the file by its CFI.
func (b *Binary) ruleAt(addr uint64) (uint32, bool) {
	if b.hdr.ok {
		if b.eh.met == nil {
			b.eh.met = make([]uint32, len(b.hdr.pairs)/8)
		}
		if n, off := b.hdr.find(addr); n >= 0 {
			if r, ok := b.ruleOf(&b.eh, n, off-b.eh.addr, addr); ok {
				return r, true
			}
		}
	} else if r, ok := b.ruleIn(&b.eh, addr); ok {
		return r, true
	}
	if r, ok := b.ruleIn(&b.debug, addr); ok {
		return r, true
	}
	if b.readSeparate() {
		return b.ruleIn(&b.debug, addr)
	}
	return 0, false
}

// ruleIn finds the rule for an address in a section without a table.
func (b *Binary) ruleIn(f *functions, addr uint64) (uint32, bool) {
	if !f.indexed {
		f.indexed = true
		f.index = b.index(&f.section)
		f.met = make([]uint32, len(f.index))
	}
	i := sort.Search(len(f.index), func(i int) bool { return f.index[i].start > addr })
	if i == 0 || addr >= f.index[i-1].end {
		return 0, false
	}
	return b.ruleOf(f, i-1, f.index[i-1].off, addr)
}

// ruleOf finds the rule for an address in function n, whose FDE is at an
// offset of the section.
func (b *Binary) ruleOf(f *functions, n int, off, addr uint64) (uint32, bool) {
	if f.met[n] == 0 {
		b.prog.arch = b.arch
		var sp span
		if e, ok, err := f.readFDE(off, &b.table, b.arch); err == nil && ok {
			sp = e.expand(&b.table, &b.prog)
		}
		b.spans = append(b.spans, sp)
		f.met[n] = uint32(len(b.spans))
	}
	return b.table.at(&b.spans[f.met[n]-1], addr)
}

// maxFDEs bounds the functions that are listed.
const maxFDEs = 1 << 22

// index lists the functions of a section by address. Entries that cannot be
// read are left out; so is what is behind one whose length makes no sense.
func (b *Binary) index(s *section) []fdeRef {
	var list []fdeRef
	for off := uint64(0); len(list) < maxFDEs; {
		f, ok, err := s.readFDE(off, &b.table, b.arch)
		if ok && err == nil && f.end > f.start {
			list = append(list, fdeRef{f.start, f.end, off})
		}
		if f.next <= off {
			break
		}
		off = f.next
	}
	slices.SortStableFunc(list, func(x, y fdeRef) int { return cmp.Compare(x.start, y.start) })
	return slices.CompactFunc(list, func(x, y fdeRef) bool { return x.start == y.start })
}

// hdrTable is the search table of .eh_frame_hdr.
type hdrTable struct {
	ok    bool
	addr  uint64 // of the section
	pairs []byte // of two int32 each: function, FDE, relative to addr
}

// Encoding of the table that every linker writes, and the only one that can be
// searched as it is.
const hdrEncoding = peDataRel | peS4

// read reads the section, which is mapped at addr. It gives the address of
// .eh_frame, 0 if it is not known.
func (h *hdrTable) read(b []byte, addr uint64) (frame uint64) {
	c := cursor{b: b}
	version, ptrEnc, countEnc, tableEnc := c.u8(), c.u8(), c.u8(), c.u8()
	if version != 1 || c.bad || ptrEnc == peOmit {
		return 0
	}
	frame = c.pointer(ptrEnc, addr, addr)
	if c.bad {
		return 0
	}
	if countEnc == peOmit || tableEnc != hdrEncoding {
		return frame
	}
	count := c.pointer(countEnc, addr, addr)
	if c.bad || count == 0 || count > uint64(c.left())/8 {
		return frame
	}
	h.ok, h.addr, h.pairs = true, addr, c.take(int(count)*8)
	return frame
}

// find gives the number of the last function that begins at or before addr, and
// the address of its FDE; a negative number if there is none.
func (h *hdrTable) find(addr uint64) (n int, fde uint64) {
	lo, hi := 0, len(h.pairs)/8
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if h.value(8*mid) <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return none, 0
	}
	return lo - 1, h.value(8*(lo-1) + 4)
}

func (h *hdrTable) value(at int) uint64 {
	p := h.pairs[at : at+4]
	return h.addr + uint64(int64(int32(uint32(p[0])|uint32(p[1])<<8|uint32(p[2])<<16|uint32(p[3])<<24)))
}

// codePage is how much code is read at once.
const codePage = 1 << 18

// codeBytes gives up to n bytes of code at an address, fewer or none at the
// end of what can be read.
func (b *Binary) codeBytes(addr uint64, n int) []byte {
	if num := addr / codePage; num != b.pageNum || b.page == nil {
		code, ok := b.code[num]
		if !ok {
			if code = b.readCode(num * codePage); code == nil {
				code = []byte{}
			}
			if b.code == nil {
				b.code = make(map[uint64][]byte)
			}
			b.code[num] = code
		}
		b.page, b.pageNum = code, num
	}
	code := b.page
	off := addr % codePage
	if off >= uint64(len(code)) {
		return nil
	}
	return code[off:min(off+uint64(n), uint64(len(code)))]
}

// readCode reads a page of code and a little more, for what lies across its
// end. Without it nothing can be guessed, which is no error.
func (b *Binary) readCode(addr uint64) []byte {
	if b.open == nil || len(b.code) >= maxCode/codePage {
		return nil
	}
	for _, s := range b.segs {
		const more = 16
		if !s.exec || addr+codePage+more <= s.addr || addr >= s.addr+s.size {
			continue
		}
		skip := uint64(0) // of the page, before the segment
		if addr < s.addr {
			skip = s.addr - addr
		}
		want := min(codePage+more-skip, s.addr+s.size-addr-skip)
		f, size, err := b.open()
		if err != nil {
			return nil
		}
		defer f.Close()
		code, err := elffile.Read(f, size, s.off+(addr+skip-s.addr), want)
		if err != nil {
			return nil
		}
		return append(make([]byte, skip, skip+want), code...)
	}
	return nil
}
