// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// section is a section of CFI.
type section struct {
	data  []byte
	addr  uint64 // where it is mapped, for pointers relative to themselves
	debug bool   // .debug_frame, whose entries differ from .eh_frame's a little

	cies map[uint64]*cie // by offset; nil for one that cannot be read
}

// cie is a common information entry: what functions share.
type cie struct {
	codeAlign uint64
	dataAlign int64
	ra        uint8
	enc       uint8 // of the addresses in FDEs
	augmented bool  // FDEs have augmentation data
	signal    bool
	initial   state // after its instructions
	err       error
}

// fde is a frame description entry: a function.
type fde struct {
	start, end uint64 // addresses of the file
	cie        *cie
	code       uint64 // where the instructions are in the address space
	insns      []byte
	next       uint64 // offset of the entry behind it
}

// entryHead is the head of a CIE or FDE.
type entryHead struct {
	body cursor // from behind the id; at counts from the start of the section
	id   uint64
	idAt uint64 // offset of the id
	next uint64 // offset of the entry behind it
	wide bool   // 64-bit DWARF
}

// head reads the head of the entry at an offset. ok is false at the end.
func (s *section) head(off uint64) (h entryHead, ok bool, err error) {
	if off >= uint64(len(s.data)) {
		return h, false, nil
	}
	c := cursor{b: s.data, at: int(off)}
	length := uint64(c.u32())
	if length == 0 && !c.bad {
		return h, false, nil // the end mark
	}
	if length == 0xffffffff {
		length, h.wide = c.u64(), true
	}
	if c.bad || length > uint64(c.left()) {
		return h, false, fmt.Errorf("entry at offset %#x has %#x bytes: %w", off, length, errCFI)
	}
	h.idAt, h.next = uint64(c.at), uint64(c.at)+length
	c.b = s.data[:h.next]
	if h.wide && s.debug {
		h.id = c.u64()
	} else {
		h.id = uint64(c.u32())
	}
	h.body = c
	return h, true, c.err("entry")
}

// isCIE reports whether the id is that of a CIE.
func (s *section) isCIE(h *entryHead) bool {
	switch {
	case !s.debug:
		return h.id == 0
	case h.wide:
		return h.id == 1<<64-1
	}
	return h.id == 1<<32-1
}

// cieOf finds the CIE of an FDE, and reads it if it was not met before.
func (s *section) cieOf(h *entryHead, t *table, arch perf.Arch) (*cie, error) {
	off := h.id
	if !s.debug {
		off = h.idAt - h.id
	}
	if c, ok := s.cies[off]; ok {
		return c, c.err
	}
	if len(s.cies) >= maxCIEs {
		return nil, fmt.Errorf("more than %d CIEs: %w", maxCIEs, errCFI)
	}
	c := new(cie)
	if c.err = s.readCIE(c, off, t, arch); c.err != nil {
		c.err = fmt.Errorf("CIE at offset %#x: %w", off, c.err)
	}
	if s.cies == nil {
		s.cies = make(map[uint64]*cie)
	}
	s.cies[off] = c
	return c, c.err
}

// maxCIEs bounds what is remembered of them; a program has one per object
// file at most.
const maxCIEs = 1 << 16

func (s *section) readCIE(c *cie, off uint64, t *table, arch perf.Arch) error {
	h, ok, err := s.head(off)
	if err != nil || !ok || !s.isCIE(&h) {
		return errCFI
	}
	b := h.body
	version := b.u8()
	augmentation := b.text()
	switch version {
	case 1, 3:
	case 4:
		if addrSize, segSize := b.u8(), b.u8(); addrSize != 8 || segSize != 0 {
			return errCFI
		}
	default:
		return errCFI
	}
	if augmentation == "eh" {
		b.u64()
		augmentation = ""
	}
	c.codeAlign, c.dataAlign = b.uleb(), b.sleb()
	ra := uint64(b.u8())
	if version != 1 {
		b.at--
		ra = b.uleb()
	}
	if b.bad || ra >= numRegs {
		return errCFI
	}
	c.ra, c.enc = uint8(ra), peAbs
	if err := s.augment(c, augmentation, &b); err != nil {
		return err
	}
	p := program{t: t, arch: arch, cie: c}
	if err := p.run(b.b[b.at:]); err != nil {
		return err
	}
	c.initial = p.state
	return nil
}

// augment reads what the augmentation string announces.
func (s *section) augment(c *cie, augmentation string, b *cursor) error {
	if augmentation == "" {
		return b.err("CIE")
	}
	letters, ok := strings.CutPrefix(augmentation, "z")
	if !ok {
		return errCFI // of unknown length
	}
	c.augmented = true
	size := b.uleb()
	if b.bad || size > uint64(b.left()) {
		return errCFI
	}
	end := b.at + int(size)
	for _, l := range letters {
		switch l {
		case 'R':
			c.enc = b.u8()
		case 'P':
			b.value(b.u8() & peFormat)
		case 'L':
			b.u8()
		case 'S':
			c.signal = true
		case 'B', 'G': // arm64: the other key, memory tags
		default: // nobody knows what it and those behind it have
			b.at = end
			return nil
		}
		if b.bad || b.at > end {
			return errCFI
		}
	}
	b.at = end
	return nil
}

// readFDE reads the entry at an offset. It is not ok for a CIE, and at the end.
func (s *section) readFDE(off uint64, t *table, arch perf.Arch) (f fde, ok bool, err error) {
	h, ok, err := s.head(off)
	if err != nil || !ok {
		return f, false, err
	}
	f.next = h.next
	if s.isCIE(&h) {
		return f, false, nil
	}
	if f.cie, err = s.cieOf(&h, t, arch); err != nil {
		return f, false, err
	}
	b := h.body
	f.start = b.pointer(f.cie.enc, s.addr, 0)
	size := b.value(f.cie.enc & peFormat)
	f.end = f.start + size
	if f.end < f.start || b.bad {
		return f, false, errCFI
	}
	if f.cie.augmented {
		if n := b.uleb(); n <= uint64(b.left()) {
			b.at += int(n)
		} else {
			b.bad = true
		}
	}
	if b.bad {
		return f, false, errCFI
	}
	f.code, f.insns = s.addr+uint64(b.at), b.b[b.at:]
	return f, true, nil
}

// expand runs the program of a function and adds its rows to the table. What
// precedes an error in it counts.
func (f *fde) expand(t *table, p *program) span {
	sp := span{start: f.start, end: f.end, first: uint32(len(t.rows))}
	p.t, p.cie, p.fde = t, f.cie, f
	p.state, p.initial = f.cie.initial, &f.cie.initial
	p.remembered, p.off, p.rows, p.done = p.remembered[:0], 0, 0, false
	if p.run(f.insns) == nil && !p.done {
		_ = p.emit() // a rule that cannot be kept ends the rows like an error
	}
	sp.n = uint32(len(t.rows)) - sp.first
	return sp
}
