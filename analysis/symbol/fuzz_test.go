// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"testing"
)

// FuzzELF checks that there is either an object or an error, that its symbols
// are in order and found where they begin, that names come out, and that the
// symbols of some addresses are the same as those of all.
func FuzzELF(f *testing.F) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, data := range []elf.Data{elf.ELFDATA2LSB, elf.ELFDATA2MSB} {
			f.Add(tinyELF(class, data, elf.EM_AARCH64))
		}
	}
	f.Add(tinyPLT())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
		if (o == nil) == (err == nil) {
			t.Fatalf("%v and %v", o, err)
		}
		if err != nil {
			return
		}
		last := uint64(0)
		for i := range int32(o.Len()) {
			s := o.Sym(i)
			if s.End <= s.Start || i > 0 && s.Start <= last {
				t.Fatalf("symbol %d is %+v, the one before begins at %#x", i, s, last)
			}
			last = s.Start
			if got, ok := o.Lookup(s.Start); !ok || got != i {
				t.Fatalf("symbol %d is not found at its start %#x", i, s.Start)
			}
			if s.Name == "" || o.Demangled(i) == "" {
				t.Fatalf("symbol %d has no name", i)
			}
		}
		o.Addr(0x1000, 0x2000, 0x1234)
		sameInPart(t, b, o)
	})
}

// sameInPart looks up offsets in a part of the symbols of the file b, of which
// o has all.
func sameInPart(t *testing.T, b []byte, o *Object) {
	offsets := make([]uint64, 0, 2*len(o.Segments)+16)
	for _, s := range o.Segments {
		offsets = append(offsets, s.Offset, s.Offset+s.FileSize/2)
	}
	for i := range uint64(16) {
		offsets = append(offsets, i*uint64(len(b))/16)
	}
	part, err := (&loader{offsets: offsets, scratch: new(scratch)}).read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatalf("all symbols can be read, but not some: %v", err)
	}
	var addrs []uint64
	for _, off := range offsets {
		addrs = append(addrs, o.Addr(0, 0, off))
	}
	sameLookups(t, addrs, &part.Table, &o.Table)
}
