// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

// compressed are n zero bytes.
func compressed(t *testing.T, typ elf.CompressionType, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = zlib.NewWriter(&b)
	if typ == elf.COMPRESS_ZSTD {
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUncompress(t *testing.T) {
	const size = 1 << 20
	for _, typ := range []elf.CompressionType{elf.COMPRESS_ZLIB, elf.COMPRESS_ZSTD} {
		b := compressed(t, typ, size)
		if got, err := Uncompress(typ, b, size); err != nil || len(got) != size {
			t.Errorf("%v: %d bytes, %v", typ, len(got), err)
		}
		if got, err := Uncompress(typ, b, size-1); err != nil || len(got) != size-1 {
			t.Errorf("%v, claims less than it has: %d bytes, %v", typ, len(got), err)
		}
		for name, claim := range map[string]uint64{"one byte too much": size + 1, "far too much": 1 << 29} {
			if got, err := Uncompress(typ, b, claim); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%v claims %s: %d bytes, %v", typ, name, len(got), err)
			}
		}
		if got, err := Uncompress(typ, b[:len(b)/2], size); err == nil {
			t.Errorf("%v, cut: %d bytes", typ, len(got))
		}
		if got, err := Uncompress(typ, []byte("neither"), 7); err == nil {
			t.Errorf("%v of text: %q", typ, got)
		}
	}
	if _, err := Uncompress(77, nil, 1); err == nil {
		t.Error("compression 77 is known")
	}
}

func TestCompressionHeader(t *testing.T) {
	b := []byte{2, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'x'}
	for _, tc := range []struct {
		class elf.Class
		size  uint64
		rest  int
	}{{elf.ELFCLASS32, 9, 13}, {elf.ELFCLASS64, 1 | 4<<32, 1}} {
		typ, size, rest, err := CompressionHeader(tc.class, binary.LittleEndian, b)
		if typ != elf.COMPRESS_ZSTD || size != tc.size || len(rest) != tc.rest || err != nil {
			t.Errorf("%v: %v, %d bytes, %d left, %v", tc.class, typ, size, len(rest), err)
		}
		if _, _, _, err := CompressionHeader(tc.class, binary.LittleEndian, b[:11]); !errors.Is(err,
			io.ErrUnexpectedEOF) {
			t.Errorf("%v, cut: %v", tc.class, err)
		}
	}
}

func TestReadSection(t *testing.T) {
	file := []byte("0123456789")
	section := func(typ elf.SectionType, off, size uint64) *elf.Section {
		return &elf.Section{SectionHeader: elf.SectionHeader{Type: typ, Offset: off, Size: size, FileSize: size}}
	}
	for name, tc := range map[string]struct {
		sec  *elf.Section
		want string
		err  error
	}{
		"whole":       {section(elf.SHT_PROGBITS, 2, 4), "2345", nil},
		"at the end":  {section(elf.SHT_PROGBITS, 10, 0), "", nil},
		"no content":  {section(elf.SHT_NOBITS, 99, 1<<40), "", nil},
		"over limit":  {section(elf.SHT_PROGBITS, 0, 9), "", ErrTooLarge},
		"beyond end":  {section(elf.SHT_PROGBITS, 6, 5), "", io.ErrUnexpectedEOF},
		"wraps":       {section(elf.SHT_PROGBITS, 1<<64-1, 2), "", io.ErrUnexpectedEOF},
		"huge offset": {section(elf.SHT_PROGBITS, 1<<63, 0), "", io.ErrUnexpectedEOF},
	} {
		got, err := ReadSection(bytes.NewReader(file), int64(len(file)), tc.sec, 8)
		if string(got) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, tc.want, tc.err)
		}
	}
}

// linked is a file with one section .gnu_debuglink.
func linked(order binary.ByteOrder, content []byte) *elf.File {
	f := &elf.File{FileHeader: elf.FileHeader{ByteOrder: order}}
	size := uint64(len(content))
	f.Sections = []*elf.Section{{SectionHeader: elf.SectionHeader{Name: ".gnu_debuglink", Type: elf.SHT_PROGBITS,
		Size: size, FileSize: size}, ReaderAt: bytes.NewReader(content)}}
	return f
}

func TestDebugLink(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		want    string
		crc     uint32
	}{
		"name":          {"a.debug\x00\x01\x02\x03\x04", "a.debug", 0x04030201},
		"filled up":     {"a.b\x00\x00\x00\x00\x09", "a.b", 0x09000000},
		"path":          {"/etc/passwd\x00\x01\x02\x03\x04", "", 0},
		"out of it":     {"../x\x00\x00\x00\x00\x01\x02\x03\x04", "", 0},
		"parent":        {"..\x00\x00\x01\x02\x03\x04", "", 0},
		"no end":        {"abcdefghijkl", "", 0},
		"no checksum":   {"abc\x00\x01\x02", "", 0},
		"no name":       {"\x00\x00\x00\x00\x01\x02\x03\x04", "", 0},
		"nothing":       {"", "", 0},
		"far too large": {"a\x00\x00\x00\x01\x02\x03\x04" + string(make([]byte, maxLink)), "", 0},
	} {
		got, crc := DebugLink(linked(binary.LittleEndian, []byte(tc.content)))
		if got != tc.want || crc != tc.crc {
			t.Errorf("%s: %q %#x, want %q %#x", name, got, crc, tc.want, tc.crc)
		}
	}
	if got, _ := DebugLink(&elf.File{}); got != "" {
		t.Errorf("without the section: %q", got)
	}
}
