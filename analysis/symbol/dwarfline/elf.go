// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/internal/elffile"
)

// MaxSize is how many bytes of debug sections are read of a file, unpacked.
const MaxSize = 1 << 30

const packedHeader = 12 // of .zdebug sections

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
		b, err := elffile.Uncompress(p.kind, p.b, p.size)
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
	raw, err := elffile.ReadSection(l.r, int64(l.size), sec, l.left)
	switch {
	case errors.Is(err, elffile.ErrTooLarge):
		return l.tooMuch(sec.FileSize)
	case err != nil:
		return err
	}
	p := packed{name: sec.Name, b: raw, into: into}
	switch {
	case old && len(raw) >= packedHeader && string(raw[:4]) == "ZLIB":
		p.kind, p.size, p.b = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(raw[4:]), raw[packedHeader:]
	case !old && sec.Flags&elf.SHF_COMPRESSED != 0:
		if p.kind, p.size, p.b, err = elffile.CompressionHeader(l.f.Class, l.f.ByteOrder, raw); err != nil {
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
