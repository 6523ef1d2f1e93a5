// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// OpenFunc opens a binary and says how long it is.
type OpenFunc func() (f File, size int64, err error)

// Binary is the call frame information of one file. It is read when an address
// in it is met first. It is not safe for use by several goroutines.
type Binary struct {
	open   OpenFunc
	arch   Arch
	loaded bool
	err    error // why there is no CFI

	segs []segment // of the file that could be read
	table

	eh, debug section
	hdr       hdrTable
	ehIndex   *[]fdeRef // of .eh_frame without a table
	dbgIndex  *[]fdeRef
	fdes      map[uint64]uint32 // span of an FDE, by offset and kind of section
	prog      program

	plts    []pltRange
	code    []byte // the executable segment, if rules had to be guessed
	codeAt  uint64
	hasCode bool
	guesses map[uint64]uint32
}

// pltRange is a section of stubs.
type pltRange struct {
	start, end uint64
	lazy       bool // .plt, whose stubs push
}

// fdeRef is where the FDE of an address range is.
type fdeRef struct {
	start, end uint64
	off        uint64
}

// NewBinary makes the Binary of a file. open is called when the file is needed,
// at most three times.
func NewBinary(arch Arch, open OpenFunc) *Binary {
	return &Binary{arch: arch, open: open}
}

// Err is why there is no CFI: the error of OpenFunc, ErrNotELF, ErrNoCFI, or
// what is wrong in the file. It is nil before the first address was looked up.
func (b *Binary) Err() error { return b.err }

// load reads the sections, once.
func (b *Binary) load() {
	if b.loaded {
		return
	}
	b.loaded = true
	b.err = b.with(b.loadFrom)
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
	b.segs = im.segs
	for _, name := range []string{".plt", ".plt.sec", ".plt.got", ".iplt"} {
		if s := im.section(name); s != nil && s.addr+s.size > s.addr {
			b.plts = append(b.plts, pltRange{s.addr, s.addr + s.size, name == ".plt"})
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
		addr = s.addr
		hdr, err = im.content(s)
	} else if im.ehHdr != 0 && im.ehSize <= maxSection {
		hdr, err = im.mapped(im.ehHdr, im.ehSize)
	}
	frame := b.hdr.read(hdr, addr)
	if s := im.section(".eh_frame"); s != nil {
		b.eh.addr = s.addr
		var e error
		b.eh.data, e = im.content(s)
		err = errors.Join(err, e)
	} else if frame != 0 {
		b.eh.addr = frame
		b.eh.data, err = im.mapped(frame, maxSection)
	}
	return err
}

// address is what an offset in the file is as an address of the file.
func (b *Binary) address(off uint64) (uint64, bool) {
	b.load()
	return addressIn(b.segs, off)
}

// Kinds of section in the keys of Binary.fdes.
const debugKey = 1 << 63

// ruleAt finds the rule for an address of the file by its CFI.
func (b *Binary) ruleAt(addr uint64) (uint32, bool) {
	b.load()
	if off, ok := b.hdr.find(addr); ok {
		if r, ok := b.ruleOf(&b.eh, off-b.eh.addr, addr); ok {
			return r, true
		}
	} else if !b.hdr.ok && len(b.eh.data) > 0 {
		if b.ehIndex == nil {
			b.ehIndex = b.index(&b.eh)
		}
		if r, ok := b.ruleIn(&b.eh, *b.ehIndex, addr); ok {
			return r, true
		}
	}
	if len(b.debug.data) == 0 {
		return 0, false
	}
	if b.dbgIndex == nil {
		b.dbgIndex = b.index(&b.debug)
	}
	return b.ruleIn(&b.debug, *b.dbgIndex, addr)
}

func (b *Binary) ruleIn(s *section, index []fdeRef, addr uint64) (uint32, bool) {
	i := sort.Search(len(index), func(i int) bool { return index[i].start > addr })
	if i == 0 || addr >= index[i-1].end {
		return 0, false
	}
	return b.ruleOf(s, index[i-1].off, addr)
}

// maxFDEs bounds the functions that are remembered.
const maxFDEs = 1 << 22

// ruleOf finds the rule for an address in the function whose FDE is at an
// offset of the section.
func (b *Binary) ruleOf(s *section, off, addr uint64) (uint32, bool) {
	key := off
	if s.debug {
		key |= debugKey
	}
	n, ok := b.fdes[key]
	if !ok {
		f, ok, err := s.readFDE(off, &b.table, b.arch)
		if err != nil || !ok || addr < f.start || addr >= f.end || len(b.fdes) >= maxFDEs {
			return 0, false
		}
		b.prog.addr, b.prog.arch = s.addr, b.arch
		b.spans = append(b.spans, f.expand(&b.table, &b.prog))
		n = uint32(len(b.spans) - 1)
		if b.fdes == nil {
			b.fdes = make(map[uint64]uint32)
		}
		b.fdes[key] = n
	}
	return b.table.at(&b.spans[n], addr)
}

// index lists the functions of a section by address. Entries that cannot be
// read are left out; so is what is behind one whose length makes no sense.
func (b *Binary) index(s *section) *[]fdeRef {
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
	slices.SortStableFunc(list, func(x, y fdeRef) int {
		switch {
		case x.start < y.start:
			return -1
		case x.start > y.start:
			return 1
		}
		return 0
	})
	list = slices.CompactFunc(list, func(x, y fdeRef) bool { return x.start == y.start })
	return &list
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
// .eh_frame, 0 if it cannot be told.
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

// find gives the address of the FDE of the last function that begins at or
// before addr.
func (h *hdrTable) find(addr uint64) (uint64, bool) {
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
		return 0, false
	}
	return h.value(8*(lo-1) + 4), true
}

func (h *hdrTable) value(at int) uint64 {
	p := h.pairs[at : at+4]
	return h.addr + uint64(int64(int32(uint32(p[0])|uint32(p[1])<<8|uint32(p[2])<<16|uint32(p[3])<<24)))
}

// codeBytes gives up to n bytes of code at an address, fewer or none at the
// end of what can be read.
func (b *Binary) codeBytes(addr uint64, n int) []byte {
	if !b.hasCode {
		b.hasCode = true
		b.code, b.codeAt = nil, 0
		_ = b.with(func(im *image) (err error) { // without it nothing can be guessed
			for _, s := range im.segs {
				if s.exec && s.size <= maxCode {
					b.codeAt = s.addr
					b.code, err = im.bytes(s.off, s.size)
					return err
				}
			}
			return io.EOF
		})
	}
	if addr-b.codeAt >= uint64(len(b.code)) {
		return nil
	}
	code := b.code[addr-b.codeAt:]
	return code[:min(n, len(code))]
}
