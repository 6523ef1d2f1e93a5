// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

const (
	maxPLTBytes = 1 << 24 // of code read of each PLT section
	maxDynsym   = 1 << 26 // of .dynsym kept to name the relocations
	maxPLTName  = 1 << 12 // as it is copied, and a hostile file can use one often
)

// stub is a PLT entry: code that jumps to the address in a slot of the GOT.
type stub struct {
	start, end uint64
	slot       uint64
}

// plt adds an entry NAME@plt for each stub through which the file calls NAME
// in another file. Which function that is, is found from the code and the
// relocations of the GOT, as linkers lay out PLTs in many ways.
func (s *symbolReader) plt() error {
	var decode func(code []byte, addr, entsize uint64) []stub
	switch s.file.Machine {
	case elf.EM_X86_64:
		decode = stubsAMD64
	case elf.EM_AARCH64:
		decode = stubsARM64
	default:
		return nil
	}
	var stubs []stub
	for _, name := range []string{".plt", ".plt.sec", ".plt.got"} {
		sec := s.file.Section(name)
		if sec == nil || sec.Type != elf.SHT_PROGBITS || sec.Size > maxPLTBytes || s.checkRange(sec) != nil {
			continue
		}
		if s.subset != nil && !s.subset.wants(sec.Addr, sec.Addr+sec.Size) {
			continue
		}
		code := s.block(int(sec.Size))
		if err := readFull(sec, code, 0); err != nil {
			return fmt.Errorf("section %s: %w", name, err)
		}
		stubs = append(stubs, decode(code, sec.Addr, sec.Entsize)...)
	}
	if len(stubs) == 0 || s.file.Class != elf.ELFCLASS64 {
		return nil
	}
	slots := make(map[uint64]uint32, len(stubs)) // GOT address -> index into stubs
	for i, p := range stubs {
		slots[p.slot] = uint32(i)
	}
	return s.nameStubs(stubs, slots)
}

// stubsAMD64 finds the stubs in a PLT. Each has one "jmp *SLOT(%rip)", possibly
// behind an ENDBR64 and with a BND prefix.
func stubsAMD64(code []byte, addr, entsize uint64) []stub {
	if entsize < 8 || entsize > 64 {
		entsize = 16
	}
	var stubs []stub
	for off := uint64(0); off+entsize <= uint64(len(code)); off += entsize {
		b := code[off : off+entsize]
		at := uint64(0)
		if len(b) >= 11 && binary.BigEndian.Uint32(b) == 0xf30f1efa {
			at = 4
		}
		if b[at] == 0xf2 {
			at++
		}
		if at+6 > entsize || b[at] != 0xff || b[at+1] != 0x25 {
			continue
		}
		disp := int64(int32(binary.LittleEndian.Uint32(b[at+2:])))
		next := addr + off + at + 6
		stubs = append(stubs, stub{start: addr + off, end: addr + off + entsize, slot: next + uint64(disp)})
	}
	return stubs
}

// stubsARM64 finds the stubs in a PLT: "adrp x16, PAGE; ldr x17, [x16, #OFF]",
// possibly behind a "bti c".
func stubsARM64(code []byte, addr, _ uint64) []stub {
	const btiC = 0xd503245f
	insn := func(off int) uint32 { return binary.LittleEndian.Uint32(code[off:]) }
	var stubs []stub
	for off := 0; off+16 <= len(code); off += 4 {
		adrp, ldr := insn(off), insn(off+4)
		if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
			continue
		}
		imm := int64(adrp>>5&0x7ffff)<<2 | int64(adrp>>29&3)
		imm = imm << 43 >> 31 // 21 bits, sign extended, in pages
		pc := addr + uint64(off)
		p := stub{start: pc, end: pc + 16, slot: pc&^0xfff + uint64(imm) + uint64(ldr>>10&0xfff)*8}
		if off >= 4 && insn(off-4) == btiC {
			p.start -= 4
		}
		stubs = append(stubs, p)
	}
	return stubs
}

// Relocation types that fill a slot of the GOT, from the psABI of each machine.
type gotRelocs struct {
	jumpSlot, globDat, iRelative uint32
}

func relocsOf(m elf.Machine) gotRelocs {
	if m == elf.EM_AARCH64 {
		return gotRelocs{uint32(elf.R_AARCH64_JUMP_SLOT), uint32(elf.R_AARCH64_GLOB_DAT),
			uint32(elf.R_AARCH64_IRELATIVE)}
	}
	return gotRelocs{uint32(elf.R_X86_64_JMP_SLOT), uint32(elf.R_X86_64_GLOB_DAT), uint32(elf.R_X86_64_IRELATIVE)}
}

// nameStubs walks the relocations of the file and names the stubs whose slot
// they fill.
func (s *symbolReader) nameStubs(stubs []stub, slots map[uint64]uint32) error {
	dynsym, base, err := s.dynsym()
	if err != nil || dynsym == nil {
		return err
	}
	types := relocsOf(s.file.Machine)
	const relaSize = 24
	return s.eachRela(relaSize, func(b []byte) {
		typ := s.file.ByteOrder.Uint32(b[8:])
		if typ != types.jumpSlot && typ != types.globDat {
			return
		}
		i, ok := slots[s.file.ByteOrder.Uint64(b)]
		if !ok {
			return
		}
		sym := uint64(s.file.ByteOrder.Uint32(b[12:]))
		if (sym+1)*sym64Size > uint64(len(dynsym)) {
			return
		}
		r := decodeSymbol(dynsym[sym*sym64Size:], s.file.Class, s.file.ByteOrder)
		s.addStub(stubs[i], uint64(base)+uint64(r.name))
	})
}

func (s *symbolReader) addStub(p stub, nameOff uint64) {
	const suffix = "@plt\x00"
	name := s.nameAt(nameOff)
	if len(name) == 0 || len(name) > maxPLTName || !s.mayCopy(len(name)+len(suffix)) {
		return
	}
	e := entry{start: p.start, end: p.end, name: uint32(len(s.names)), bind: bindGlobal}
	s.names = append(s.names, name...)
	s.names = append(s.names, suffix...)
	s.keep(e)
}

// dynsym is the content of .dynsym, and where its names begin.
func (s *symbolReader) dynsym() ([]byte, uint32, error) {
	sec := s.file.SectionByType(elf.SHT_DYNSYM)
	if sec == nil || sec.Size > maxDynsym || s.checkRange(sec) != nil {
		return nil, 0, nil
	}
	if uint64(cap(s.scratch.dynsym)) < sec.Size {
		s.scratch.dynsym = make([]byte, sec.Size)
	}
	b := s.scratch.dynsym[:sec.Size]
	if err := readFull(sec, b, 0); err != nil {
		return nil, 0, fmt.Errorf("section %s: %w", sec.Name, err)
	}
	return b, s.dynstr, nil
}

// eachRela calls f for each relocation with addend of the dynamic sections.
func (s *symbolReader) eachRela(width int, f func(b []byte)) error {
	block := s.block(readBlock / width * width)
	for _, sec := range s.file.Sections {
		if sec.Type != elf.SHT_RELA || sec.Flags&elf.SHF_ALLOC == 0 || s.checkRange(sec) != nil {
			continue
		}
		size := int64(sec.Size) / int64(width) * int64(width)
		for off := int64(0); off < size; off += int64(len(block)) {
			b := block[:min(int64(len(block)), size-off)]
			if err := readFull(sec, b, off); err != nil {
				return fmt.Errorf("section %s: %w", sec.Name, err)
			}
			for ; len(b) > 0; b = b[width:] {
				f(b[:width])
			}
		}
	}
	return nil
}
