// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// sharedPLT is a file with many PLT entries for one function with a long name.
func sharedPLT(entries int) []byte {
	w := newTinyWriter(elf.ELFCLASS64, elf.ELFDATA2LSB)
	var code, relocs []byte
	for i := range uint64(entries) {
		code = append(code, 0xff, 0x25, 0, 0, 0, 0) // jmp *0(%rip)
		code = append(code, make([]byte, 10)...)
		relocs = append(relocs, w.put(elf.Rela64{Off: 0x1000 + 16*i + 6, Info: elf.R_INFO(1, uint32(elf.R_X86_64_JMP_SLOT))})...)
	}
	name := "\x00" + strings.Repeat("x", maxPLTName) + "\x00"
	return w.file(elf.EM_X86_64,
		tinyText(0x1000, ".plt.sec", code),
		tinySection{".dynsym", elf.Section64{Type: uint32(elf.SHT_DYNSYM), Link: 3}, w.symbols(elf.Sym64{Name: 1, Info: tinyFunc})},
		tinySection{".dynstr", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte(name)},
		tinySection{".rela.plt", elf.Section64{Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_ALLOC), Link: 2}, relocs},
	)
}

// sharedGo is a file with many Go functions that have one long name.
func sharedGo(funcs int) []byte {
	le := binary.LittleEndian
	w := newTinyWriter(elf.ELFCLASS64, elf.ELFDATA2LSB)
	const head, size = 8 + 8*8, 10_000
	b := append(le.AppendUint32(nil, 0xfffffff1), 0, 0, 1, 8)
	for _, word := range []uint64{uint64(funcs), 0, 0x1000, head, head, head, head, head + size} {
		b = le.AppendUint64(b, word)
	}
	b = append(append(b, strings.Repeat("x", size-1)...), 0)
	for i := range funcs + 1 {
		b = le.AppendUint32(le.AppendUint32(b, uint32(i)), uint32(8*(funcs+1)))
	}
	b = append(b, make([]byte, 44)...)
	return w.file(elf.EM_X86_64, tinySection{".gopclntab", elf.Section64{Type: uint32(elf.SHT_PROGBITS)}, b})
}

// Names that are made of one name in the file take no more room than the file.
func TestSharedNames(t *testing.T) {
	for name, b := range map[string][]byte{"PLT": sharedPLT(300), "Go": sharedGo(200)} {
		o, err := ReadELF(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if o.Len() == 0 || len(o.names) > 2*len(b) {
			t.Errorf("%s: %d symbols with %d bytes of names, of a file of %d", name, o.Len(), len(o.names), len(b))
		}
	}
}

// Names that lie in each other are not copied one by one.
func TestNestedNames(t *testing.T) {
	const many, size = 200, 20_000
	var offsets []uint32
	var wanted []uint64
	for i := range uint32(many) {
		offsets, wanted = append(offsets, 1+i), append(wanted, 0x1000+uint64(i))
	}
	b := tinyNames("\x00"+strings.Repeat("x", size)+"\x00", offsets...)
	mem := new(scratch)
	o, err := (&loader{offsets: wanted, scratch: mem}).read(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	clear(mem.names[:cap(mem.names)]) // the next file's
	for i := range int32(many) {
		if got := o.Name(i); len(got) != size-int(i) || !slices.Contains([]byte(got), 'x') {
			t.Fatalf("symbol %d has a name of %d bytes", i, len(got))
		}
	}
	if len(o.names) > 2*size {
		t.Errorf("keeps %d bytes of names", len(o.names))
	}
}
