// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"math"
	"os"
	"testing"
)

// TestHeaders: what Headers says of a real program is what debug/elf says.
func TestHeaders(t *testing.T) {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		b = program(t, nil) // a system without procfs
	}
	want, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	h, err := ReadHeaders(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if h.Class != want.Class || h.Order != want.ByteOrder || h.Type != want.Type || h.Machine != want.Machine {
		t.Errorf("%+v, want %+v", h, want.FileHeader)
	}
	progs, err := h.Progs()
	if err != nil || len(progs) != len(want.Progs) {
		t.Fatalf("%d of %d program headers, %v", len(progs), len(want.Progs), err)
	}
	for i, p := range want.Progs {
		if got := (Prog{p.Type, p.Flags, p.Off, p.Vaddr, p.Filesz, p.Memsz, p.Align}); progs[i] != got {
			t.Errorf("program header %d: %+v, want %+v", i, progs[i], got)
		}
	}
	sections, err := h.NamedSections()
	if err != nil || len(sections) != len(want.Sections) {
		t.Fatalf("%d of %d sections, %v", len(sections), len(want.Sections), err)
	}
	for i, w := range want.Sections {
		s := sections[i]
		s.name, s.link = 0, 0
		if got := (Section{Name: w.Name, Type: w.Type, Flags: w.Flags, Addr: w.Addr, Off: w.Offset, Size: w.FileSize,
			Align: w.Addralign}); w.Type != elf.SHT_NOBITS && s != got {
			t.Errorf("section %d: %+v, want %+v", i, s, got)
		}
	}
}

func TestSectionsBeyondTheCount(t *testing.T) {
	// e_shnum and e_shstrndx do not fit: both are in the first header.
	b := program(t, func(h *elf.Header64, _ *elf.Section64) { h.Shnum, h.Shstrndx = 0, uint16(elf.SHN_XINDEX) })
	b[64+32], b[64+33], b[64+34], b[64+40] = 2, 0, 0, 1 // sh_size, sh_link
	h, err := ReadHeaders(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := h.NamedSections(); err != nil || len(list) != 2 || list[1].Type != elf.SHT_STRTAB {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		off, n uint64
		want   string
		err    error
	}{
		"all":       {0, 4, "abcd", nil},
		"none":      {4, 0, "", nil},
		"too much":  {1, 4, "", io.ErrUnexpectedEOF},
		"beyond":    {5, 0, "", io.ErrUnexpectedEOF},
		"wraps":     {math.MaxUint64, 2, "", io.ErrUnexpectedEOF},
		"all of it": {0, math.MaxUint64, "", io.ErrUnexpectedEOF},
	} {
		got, err := Read(bytes.NewReader([]byte("abcd")), 4, tc.off, tc.n)
		if string(got) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := Read(bytes.NewReader([]byte("ab")), 4, 0, 4); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that shrank: %v", err)
	}
}

// FuzzHeaders: any bytes give headers or an error, in bounded memory.
func FuzzHeaders(f *testing.F) {
	f.Add(program(f, nil))
	f.Add(program(f, func(h *elf.Header64, _ *elf.Section64) { h.Shnum, h.Phoff, h.Phnum = 0, 64, 1 }))
	f.Add(append([]byte(elf.ELFMAG), 1, 2, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeaders(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if list, err := h.Progs(); len(list)*32 > len(b) {
			t.Errorf("%d program headers in %d bytes, %v", len(list), len(b), err)
		}
		if list, err := h.NamedSections(); len(list)*40 > len(b) {
			t.Errorf("%d sections in %d bytes, %v", len(list), len(b), err)
		}
	})
}
