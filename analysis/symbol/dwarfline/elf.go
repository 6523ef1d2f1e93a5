// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// MaxSize is how many bytes of debug sections are read of a file, unpacked.
const MaxSize = 1 << 30

const (
	maxZlibRatio  = 1032 // what deflate can do at most
	maxZstdWindow = 1 << 27
	packedHeader  = 12 // of .zdebug sections
)

// Has reports whether a file has DWARF of its own, rather than in a separate
// file.
func Has(f *elf.File) bool {
	sec, _ := find(f, "info", "")
	return sec != nil && sec.Size > 0
}

// Load reads the debug sections of f, which r has in size bytes; if split, those
// of split DWARF, whose names end in ".dwo". Sections that f does not have are left
// empty, those that are packed are unpacked when they are needed.
func Load(f *elf.File, r io.ReaderAt, size uint64, split bool) (*Source, error) {
	l := &loader{f: f, r: r, size: size, left: MaxSize}
	if split {
		l.suffix = ".dwo"
	}
	s := &Source{BigEndian: f.ByteOrder == binary.BigEndian}
	for _, x := range s.sections() {
		if err := l.load(x.name, x.b); err != nil {
			return nil, err
		}
	}
	if split {
		l.suffix = ""
		if err := l.load("cu_index", &s.CUIndex); err != nil {
			return nil, err
		}
	}
	s.packed = l.packed
	return s, nil
}

// namedSection is a section of a Source.
type namedSection struct {
	name string
	b    *[]byte
}

// sections are all but that of packages.
func (s *Source) sections() []namedSection {
	return []namedSection{
		{"info", &s.Info}, {"abbrev", &s.Abbrev}, {"line", &s.Line}, {"str", &s.Str}, {"line_str", &s.LineStr},
		{"ranges", &s.Ranges}, {"rnglists", &s.Rnglists}, {"addr", &s.Addr}, {"str_offsets", &s.StrOffsets},
	}
}

// Size is the number of bytes in all sections, unpacked.
func (s *Source) Size() int {
	n := len(s.CUIndex)
	for _, x := range s.sections() {
		n += len(*x.b)
	}
	for i := range s.packed {
		n += int(s.packed[i].size)
	}
	return n
}

// sum is a hash of all that s was read from. What is packed must still be so.
func (s *Source) sum() (sum [32]byte) {
	h := sha256.New()
	for _, x := range s.sections() {
		fmt.Fprintf(h, "%s %d\n", x.name, len(*x.b))
		h.Write(*x.b)
	}
	for i := range s.packed {
		p := &s.packed[i]
		fmt.Fprintf(h, "%s %d %d %d\n", p.name, p.kind, p.size, len(p.b))
		h.Write(p.b)
	}
	fmt.Fprintf(h, "big endian %v\n", s.BigEndian)
	h.Sum(sum[:0])
	return sum
}

// unpack unpacks what is packed. A section that cannot be stays empty, like all
// behind it.
func (s *Source) unpack() error {
	list := s.packed
	s.packed = nil
	for i := range list {
		p := &list[i]
		b, err := unpack(p.kind, p.b, p.size)
		if err != nil {
			return fmt.Errorf("section %s: %w", p.name, err)
		}
		*p.into = b
	}
	return nil
}

// find looks for a section in its plain and in its old packed form.
func find(f *elf.File, name, suffix string) (sec *elf.Section, old bool) {
	if sec := f.Section(".debug_" + name + suffix); sec != nil && sec.Type != elf.SHT_NOBITS {
		return sec, false
	}
	if sec := f.Section(".zdebug_" + name + suffix); sec != nil && sec.Type != elf.SHT_NOBITS {
		return sec, true
	}
	return nil, false
}

type loader struct {
	f      *elf.File
	r      io.ReaderAt
	size   uint64
	suffix string
	left   uint64
	packed []packed
}

// packed is a section that is still packed.
type packed struct {
	name string
	kind elf.CompressionType
	size uint64 // unpacked, as it claims
	b    []byte
	into *[]byte
}

// load reads a section, if there is one.
func (l *loader) load(name string, into *[]byte) error {
	sec, old := find(l.f, name, l.suffix)
	if sec == nil || sec.FileSize == 0 {
		return nil
	}
	if err := l.read(sec, old, into); err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	return nil
}

func (l *loader) read(sec *elf.Section, old bool, into *[]byte) error {
	if sec.Offset > l.size || sec.FileSize > l.size-sec.Offset {
		return fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", sec.FileSize, sec.Offset, l.size,
			io.ErrUnexpectedEOF)
	}
	if sec.FileSize > l.left {
		return l.tooMuch(sec.FileSize)
	}
	// As it is in the file: debug/elf would unpack it, with no limit.
	raw := make([]byte, sec.FileSize)
	if n, err := l.r.ReadAt(raw, int64(sec.Offset)); n < len(raw) {
		return fmt.Errorf("read: %w", orUnexpected(err))
	}
	p := packed{name: sec.Name, b: raw, into: into}
	switch {
	case old && len(raw) >= packedHeader && string(raw[:4]) == "ZLIB":
		p.kind, p.size, p.b = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(raw[4:]), raw[packedHeader:]
	case !old && sec.Flags&elf.SHF_COMPRESSED != 0:
		if err := l.header(&p); err != nil {
			return err
		}
	default:
		*into = raw
		l.left -= uint64(len(raw))
		return nil
	}
	if p.size > l.left {
		return l.tooMuch(p.size)
	}
	l.left -= p.size
	l.packed = append(l.packed, p)
	return nil
}

func (l *loader) tooMuch(n uint64) error {
	return fmt.Errorf("%d bytes, with the sections before more than %d: %w", n, MaxSize, ErrTooMuch)
}

func orUnexpected(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// header reads the header of a packed section, Elf32_Chdr or Elf64_Chdr.
func (l *loader) header(p *packed) error {
	n, o := 12, l.f.ByteOrder
	if l.f.Class == elf.ELFCLASS64 {
		n = 24
	}
	if len(p.b) < n {
		return io.ErrUnexpectedEOF
	}
	if n == 24 {
		p.size = o.Uint64(p.b[8:])
	} else {
		p.size = uint64(o.Uint32(p.b[4:]))
	}
	p.kind, p.b = elf.CompressionType(o.Uint32(p.b)), p.b[n:]
	return nil
}

// unpack unpacks b, which claims to have size bytes then.
func unpack(kind elf.CompressionType, b []byte, size uint64) ([]byte, error) {
	switch kind {
	case elf.COMPRESS_ZLIB:
		if size/maxZlibRatio > uint64(len(b)) {
			return nil, fmt.Errorf("%d bytes claim to be %d when unpacked: %w", len(b), size, ErrMalformed)
		}
		r, err := zlib.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		defer r.Close()
		out := make([]byte, size)
		if _, err := io.ReadFull(r, out); err != nil {
			return nil, fmt.Errorf("unpack: %w", orUnexpected(err))
		}
		return out, nil
	case elf.COMPRESS_ZSTD:
		return unpackZstd(b, size)
	}
	return nil, fmt.Errorf("packed in a way (%d) that is not known", kind)
}

func unpackZstd(b []byte, size uint64) ([]byte, error) {
	r, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(MaxSize))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	defer r.Close()
	// What is claimed need not come: room grows with what does.
	var out bytes.Buffer
	if size <= 64*uint64(len(b)) {
		out.Grow(int(size) + bytes.MinRead)
	}
	n, err := io.Copy(&out, io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	if uint64(n) < size {
		return nil, fmt.Errorf("unpack: %w", io.ErrUnexpectedEOF)
	}
	return out.Bytes(), nil
}
