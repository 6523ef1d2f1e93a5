// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is an ELF file of headers only: two sections, the second with the
// names. change may spoil them.
func program(t testing.TB, change func(h *elf.Header64, names *elf.Section64)) []byte {
	t.Helper()
	h := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1,
		Shoff: 64, Ehsize: 64, Phentsize: 56, Shentsize: 64, Shnum: 2, Shstrndx: 1,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB),
		1
	names := elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: 192, Size: 1}
	if change != nil {
		change(&h, &names)
	}
	var b bytes.Buffer
	for _, v := range []any{&h, &elf.Section64{Size: 1 << 20}, &names} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteByte(0)
	return b.Bytes()
}

func TestOpen(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		self = program(t, nil)
	}
	for name, tc := range map[string]struct {
		file []byte
		want error
		text string
	}{
		"this program": {file: self},
		"headers only": {file: program(t, nil)},
		"empty":        {want: ErrNotELF},
		"text":         {file: []byte("#!/bin/sh\n"), want: ErrNotELF},
		"cut":          {file: program(t, nil)[:100], want: io.ErrUnexpectedEOF},
		"cut early":    {file: program(t, nil)[:20], want: io.ErrUnexpectedEOF},
		"sections": {file: program(t, func(h *elf.Header64, _ *elf.Section64) { h.Shnum = 0 }),
			text: "1048576 sections, at most 65536 are read"},
		"names": {file: program(t, func(_ *elf.Header64, names *elf.Section64) { names.Size = 1 << 40 }),
			text: "names of sections have 1099511627776 bytes"},
	} {
		f, err := Open(bytes.NewReader(tc.file), int64(len(tc.file)))
		switch {
		case tc.want == nil && tc.text == "":
			if err != nil || f == nil {
				t.Errorf("%s: %v", name, err)
			}
		case tc.want != nil && !errors.Is(err, tc.want), err == nil || !strings.Contains(err.Error(), tc.text):
			t.Errorf("%s: %v, want %v %s", name, err, tc.want, tc.text)
		}
	}
}

// A file with holes takes no room on the disk and names a million sections.
func TestOpenHoles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "holes"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spoilt := program(t, func(h *elf.Header64, names *elf.Section64) { h.Shnum, names.Size = 0, 1<<33 })
	if _, err := f.Write(spoilt); err != nil {
		t.Fatal(err)
	}
	const size = 1 << 34
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(f, size); err == nil {
		t.Error("no error")
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(program(f, nil))
	f.Add(program(f, func(h *elf.Header64, _ *elf.Section64) { h.Shnum = 0 }))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(bytes.NewReader(b), int64(len(b)))
		if (file == nil) == (err == nil) {
			t.Fatalf("%v, %v: neither or both", file, err)
		}
	})
}
