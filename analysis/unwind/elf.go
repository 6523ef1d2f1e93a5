// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/perf"
)

// File is an open binary.
type File interface {
	io.ReaderAt
	io.Closer
}

// Errors of binaries that cannot be used.
var (
	ErrNotELF = errors.New("not a 64-bit little-endian ELF file")
	ErrNoCFI  = errors.New("no call frame information")

	errTooLarge = errors.New("too much call frame information: it is not read")
)

// Limits of what is read of one file.
const (
	maxSection  = 1 << 27
	maxSections = 1 << 30 // of all files together
	maxCode     = 1 << 24
)

// segment is a part of the file that is mapped.
type segment struct {
	off, addr, size uint64
	exec            bool
}

// image is an ELF file as far as unwinding needs it.
type image struct {
	*elffile.Headers
	arch     perf.Arch
	segs     []segment
	ehHdr    uint64 // address of .eh_frame_hdr by PT_GNU_EH_FRAME, 0 if none
	ehSize   uint64
	sections []elffile.Section
	left     uint64 // bytes of sections that may be read
}

// readImage reads the headers of an ELF file.
func readImage(r io.ReaderAt, size int64) (*image, error) {
	h, err := elffile.ReadHeaders(r, size)
	if err != nil || h.Class != elf.ELFCLASS64 || h.Order != binary.LittleEndian {
		return nil, ErrNotELF
	}
	im := &image{Headers: h}
	switch h.Machine {
	case elf.EM_X86_64:
		im.arch = perf.AMD64
	case elf.EM_AARCH64:
		im.arch = perf.ARM64
	default:
		return nil, fmt.Errorf("%w of a known machine", ErrNotELF)
	}
	progs, err := h.Progs()
	if err != nil {
		return nil, err
	}
	for i := range progs {
		switch p := &progs[i]; p.Type {
		case elf.PT_LOAD:
			im.segs = append(im.segs, segment{p.Off, p.Addr, p.FileSize, p.Flags&elf.PF_X != 0})
		case elf.PT_GNU_EH_FRAME:
			im.ehHdr, im.ehSize = p.Addr, p.FileSize
		}
	}
	im.sections, err = h.NamedSections()
	return im, err
}

// section is the header of the section with that name and content, nil if
// there is none.
func (im *image) section(name string) *elffile.Section {
	for i := range im.sections {
		if s := &im.sections[i]; s.Name == name && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return s
		}
	}
	return nil
}

// content reads a section, uncompressed.
func (im *image) content(s *elffile.Section) ([]byte, error) {
	b, err := im.limited(s.Off, s.Size)
	if err == nil && s.Flags&elf.SHF_COMPRESSED != 0 {
		b, err = im.uncompress(b)
	}
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.Name, err)
	}
	return b, nil
}

func (im *image) uncompress(b []byte) ([]byte, error) {
	typ, size, rest, err := elffile.CompressionHeader(im.Class, im.Order, b)
	if err != nil {
		return nil, err
	}
	if size > maxSection || size > im.left {
		return nil, errTooLarge
	}
	im.left -= size
	return elffile.Uncompress(typ, rest, size)
}

// limited reads a section, as long as it is not too much.
func (im *image) limited(off, n uint64) ([]byte, error) {
	if n > maxSection || n > im.left {
		return nil, errTooLarge
	}
	b, err := im.Read(off, n)
	im.left -= uint64(len(b))
	return b, err
}

// addressIn translates an offset in a file with these segments. Mappings end
// at a page, so that it may lie behind what a segment has of the file.
func addressIn(segs []segment, off uint64) (uint64, bool) {
	const page = 4096
	best := none
	for i := range segs {
		s := &segs[i]
		if off < s.off || off-s.off >= (s.size+page-1)&^(page-1) {
			continue
		}
		if best == none || s.exec && (!segs[best].exec || off-s.off < s.size) {
			best = i
		}
	}
	if best == none {
		return off, len(segs) == 0
	}
	return off - segs[best].off + segs[best].addr, true
}

// mapped reads what is at an address, up to n bytes of its segment.
func (im *image) mapped(addr, n uint64) ([]byte, error) {
	for i := range im.segs {
		if s := &im.segs[i]; addr-s.addr < s.size {
			return im.limited(s.off+(addr-s.addr), min(n, s.size-(addr-s.addr)))
		}
	}
	return nil, fmt.Errorf("nothing at address %#x: %w", addr, io.ErrUnexpectedEOF)
}
