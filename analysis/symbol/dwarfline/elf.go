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

// Cache keeps unpacked sections. Several goroutines may use it.
type Cache interface {
	// Derived is what was kept under a key. The error says why there is nothing.
	Derived(key [32]byte) ([]byte, error)
	// KeepDerived keeps content under a key. That it could not is no loss.
	KeepDerived(key [32]byte, content []byte) error
}

// LoadOptions say how debug sections are read. The zero value is the rule.
type LoadOptions struct {
	// Split: those of split DWARF, whose names end in ".dwo".
	Split bool
	// Cache may be nil. It has what was unpacked before.
	Cache Cache
}

// Load reads the debug sections of f, which r has in size bytes, and unpacks those
// that are packed. Sections that f does not have are left empty.
func Load(f *elf.File, r io.ReaderAt, size uint64, o LoadOptions) (*Source, error) {
	l := &loader{f: f, r: r, size: size, left: MaxSize}
	if o.Split {
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
		if err := l.load(x.name, x.into); err != nil {
			return nil, err
		}
	}
	if o.Split {
		l.suffix = ""
		if err := l.load("cu_index", &s.CUIndex); err != nil {
			return nil, err
		}
	}
	return s, l.unpack(o.Cache)
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
		return fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", sec.FileSize, sec.Offset, l.size, io.ErrUnexpectedEOF)
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

// minCached is the packed size of sections that are worth keeping unpacked.
const minCached = 1 << 18

// unpack unpacks what is packed, or takes it from the cache.
func (l *loader) unpack(c Cache) error {
	var total, size uint64
	for i := range l.packed {
		total += uint64(len(l.packed[i].b))
		size += l.packed[i].size
	}
	if c == nil || total < minCached {
		return l.unpackAll()
	}
	key := l.key()
	if content, err := c.Derived(key); err == nil && uint64(len(content)) == size {
		for i := range l.packed {
			p := &l.packed[i]
			*p.into, content = content[:p.size:p.size], content[p.size:]
		}
		return nil
	}
	if err := l.unpackAll(); err != nil {
		return err
	}
	content := make([]byte, 0, size)
	for i := range l.packed {
		content = append(content, *l.packed[i].into...)
	}
	_ = c.KeepDerived(key, content) // then it is unpacked once more
	return nil
}

// key is a hash of all that unpacking starts from.
func (l *loader) key() (key [32]byte) {
	h := sha256.New()
	for i := range l.packed {
		p := &l.packed[i]
		fmt.Fprintf(h, "DWARF %d %d %d\n", p.kind, p.size, len(p.b))
		h.Write(p.b)
	}
	h.Sum(key[:0])
	return key
}

func (l *loader) unpackAll() error {
	for i := range l.packed {
		p := &l.packed[i]
		b, err := unpack(p.kind, p.b, p.size)
		if err != nil {
			return fmt.Errorf("section %s: %w", p.name, err)
		}
		*p.into = b
	}
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
