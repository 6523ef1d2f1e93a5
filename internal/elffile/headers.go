// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of what is read of one file, whatever its headers claim.
const (
	maxHeaders      = 1 << 16 // of sections; no more programs fit in e_phnum
	maxSectionNames = 1 << 24
	maxSectionName  = 64 // longer names are cut
)

// Headers is an ELF file of any class and byte order, read header by header:
// who wants a note or two does not pay for the whole section table, as with
// debug/elf. Field positions are those of elf.h.
type Headers struct {
	Class   elf.Class
	Order   binary.ByteOrder
	Type    elf.Type
	Machine elf.Machine

	r     io.ReaderAt
	size  int64
	bytes [64]byte
}

// Prog is what counts of a program header.
type Prog struct {
	Type              elf.ProgType
	Flags             elf.ProgFlag
	Off, Addr         uint64
	FileSize, MemSize uint64
	Align             uint64
}

// Section is what counts of a section header.
type Section struct {
	Name            string // set by NamedSections only
	Type            elf.SectionType
	Flags           elf.SectionFlag
	Addr, Off, Size uint64
	Align           uint64

	name, link uint32
}

// ReadHeaders reads the ELF header of the file in r, which has size bytes. The
// error is ErrNotELF, or io.ErrUnexpectedEOF for a file that ends within it.
func ReadHeaders(r io.ReaderAt, size int64) (*Headers, error) {
	h := &Headers{r: r, size: size}
	n, err := r.ReadAt(h.bytes[:min(max(size, 0), int64(len(h.bytes)))], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	b := h.bytes[:n]
	switch {
	case !strings.HasPrefix(string(b), elf.ELFMAG):
		return nil, ErrNotELF
	case n < elf.EI_NIDENT:
		return nil, fmt.Errorf("ELF header of %d bytes: %w", n, io.ErrUnexpectedEOF)
	}
	need := 52
	switch h.Class = elf.Class(b[elf.EI_CLASS]); h.Class {
	case elf.ELFCLASS32:
	case elf.ELFCLASS64:
		need = 64
	default:
		return nil, fmt.Errorf("%w: class %d", ErrNotELF, b[elf.EI_CLASS])
	}
	switch elf.Data(b[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		h.Order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		h.Order = binary.BigEndian
	default:
		return nil, fmt.Errorf("%w: byte order %d", ErrNotELF, b[elf.EI_DATA])
	}
	if n < need {
		return nil, fmt.Errorf("ELF header needs %d bytes, the file has %d: %w", need, n, io.ErrUnexpectedEOF)
	}
	h.Type, h.Machine = elf.Type(h.Order.Uint16(b[16:])), elf.Machine(h.Order.Uint16(b[18:]))
	return h, nil
}

// Read returns n bytes of the file at off, as the function Read does.
func (h *Headers) Read(off, n uint64) ([]byte, error) { return Read(h.r, h.size, off, n) }

// Read returns n bytes at off of the file in r, which has size bytes. The range
// is checked before any memory is taken: beyond the end, the error is
// io.ErrUnexpectedEOF.
func Read(r io.ReaderAt, size int64, off, n uint64) ([]byte, error) {
	if all := uint64(max(size, 0)); off > all || n > all-off {
		return nil, fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", n, off, size, io.ErrUnexpectedEOF)
	}
	b := make([]byte, n)
	if m, err := r.ReadAt(b, int64(off)); m < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", n, off, err)
	}
	return b, nil
}

// word reads an address-sized field, which is at one of two positions.
func (h *Headers) word(b []byte, at32, at64 int) uint64 {
	if h.Class == elf.ELFCLASS64 {
		return h.Order.Uint64(b[at64:])
	}
	return uint64(h.Order.Uint32(b[at32:]))
}

// half reads a field of two bytes of the ELF header.
func (h *Headers) half(at32, at64 int) uint64 {
	if h.Class == elf.ELFCLASS64 {
		at32 = at64
	}
	return uint64(h.Order.Uint16(h.bytes[at32:]))
}

// Progs reads the program headers; none is no error.
func (h *Headers) Progs() ([]Prog, error) {
	off, count := h.word(h.bytes[:], 28, 32), h.half(44, 56)
	if off == 0 || count == 0 {
		return nil, nil
	}
	want := uint64(32)
	if h.Class == elf.ELFCLASS64 {
		want = 56
	}
	if width := h.half(42, 54); width != want {
		return nil, fmt.Errorf("program headers of %d bytes, must be of %d", width, want)
	}
	b, err := h.Read(off, count*want)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	list := make([]Prog, 0, count)
	for ; len(b) > 0; b = b[want:] {
		flags := h.Order.Uint32(b[4:])
		if h.Class == elf.ELFCLASS32 {
			flags = h.Order.Uint32(b[24:])
		}
		list = append(list, Prog{
			Type: elf.ProgType(h.Order.Uint32(b)), Flags: elf.ProgFlag(flags), Off: h.word(b, 4, 8),
			Addr:     h.word(b, 8, 16),
			FileSize: h.word(b, 16, 32), MemSize: h.word(b, 20, 40), Align: h.word(b, 28, 48),
		})
	}
	return list, nil
}

// Sections reads the section headers, without names; none is no error.
func (h *Headers) Sections() ([]Section, error) {
	t, err := h.sectionTable()
	if err != nil {
		return nil, err
	}
	return h.sectionsAt(t.off, t.count)
}

// sectionTable says where the section headers are. No headers are a count of 0.
type sectionTable struct {
	off, count uint64
	names      uint64 // number of the section that has the names
}

func (h *Headers) sectionTable() (sectionTable, error) {
	t := sectionTable{off: h.word(h.bytes[:], 32, 40), count: h.half(48, 60), names: h.half(50, 62)}
	if t.off == 0 {
		return sectionTable{}, nil
	}
	if width := h.half(46, 58); width != h.sectionSize() {
		return t, fmt.Errorf("section headers of %d bytes, must be of %d", width, h.sectionSize())
	}
	if t.count == 0 { // it did not fit, and is in the first header
		first, err := h.sectionsAt(t.off, 1)
		if err != nil {
			return t, err
		}
		t.count = first[0].Size
		if t.names == uint64(elf.SHN_XINDEX) {
			t.names = uint64(first[0].link)
		}
	}
	if t.count > maxHeaders {
		return t, fmt.Errorf("%d sections, at most %d are read", t.count, maxHeaders)
	}
	return t, nil
}

// sectionsAt reads count section headers.
func (h *Headers) sectionsAt(off, count uint64) ([]Section, error) {
	size := h.sectionSize()
	b, err := h.Read(off, count*size)
	if err != nil {
		return nil, fmt.Errorf("read section headers: %w", err)
	}
	list := make([]Section, 0, count)
	for ; len(b) > 0; b = b[size:] {
		list = append(list, h.section(b))
	}
	return list, nil
}

func (h *Headers) sectionSize() uint64 {
	if h.Class == elf.ELFCLASS64 {
		return 64
	}
	return 40
}

func (h *Headers) section(b []byte) Section {
	link := h.Order.Uint32(b[24:])
	if h.Class == elf.ELFCLASS64 {
		link = h.Order.Uint32(b[40:])
	}
	return Section{
		Type: elf.SectionType(h.Order.Uint32(b[4:])), Flags: elf.SectionFlag(h.word(b, 8, 8)), Addr: h.word(b, 12, 16),
		Off: h.word(b, 16, 24), Size: h.word(b, 20, 32), Align: h.word(b, 32, 48), name: h.Order.Uint32(b), link: link,
	}
}

// NamedSections reads the section headers with their names, cut after 64 bytes.
func (h *Headers) NamedSections() ([]Section, error) {
	t, err := h.sectionTable()
	if err != nil || t.count == 0 {
		return nil, err
	}
	list, err := h.sectionsAt(t.off, t.count)
	if err != nil {
		return nil, err
	}
	if t.names >= t.count {
		return nil, fmt.Errorf("names of sections are in number %d of %d", t.names, t.count)
	}
	in := &list[t.names]
	if err := checkNames(in.Size); err != nil {
		return nil, err
	}
	text, err := h.Read(in.Off, in.Size)
	if err != nil {
		return nil, fmt.Errorf("read names of sections: %w", err)
	}
	for i := range list {
		s := &list[i]
		if uint64(s.name) < uint64(len(text)) {
			s.Name = cString(text[s.name:])
		}
	}
	return list, nil
}

func checkNames(size uint64) error {
	if size > maxSectionNames {
		return fmt.Errorf("names of sections have %d bytes, at most %d are read", size, maxSectionNames)
	}
	return nil
}

// cString is the text up to the first zero byte or the limit of a name.
func cString(b []byte) string {
	b = b[:min(len(b), maxSectionName)]
	name, _, _ := strings.Cut(string(b), "\x00")
	return name
}
