// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// symbolReader collects the symbols of one file.
type symbolReader struct {
	file    *elf.File
	size    uint64
	names   []byte // the string tables, one behind the other
	entries []entry
	subset  *symbolSubset // takes the entries, if there is one
	dynstr  uint32        // where the names of .dynsym begin
	text    []textSection // by section number
	scratch *scratch      // nil is none to reuse
	endless bool          // there are names longer than maxName
	second  bool          // reads .dynsym and what hangs on it
	from    uint16        // where the names come from that are read
	kept    int           // symbols
	copied  uint64        // bytes of names that stand in the file once more
	entry   entry         // the one at hand: in memory of its own each would be garbage
}

// textSection is what symbols need to know of a section.
type textSection struct {
	exec bool
	end  uint64 // address
}

// read takes the symbols of .symtab, then from .dynsym and the PLT those at
// addresses that .symtab does not name.
func (s *symbolReader) read() error {
	s.readText()
	if err := s.table(elf.SHT_SYMTAB); err != nil {
		return err
	}
	if s.file.SectionByType(elf.SHT_DYNSYM) == nil {
		return nil // linked statically
	}
	s.second, s.from = true, fromDynsym
	if err := s.table(elf.SHT_DYNSYM); err != nil {
		return err
	}
	s.from = fromPLT
	err := s.plt()
	s.second, s.from = false, fromSymtab
	return err
}

// keep takes a symbol that was read, if it has a name to show.
func (s *symbolReader) keep(e entry) {
	e.second, e.kind = s.second, s.from
	s.kept++
	s.entry = e
	if s.subset != nil {
		s.subset.add(s.names, &s.entry, s.isNamed)
	} else if s.isNamed(&s.entry) {
		s.entries = append(s.entries, e)
	}
}

func (s *symbolReader) readText() {
	s.text = make([]textSection, len(s.file.Sections))
	for i, sec := range s.file.Sections {
		s.text[i] = textSection{
			exec: sec.Flags&elf.SHF_EXECINSTR != 0 && sec.Flags&elf.SHF_ALLOC != 0,
			end:  sec.Addr + sec.Size,
		}
	}
}

// table adds the symbols of the first section of this type, if there is one.
func (s *symbolReader) table(typ elf.SectionType) error {
	sec := s.file.SectionByType(typ)
	if sec == nil || sec.Size == 0 {
		return nil
	}
	base, err := s.strings(sec)
	if err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	if typ == elf.SHT_DYNSYM {
		s.dynstr = base
	}
	if err := s.symbols(sec, base); err != nil {
		return fmt.Errorf("section %s: %w", sec.Name, err)
	}
	return nil
}

// strings appends the string table of a symbol section to the names and returns
// where it begins there.
func (s *symbolReader) strings(sec *elf.Section) (uint32, error) {
	if uint64(sec.Link) >= uint64(len(s.file.Sections)) {
		return 0, fmt.Errorf("names are in section %d, the file has %d", sec.Link, len(s.file.Sections))
	}
	str := s.file.Sections[sec.Link]
	if err := s.checkRange(str); err != nil {
		return 0, fmt.Errorf("names in %s: %w", str.Name, err)
	}
	base := uint64(len(s.names))
	if base+str.Size > maxStrings {
		return 0, fmt.Errorf("names in %s: %d bytes, at most %d are read", str.Name, str.Size, maxStrings)
	}
	end := base + str.Size
	grown := s.names
	if uint64(cap(s.names)) <= end {
		grown = make([]byte, base, max(end+1, s.namesLeft()))
		copy(grown, s.names)
	}
	grown = grown[:end+1]
	grown[end] = 0 // whatever the file says
	if err := readFull(str, grown[base:end], 0); err != nil {
		return 0, fmt.Errorf("names in %s: %w", str.Name, err)
	}
	s.names = grown
	s.endless = s.endless || endless(grown[base:])
	return uint32(base), nil
}

// mayCopy counts n bytes of a name that is made of one in the file, and reports
// whether it may be: all of them have room in a file, unless many are one.
func (s *symbolReader) mayCopy(n int) bool {
	if s.copied += uint64(n); s.copied > s.size || len(s.names)+n > maxStrings {
		return false
	}
	return true
}

// maxNamesBytes bounds what is made room for in advance.
const maxNamesBytes = 1 << 25

// namesLeft is the size of all names: those of .symtab, those of .dynsym, and
// of these once more what the PLT calls. Growing later would copy them.
func (s *symbolReader) namesLeft() uint64 {
	total := uint64(0)
	for _, sec := range s.file.Sections {
		if sec.Type != elf.SHT_SYMTAB && sec.Type != elf.SHT_DYNSYM ||
			uint64(sec.Link) >= uint64(len(s.file.Sections)) {
			continue
		}
		size := min(s.file.Sections[sec.Link].Size, maxNamesBytes) + 1
		if sec.Type == elf.SHT_DYNSYM {
			size *= 2
		}
		total += size
	}
	return min(total, maxNamesBytes)
}

// endless reports whether names has one that is longer than maxName.
func endless(names []byte) bool {
	for len(names) > maxName {
		end := bytes.LastIndexByte(names[:maxName+1], 0)
		if end < 0 {
			return true
		}
		names = names[end+1:]
	}
	return false
}

