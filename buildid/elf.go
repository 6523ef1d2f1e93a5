// SPDX-License-Identifier: Apache-2.0

package buildid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrNotELF is returned for a file that does not begin as an ELF file does.
var ErrNotELF = errors.New("not an ELF file")

const (
	maxHeaders    = 1 << 16 // all that e_phnum and e_shnum can say
	maxRanges     = 64      // segments or sections of notes looked at
	maxNotesBytes = 1 << 20 // notes read of each of them

	progNote    = 4 // PT_NOTE
	sectionNote = 7 // SHT_NOTE
)

// FromFile returns the GNU build-id of the ELF file in r, which has size bytes.
// It looks in the PT_NOTE segments, as the kernel does, then in the note
// sections, where relocatable files (kernel modules) have it. The error is
// ErrNotELF, ErrNoID, or says what is wrong at which offset; a file that ends
// too early gives io.ErrUnexpectedEOF.
func FromFile(r io.ReaderAt, size int64) (ID, error) {
	return fromELF(r, size, gnuID)
}

// GoFromFile returns the build-id that Go's linker writes, a text of four
// hashes, of the ELF file in r. It does not identify a file as a GNU build-id
// does: stripping leaves it as it was. Errors are those of FromFile.
func GoFromFile(r io.ReaderAt, size int64) (string, error) {
	return fromELF(r, size, goID)
}

// elfFile is as much of an ELF file as it takes to find its notes.
type elfFile struct {
	r     io.ReaderAt
	size  uint64
	order binary.ByteOrder
	is64  bool
}

// chunk is a range of the file that holds notes.
type chunk struct {
	off, size, align uint64
}

// noteParser takes one range of notes.
type noteParser[T any] func(b []byte, order binary.ByteOrder, align int) (T, error)

func fromELF[T any](r io.ReaderAt, size int64, parse noteParser[T]) (T, error) {
	var zero T
	f, header, err := newELF(r, size)
	if err != nil {
		return zero, err
	}
	var first error // a broken range hides no good one behind it
	for _, headers := range []headerTable{f.programs(header), f.sections(header)} {
		chunks, err := f.noteChunks(headers)
		if err != nil && first == nil {
			first = err
		}
		for _, c := range chunks {
			id, err := parseChunk(f, c, parse)
			if err == nil {
				return id, nil
			}
			if !errors.Is(err, ErrNoID) && first == nil {
				first = err
			}
		}
	}
	if first == nil {
		first = ErrNoID
	}
	return zero, first
}

func parseChunk[T any](f *elfFile, c chunk, parse noteParser[T]) (T, error) {
	var zero T
	b, err := f.read(c.off, min(c.size, maxNotesBytes))
	if err != nil {
		return zero, fmt.Errorf("read notes: %w", err)
	}
	align := 4
	if c.align == 8 {
		align = 8
	}
	id, err := parse(b, f.order, align)
	if err != nil && !errors.Is(err, ErrNoID) {
		err = fmt.Errorf("notes at offset %#x: %w", c.off, err)
	}
	return id, err
}

func newELF(r io.ReaderAt, size int64) (*elfFile, []byte, error) {
	var b [64]byte
	n, err := r.ReadAt(b[:min(max(size, 0), 64)], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("read ELF header: %w", err)
	}
	if n < 16 || string(b[:4]) != "\x7fELF" {
		return nil, nil, ErrNotELF
	}
	f := &elfFile{r: r, size: uint64(size)}
	need := 52
	switch b[4] { // EI_CLASS
	case 1:
	case 2:
		f.is64, need = true, 64
	default:
		return nil, nil, fmt.Errorf("%w: class %d", ErrNotELF, b[4])
	}
	switch b[5] { // EI_DATA
	case 1:
		f.order = binary.LittleEndian
	case 2:
		f.order = binary.BigEndian
	default:
		return nil, nil, fmt.Errorf("%w: byte order %d", ErrNotELF, b[5])
	}
	if n < need {
		return nil, nil, fmt.Errorf("ELF header needs %d bytes, the file has %d: %w", need, n, io.ErrUnexpectedEOF)
	}
	return f, b[:need], nil
}

// headerTable says where the program or section headers are and which of
// their fields count. Field positions are those of elf.h.
type headerTable struct {
	what                string
	off, count, entsize uint64
	entry               uint64 // what entsize must be
	note                uint32
	typ                 int // position of the type, always 4 bytes
	offset, size, align int // positions of words
}

func (f *elfFile) programs(h []byte) headerTable {
	if f.is64 {
		return headerTable{what: "program", off: f.order.Uint64(h[32:]), entsize: f.half(h, 54), count: f.half(h, 56),
			entry: 56, note: progNote, typ: 0, offset: 8, size: 32, align: 48}
	}
	return headerTable{what: "program", off: f.word(h, 28), entsize: f.half(h, 42), count: f.half(h, 44),
		entry: 32, note: progNote, typ: 0, offset: 4, size: 16, align: 28}
}

func (f *elfFile) sections(h []byte) headerTable {
	if f.is64 {
		return headerTable{what: "section", off: f.order.Uint64(h[40:]), entsize: f.half(h, 58), count: f.half(h, 60),
			entry: 64, note: sectionNote, typ: 4, offset: 24, size: 32, align: 48}
	}
	return headerTable{what: "section", off: f.word(h, 32), entsize: f.half(h, 46), count: f.half(h, 48),
		entry: 40, note: sectionNote, typ: 4, offset: 16, size: 20, align: 32}
}

func (f *elfFile) half(b []byte, at int) uint64 { return uint64(f.order.Uint16(b[at:])) }

// word reads an address-sized field.
func (f *elfFile) word(b []byte, at int) uint64 {
	if f.is64 {
		return f.order.Uint64(b[at:])
	}
	return uint64(f.order.Uint32(b[at:]))
}

// noteChunks lists the ranges of notes that a header table names.
func (f *elfFile) noteChunks(t headerTable) ([]chunk, error) {
	if t.off == 0 || t.count == 0 {
		return nil, nil
	}
	if t.entsize != t.entry || t.count > maxHeaders {
		return nil, fmt.Errorf("%d %s headers of %d bytes, must be of %d", t.count, t.what, t.entsize, t.entry)
	}
	b, err := f.read(t.off, t.count*t.entsize)
	if err != nil {
		return nil, fmt.Errorf("read %s headers: %w", t.what, err)
	}
	var chunks []chunk
	for ; uint64(len(b)) >= t.entry && len(chunks) < maxRanges; b = b[t.entry:] {
		if f.order.Uint32(b[t.typ:]) != t.note {
			continue
		}
		chunks = append(chunks, chunk{off: f.word(b, t.offset), size: f.word(b, t.size), align: f.word(b, t.align)})
	}
	return chunks, nil
}

// read returns n bytes at off. The range is checked against the size of the
// file before any memory is taken.
func (f *elfFile) read(off, n uint64) ([]byte, error) {
	if off > math.MaxInt64 || off > f.size || n > f.size-off {
		return nil, fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", n, off, f.size, io.ErrUnexpectedEOF)
	}
	b := make([]byte, n)
	if m, err := f.r.ReadAt(b, int64(off)); m < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d bytes at offset %#x: %w", n, off, err)
	}
	return b, nil
}
