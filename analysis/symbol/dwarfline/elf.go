// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"bytes"
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

// Load reads the debug sections of f, which r has in size bytes, and unpacks those
// that are packed. With split, it reads those of split DWARF, whose names end in
// ".dwo". Sections that f does not have are left empty.
func Load(f *elf.File, r io.ReaderAt, size uint64, split bool) (*Source, error) {
	l := &loader{f: f, r: r, size: size, left: MaxSize}
	if split {
		l.suffix = ".dwo"
	}
	s := &Source{BigEndian: f.ByteOrder == binary.BigEndian}
	for _, x := range []struct {
		name string
		into *[]byte
	}{
		{"info", &s.Info}, {"abbrev", &s.Abbrev}, {"line", &s.Line}, {"str", &s.Str}, {"line_str", &s.LineStr},
		{"ranges", &s.Ranges}, {"rnglists", &s.Rnglists}, {"addr", &s.Addr}, {"str_offsets", &s.StrOffsets},
	} {
		b, err := l.load(x.name)
		if err != nil {
			return nil, err
		}
		*x.into = b
	}
	if split {
		l.suffix = ""
		var err error
		if s.CUIndex, err = l.load("cu_index"); err != nil {
			return nil, err
		}
	}
	return s, nil
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
}

func (l *loader) load(name string) ([]byte, error) {
	sec, old := find(l.f, name, l.suffix)
	if sec == nil || sec.FileSize == 0 {
		return nil, nil
	}
	b, err := l.content(sec, old)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", sec.Name, err)
	}
	l.left -= uint64(len(b))
	return b, nil
}

// content is what a section has, unpacked.
func (l *loader) content(sec *elf.Section, old bool) ([]byte, error) {
	if sec.Offset > l.size || sec.FileSize > l.size-sec.Offset {
		return nil, fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", sec.FileSize, sec.Offset, l.size, io.ErrUnexpectedEOF)
	}
	if sec.FileSize > l.left {
		return nil, l.tooMuch(sec.FileSize)
	}
	// As it is in the file: debug/elf would unpack it, with no limit.
	raw := make([]byte, sec.FileSize)
	if n, err := l.r.ReadAt(raw, int64(sec.Offset)); n < len(raw) {
		return nil, fmt.Errorf("read: %w", orUnexpected(err))
	}
	kind, size, rest := elf.CompressionType(0), uint64(0), raw
	switch {
	case old:
		if len(raw) < packedHeader || string(raw[:4]) != "ZLIB" {
			return raw, nil
		}
		kind, size, rest = elf.COMPRESS_ZLIB, binary.BigEndian.Uint64(raw[4:]), raw[packedHeader:]
	case sec.Flags&elf.SHF_COMPRESSED != 0:
		var err error
		if kind, size, rest, err = l.packed(raw); err != nil {
			return nil, err
		}
	default:
		return raw, nil
	}
	if size > l.left {
		return nil, l.tooMuch(size)
	}
	return unpack(kind, rest, size)
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

// packed reads the header of a packed section, Elf32_Chdr or Elf64_Chdr.
func (l *loader) packed(raw []byte) (kind elf.CompressionType, size uint64, rest []byte, err error) {
	n, o := 12, l.f.ByteOrder
	if l.f.Class == elf.ELFCLASS64 {
		n = 24
	}
	if len(raw) < n {
		return 0, 0, nil, io.ErrUnexpectedEOF
	}
	if n == 24 {
		size = o.Uint64(raw[8:])
	} else {
		size = uint64(o.Uint32(raw[4:]))
	}
	return elf.CompressionType(o.Uint32(raw)), size, raw[n:], nil
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