// checkRange refuses a section that is not in the file, in whole and as it is.
func (s *symbolReader) checkRange(sec *elf.Section) error {
	switch {
	case sec.Type == elf.SHT_NOBITS:
		return errors.New("section has no content")
	case sec.Flags&elf.SHF_COMPRESSED != 0:
		return errors.New("section is compressed")
	case sec.Offset > s.size || sec.FileSize > s.size-sec.Offset:
		return fmt.Errorf("%d bytes at offset %#x of a file of %d: %w", sec.FileSize, sec.Offset, s.size, ErrTruncated)
	}
	return nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = ErrTruncated
	}
	return fmt.Errorf("%d bytes at %#x: %w", len(b), off, err)
}

// rawSymbol is Elf32_Sym or Elf64_Sym.
type rawSymbol struct {
	name        uint32
	info, other uint8
	section     uint16
	value, size uint64
}

const (
	sym32Size = 16
	sym64Size = 24

	readBlock = 1 << 16
)

// block is room to read into. There is one.
func (s *symbolReader) block(size int) []byte {
	if s.scratch == nil {
		s.scratch = new(scratch)
	}
	if cap(s.scratch.block) < size {
		s.scratch.block = make([]byte, size)
	}
	return s.scratch.block[:size]
}

func symbolSize(c elf.Class) int {
	if c == elf.ELFCLASS64 {
		return sym64Size
	}
	return sym32Size
}

func decodeSymbol(b []byte, c elf.Class, o binary.ByteOrder) rawSymbol {
	if little := binary.LittleEndian; c == elf.ELFCLASS64 && o == binary.ByteOrder(little) { // nearly always
		b = b[:sym64Size]
		return rawSymbol{name: little.Uint32(b), info: b[4], other: b[5], section: little.Uint16(b[6:]),
			value: little.Uint64(b[8:]), size: little.Uint64(b[16:])}
	}
	if c == elf.ELFCLASS64 {
		return rawSymbol{name: o.Uint32(b), info: b[4], other: b[5], section: o.Uint16(b[6:]),
			value: o.Uint64(b[8:]), size: o.Uint64(b[16:])}
	}
	return rawSymbol{name: o.Uint32(b), value: uint64(o.Uint32(b[4:])), size: uint64(o.Uint32(b[8:])),
		info: b[12], other: b[13], section: o.Uint16(b[14:])}
}

// symbols adds the functions of a symbol section whose names begin at base.
func (s *symbolReader) symbols(sec *elf.Section, base uint32) error {
	if err := s.checkRange(sec); err != nil {
		return err
	}
	width := symbolSize(s.file.Class)
	count := sec.Size / uint64(width)
	if count > maxSymbols {
		return fmt.Errorf("%d symbols, at most %d are read", count, maxSymbols)
	}
	if s.entries == nil && s.subset == nil {
		s.entries = make([]entry, 0, count)
	}
	block := s.block(min(int(count)*width, readBlock/width*width))
	for off := 0; off < int(count)*width; off += len(block) {
		block = block[:min(len(block), int(count)*width-off)]
		if err := readFull(sec, block, int64(off)); err != nil {
			return err
		}
		for b := block; len(b) > 0; b = b[width:] {
			s.add(decodeSymbol(b, s.file.Class, s.file.ByteOrder), base)
		}
	}
	return nil
}

// add keeps a symbol if it is a function, or a label in code.
func (s *symbolReader) add(r rawSymbol, base uint32) {
	if r.section == 0 || int(r.section) >= len(s.text) || !s.text[r.section].exec {
		return // undefined, absolute, or data
	}
	if uint64(base)+uint64(r.name) >= uint64(len(s.names)) {
		return
	}
	e := entry{start: r.value, name: base + r.name, noSize: r.size == 0}
	switch elf.SymType(r.info & 0xf) {
	case elf.STT_FUNC, elf.STT_GNU_IFUNC:
	case elf.STT_NOTYPE:
		if v := elf.SymVis(r.other & 3); v == elf.STV_HIDDEN || v == elf.STV_INTERNAL {
			return
		}
		e.label = true
	default:
		return
	}
	switch elf.SymBind(r.info >> 4) {
	case elf.STB_LOCAL:
		e.bind = bindLocal
	case elf.STB_WEAK:
		e.bind = bindWeak
	default:
		e.bind = bindGlobal
	}
	if s.file.Machine == elf.EM_ARM && !e.label {
		e.start &^= 1 // the lowest bit tells Thumb code
	}
	e.end = s.text[r.section].end
	if !e.noSize {
		if e.end = e.start + r.size; e.end < e.start {
			e.end = math.MaxUint64
		}
	}
	s.keep(e)
}

// isNamed reports whether a symbol has a name to show. It does not look for the
// end of the name, which for all symbols of a file takes as long as all else.
func (s *symbolReader) isNamed(e *entry) bool {
	if s.names[e.name] == 0 {
		return false
	}
	if !e.label && !s.endless {
		return true
	}
	name := s.nameAt(uint64(e.name))
	return len(name) > 0 && !(e.label && s.isMapping(name))
}

// nameAt is the name at an offset, nothing if there is none or it is too long.
func (s *symbolReader) nameAt(off uint64) []byte {
	if off >= uint64(len(s.names)) {
		return nil
	}
	name := s.names[off:]
	return name[:max(bytes.IndexByte(name[:min(len(name), maxName+1)], 0), 0)]
}

// isMapping reports whether a label is one of those with which assemblers mark
// code and data ($a, $d, $x, on ARM and RISC-V), or one local to a function.
func (s *symbolReader) isMapping(name []byte) bool {
	if len(name) > 1 && name[0] == '.' && name[1] == 'L' {
		return true
	}
	switch s.file.Machine {
	case elf.EM_ARM, elf.EM_AARCH64, elf.EM_RISCV:
		return name[0] == '$'
	}
	return false
}
