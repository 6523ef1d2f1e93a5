// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

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
	maxHeaders      = 1 << 16
	maxNames        = 1 << 20
	maxSection      = 1 << 27
	maxSections     = 1 << 30 // of all files together
	maxCode         = 1 << 24
	maxCompressed   = 1 << 27
	sizeOfSection64 = 64
	sizeOfProg64    = 56
)

// segment is a part of the file that is mapped.
type segment struct {
	off, addr, size uint64
	exec            bool
}

// sectionHeader is what counts of a section header.
type sectionHeader struct {
	name            uint32
	typ             elf.SectionType
	flags           elf.SectionFlag
	addr, off, size uint64
	called          string
}

// image is an ELF file as far as unwinding needs it.
type image struct {
	r        io.ReaderAt
	size     uint64
	arch     perf.Arch
	segs     []segment
	ehHdr    uint64 // address of .eh_frame_hdr by PT_GNU_EH_FRAME, 0 if none
	ehSize   uint64
	sections []sectionHeader
	left     uint64 // bytes of sections that may be read
}

// readImage reads the headers of an ELF file.
func readImage(r io.ReaderAt, size int64) (*image, error) {
	im := &image{r: r, size: uint64(max(size, 0))}
	h, err := im.bytes(0, 64)
	if err != nil || !bytes.HasPrefix(h, []byte(elf.ELFMAG)) ||
		elf.Class(h[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(h[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, ErrNotELF
	}
	le := binary.LittleEndian
	switch elf.Machine(le.Uint16(h[18:])) {
	case elf.EM_X86_64:
		im.arch = perf.AMD64
	case elf.EM_AARCH64:
		im.arch = perf.ARM64
	default:
		return nil, fmt.Errorf("%w of a known machine", ErrNotELF)
	}
	if err := im.readProgs(le.Uint64(h[32:]), le.Uint16(h[54:]), le.Uint16(h[56:])); err != nil {
		return nil, err
	}
	err = im.readSections(le.Uint64(h[40:]), le.Uint16(h[58:]), uint64(le.Uint16(h[60:])), uint64(le.Uint16(h[62:])))
	return im, err
}

// bytes reads a range of the file.
func (im *image) bytes(off, n uint64) ([]byte, error) {
	if n > im.size || off > im.size-n {
		return nil, fmt.Errorf("%#x bytes at offset %#x: %w", n, off, io.ErrUnexpectedEOF)
	}
	b := make([]byte, n)
	if _, err := im.r.ReadAt(b, int64(off)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b, nil
}

func (im *image) readProgs(off uint64, width, count uint16) error {
	if count == 0 {
		return nil
	}
	if width != sizeOfProg64 {
		return fmt.Errorf("program headers of %d bytes: %w", width, ErrNotELF)
	}
	b, err := im.bytes(off, uint64(width)*uint64(count))
	if err != nil {
		return fmt.Errorf("program headers: %w", err)
	}
	le := binary.LittleEndian
	for ; len(b) > 0; b = b[sizeOfProg64:] {
		flags := elf.ProgFlag(le.Uint32(b[4:]))
		s := segment{off: le.Uint64(b[8:]), addr: le.Uint64(b[16:]), size: le.Uint64(b[32:]), exec: flags&elf.PF_X != 0}
		switch elf.ProgType(le.Uint32(b)) {
		case elf.PT_LOAD:
			im.segs = append(im.segs, s)
		case elf.PT_GNU_EH_FRAME:
			im.ehHdr, im.ehSize = s.addr, s.size
		}
	}
	return nil
}

func (im *image) readSections(off uint64, width uint16, count, names uint64) error {
	if off == 0 {
		return nil
	}
	if width != sizeOfSection64 {
		return fmt.Errorf("section headers of %d bytes: %w", width, ErrNotELF)
	}
	if count == 0 { // it did not fit, and is in the first header
		b, err := im.bytes(off, sizeOfSection64)
		if err != nil {
			return fmt.Errorf("section headers: %w", err)
		}
		first := decodeSection(b)
		count = first.size
		if names == uint64(elf.SHN_XINDEX) {
			names = uint64(binary.LittleEndian.Uint32(b[40:]))
		}
	}
	if count > maxHeaders || names >= count {
		return fmt.Errorf("%d section headers, names in number %d: %w", count, names, ErrNotELF)
	}
	b, err := im.bytes(off, count*sizeOfSection64)
	if err != nil {
		return fmt.Errorf("section headers: %w", err)
	}
	for ; len(b) > 0; b = b[sizeOfSection64:] {
		im.sections = append(im.sections, decodeSection(b))
	}
	return im.nameSections(&im.sections[names])
}

func decodeSection(b []byte) sectionHeader {
	le := binary.LittleEndian
	return sectionHeader{
		name: le.Uint32(b), typ: elf.SectionType(le.Uint32(b[4:])), flags: elf.SectionFlag(le.Uint64(b[8:])),
		addr: le.Uint64(b[16:]), off: le.Uint64(b[24:]), size: le.Uint64(b[32:]),
	}
}

func (im *image) nameSections(in *sectionHeader) error {
	text, err := im.bytes(in.off, min(in.size, maxNames))
	if err != nil {
		return fmt.Errorf("names of sections: %w", err)
	}
	for i := range im.sections {
		s := &im.sections[i]
		if uint64(s.name) >= uint64(len(text)) {
			continue
		}
		name := text[s.name:]
		name = name[:min(len(name), 32)]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			s.called = string(name[:end])
		}
	}
	return nil
}

// section is the header of the section with that name and content, nil if
// there is none.
func (im *image) section(name string) *sectionHeader {
	for i := range im.sections {
		if s := &im.sections[i]; s.called == name && s.typ != elf.SHT_NOBITS && s.size > 0 {
			return s
		}
	}
	return nil
}

// content reads a section, unpacked.
func (im *image) content(s *sectionHeader) ([]byte, error) {
	b, err := im.limited(s.off, s.size)
	if err == nil && s.flags&elf.SHF_COMPRESSED != 0 {
		if b, err = inflate(b); uint64(len(b)) > im.left {
			b, err = nil, errTooLarge
		}
		im.left -= uint64(len(b))
	}
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.called, err)
	}
	return b, nil
}

// limited reads a section, as long as it is not too much.
func (im *image) limited(off, n uint64) ([]byte, error) {
	if n > maxSection || n > im.left {
		return nil, errTooLarge
	}
	b, err := im.bytes(off, n)
	im.left -= uint64(len(b))
	return b, err
}

// inflate unpacks a section that begins with an Elf64_Chdr. What it says of
// the size is only believed as an upper bound.
func inflate(b []byte) ([]byte, error) {
	const chdr = 24
	if len(b) < chdr {
		return nil, io.ErrUnexpectedEOF
	}
	size := binary.LittleEndian.Uint64(b[8:])
	if size > maxCompressed {
		return nil, fmt.Errorf("%d bytes unpacked, at most %d are read", size, maxCompressed)
	}
	packed := bytes.NewReader(b[chdr:])
	var r io.Reader
	switch typ := elf.CompressionType(binary.LittleEndian.Uint32(b)); typ {
	case elf.COMPRESS_ZLIB:
		z, err := zlib.NewReader(packed)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		defer z.Close()
		r = z
	case elf.COMPRESS_ZSTD:
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxCompressed))
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		defer z.Close()
		r = z
	default:
		return nil, fmt.Errorf("unpack: unknown compression %d", typ)
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && uint64(len(out)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return out, nil
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
