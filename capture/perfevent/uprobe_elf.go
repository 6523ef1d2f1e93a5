// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"

	"github.com/gantry-tools/gantry/internal/elffile"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// elfBinary is a program or library that a probe is put into. Its content may be
// hostile: a probe in a container's file goes through /proc/PID/root.
type elfBinary struct {
	file *os.File
	elf  *elf.File
}

// function is what the symbols of a binary say of one name.
type function struct {
	addr, size uint64
	more       []uint64 // addresses of others with this name
}

// openBinary opens a file, which must be an ELF file.
func openBinary(name string) (*elfBinary, error) {
	at, err := sys.Open(name, sys.OPath)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := sys.OpenRegular(at) // a pipe would wait, a device would act
	if err != nil {
		return nil, err
	}
	b := &elfBinary{file: fd.File(name)}
	info, err := b.file.Stat()
	if err == nil {
		b.elf, err = elffile.Open(b.file, info.Size())
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *elfBinary) close() { b.file.Close() }

// functions are the functions of both symbol tables.
func (b *elfBinary) functions() (map[string]function, error) {
	all := make(map[string]function)
	for _, t := range []struct {
		typ  elf.SectionType
		read func() ([]elf.Symbol, error)
	}{{elf.SHT_SYMTAB, b.elf.Symbols}, {elf.SHT_DYNSYM, b.elf.DynamicSymbols}} {
		if err := b.checkTable(t.typ); err != nil {
			return nil, err
		}
		list, err := t.read()
		if errors.Is(err, elf.ErrNoSymbols) {
			continue
		}
		if err != nil {
			return nil, err
		}
		addFunctions(all, list)
	}
	return all, nil
}

func addFunctions(all map[string]function, list []elf.Symbol) {
	for i := range list {
		s := &list[i]
		typ := elf.ST_TYPE(s.Info)
		if typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC || s.Section == elf.SHN_UNDEF || s.Name == "" {
			continue
		}
		f, ok := all[s.Name]
		switch {
		case !ok:
			f = function{addr: s.Value, size: s.Size}
		case f.addr != s.Value:
			f.more = append(f.more, s.Value)
		}
		all[s.Name] = f
	}
}

// maxTable bounds a table of symbols or of their names, in bytes.
const maxTable = 128 << 20

// checkTable refuses a table of symbols that debug/elf should not read.
func (b *elfBinary) checkTable(typ elf.SectionType) error {
	sec := b.elf.SectionByType(typ)
	if sec == nil {
		return nil
	}
	list := []*elf.Section{sec}
	if int64(sec.Link) < int64(len(b.elf.Sections)) {
		list = append(list, b.elf.Sections[sec.Link])
	}
	for _, s := range list {
		if s.FileSize > maxTable || s.Size > maxTable || s.Flags&elf.SHF_COMPRESSED != 0 {
			return fmt.Errorf("section %s of %d bytes is not read", s.Name, s.Size)
		}
	}
	return nil
}

// offset is where in the file the code at an address is.
func (b *elfBinary) offset(addr uint64) (uint64, bool) {
	for _, p := range b.elf.Progs {
		if code(p) && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// executable: there is code at an offset of the file.
func (b *elfBinary) executable(off uint64) bool {
	for _, p := range b.elf.Progs {
		if code(p) && off-p.Off < p.Filesz {
			return true
		}
	}
	return false
}

func code(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 }
