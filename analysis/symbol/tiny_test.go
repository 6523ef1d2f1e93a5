// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"encoding/binary"
	"slices"
)

// tinySection is a section of a file that tinyFile makes.
type tinySection struct {
	name string
	elf.Section64
	content []byte
}

// tinyWriter writes the structures of one class and byte order.
type tinyWriter struct {
	class elf.Class
	order binary.ByteOrder
}

func newTinyWriter(class elf.Class, data elf.Data) tinyWriter {
	if data == elf.ELFDATA2MSB {
		return tinyWriter{class, binary.BigEndian}
	}
	return tinyWriter{class, binary.LittleEndian}
}

func (w tinyWriter) put(v any) []byte {
	b, err := binary.Append(nil, w.order, v)
	if err != nil {
		panic(err) // not a fixed-size structure: a fault of this test
	}
	return b
}

func (w tinyWriter) symbols(list ...elf.Sym64) []byte {
	var b []byte
	for _, s := range append([]elf.Sym64{{}}, list...) {
		if w.class == elf.ELFCLASS64 {
			b = append(b, w.put(s)...)
			continue
		}
		b = append(b, w.put(elf.Sym32{Name: s.Name, Value: uint32(s.Value), Size: uint32(s.Size), Info: s.Info, Shndx: s.Shndx})...)
	}
	return b
}

func (w tinyWriter) section(s elf.Section64) []byte {
	if w.class == elf.ELFCLASS64 {
		return w.put(s)
	}
	return w.put(elf.Section32{Name: s.Name, Type: s.Type, Flags: uint32(s.Flags), Addr: uint32(s.Addr), Off: uint32(s.Off),
		Size: uint32(s.Size), Link: s.Link, Entsize: uint32(s.Entsize)})
}

// file lays out sections, whose numbers begin at 1, behind a header.
func (w tinyWriter) file(machine elf.Machine, list ...tinySection) []byte {
	h := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Ehsize: 64, Shentsize: 64,
		Shnum: uint16(len(list) + 2), Shstrndx: uint16(len(list) + 1)}
	h.Ident = [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(w.class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	if w.order == binary.BigEndian {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	if w.class == elf.ELFCLASS32 {
		h.Ehsize, h.Shentsize = 52, 40
	}
	names := []byte{0}
	for i := range list {
		list[i].Name = uint32(len(names))
		names = append(append(names, list[i].name...), 0)
	}
	list = append(list, tinySection{Section64: elf.Section64{Type: uint32(elf.SHT_STRTAB)}, content: names})
	var body []byte
	headers := w.section(elf.Section64{})
	for _, s := range list {
		s.Off, s.Size = uint64(h.Ehsize)+uint64(len(body)), uint64(len(s.content))
		body = append(body, s.content...)
		headers = append(headers, w.section(s.Section64)...)
	}
	h.Shoff = uint64(h.Ehsize) + uint64(len(body))
	if w.class == elf.ELFCLASS64 {
		return slices.Concat(w.put(h), body, headers)
	}
	h32 := elf.Header32{Ident: h.Ident, Type: h.Type, Machine: h.Machine, Version: 1, Shoff: uint32(h.Shoff),
		Ehsize: h.Ehsize, Shentsize: h.Shentsize, Shnum: h.Shnum, Shstrndx: h.Shstrndx}
	return slices.Concat(w.put(h32), body, headers)
}

const (
	tinyFunc   = uint8(elf.STB_GLOBAL)<<4 | uint8(elf.STT_FUNC)
	tinyObject = uint8(elf.STB_GLOBAL)<<4 | uint8(elf.STT_OBJECT)
	tinyLabel  = uint8(elf.STT_NOTYPE)
)

func tinyText(addr uint64, name string, code []byte) tinySection {
	return tinySection{name, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: addr}, code}
}

// tinyELF is a file with a .text of 256 bytes at 0x1000, the functions first, of
// 16 bytes, second, at 32, and third, at 64, which have no size, and what is
// not a function.
func tinyELF(class elf.Class, data elf.Data, machine elf.Machine) []byte {
	w := newTinyWriter(class, data)
	const names = "\x00first\x00second\x00third\x00$x\x00data\x00"
	return w.file(machine,
		tinyText(0x1000, ".text", make([]byte, 256)),
		tinySection{".symtab", elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: 3}, w.symbols(
			elf.Sym64{Name: 14, Info: tinyFunc, Shndx: 1, Value: 0x1040},
			elf.Sym64{Name: 1, Info: tinyFunc, Shndx: 1, Value: 0x1000, Size: 16},
			elf.Sym64{Name: 7, Info: tinyFunc, Shndx: 1, Value: 0x1020},
			elf.Sym64{Name: 23, Info: tinyObject, Shndx: 1, Value: 0x1030, Size: 4},
			elf.Sym64{Name: 20, Info: tinyLabel, Shndx: 1, Value: 0x1008},
			elf.Sym64{Name: 1, Info: tinyFunc, Shndx: 0, Value: 0x1050},
			elf.Sym64{Name: 1, Info: tinyFunc, Shndx: uint16(elf.SHN_ABS), Value: 0x1060},
		)},
		tinySection{".strtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte(names)},
	)
}

// tinyPLT is an x86-64 file whose PLT has one entry, for puts.
func tinyPLT() []byte {
	w := newTinyWriter(elf.ELFCLASS64, elf.ELFDATA2LSB)
	code := slices.Concat([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf5, 0x0f, 0, 0}, make([]byte, 5)) // jmp *0x2000(,0)
	return w.file(elf.EM_X86_64,
		tinyText(0x1000, ".plt.sec", code),
		tinySection{".dynsym", elf.Section64{Type: uint32(elf.SHT_DYNSYM), Link: 3}, w.symbols(elf.Sym64{Name: 1, Info: tinyFunc})},
		tinySection{".dynstr", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte("\x00puts\x00")},
		tinySection{".rela.plt", elf.Section64{Type: uint32(elf.SHT_RELA), Flags: uint64(elf.SHF_ALLOC), Link: 2},
			w.put(elf.Rela64{Off: 0x2000, Info: elf.R_INFO(1, uint32(elf.R_X86_64_JMP_SLOT))})},
	)
}

// tinyNames is a file whose symbols are named by the offsets given.
func tinyNames(names string, offsets ...uint32) []byte {
	w := newTinyWriter(elf.ELFCLASS64, elf.ELFDATA2LSB)
	var syms []elf.Sym64
	for i, off := range offsets {
		syms = append(syms, elf.Sym64{Name: off, Info: tinyFunc, Shndx: 1, Value: 0x1000 + uint64(i), Size: 1})
	}
	return w.file(elf.EM_X86_64,
		tinyText(0x1000, ".text", make([]byte, 256)),
		tinySection{".symtab", elf.Section64{Type: uint32(elf.SHT_SYMTAB), Link: 3}, w.symbols(syms...)},
		tinySection{".strtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte(names)},
	)
}

// tinyNote is a file with a build-id and nothing else.
func tinyNote() []byte {
	w := newTinyWriter(elf.ELFCLASS64, elf.ELFDATA2LSB)
	note := append([]byte{4, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0}, "GNU\x0012345678"...)
	return w.file(elf.EM_X86_64, tinySection{".note.gnu.build-id", elf.Section64{Type: uint32(elf.SHT_NOTE), Flags: uint64(elf.SHF_ALLOC)}, note})
}
