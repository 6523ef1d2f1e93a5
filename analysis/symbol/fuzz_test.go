// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"testing"
)

// FuzzELF checks that there is either an object or an error, that its symbols
// are in order and found where they begin, and that names come out.
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
	})
}
