// SPDX-License-Identifier: Apache-2.0

package pclntab

import (
	"debug/elf"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/internal/elffile"
)

// loader reads sections.
type loader struct {
	f    *elf.File
	r    io.ReaderAt
	size uint64
}

// content is the whole of a section.
func (l *loader) content(sec *elf.Section) ([]byte, error) {
	if sec.Type == elf.SHT_NOBITS || sec.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, ErrNone
	}
	b, err := elffile.ReadSection(l.r, int64(l.size), sec, maxSection)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", sec.Name, err)
	}
	return b, nil
}

// from is the content of a section from an address on, nil if it is in none.
func (l *loader) from(addr uint64) []byte {
	for _, sec := range l.f.Sections {
		if sec.Type != elf.SHT_PROGBITS || sec.Flags&elf.SHF_ALLOC == 0 || addr < sec.Addr ||
			addr-sec.Addr >= sec.Size {
			continue
		}
		b, err := l.content(sec)
		if err != nil {
			return nil
		}
		return b[addr-sec.Addr:]
	}
	return nil
}

// module is what counts of runtime.moduledata; zero if it was not found.
type module struct{ text, goFunc uint64 }

// module finds runtime.moduledata: it begins with the address of the table, and
// goes on with that of the names in it. It has a section of its own since Go
// 1.26, and lies among other data before.
func (l *loader) module(table uint64, t *Table) module {
	names := table + t.namesOff
	left := uint64(maxSearch)
	for _, name := range []string{".go.module", ".noptrdata", ".data", ".data.rel.ro"} {
		sec := l.f.Section(name)
		if sec == nil || sec.Type != elf.SHT_PROGBITS || sec.Flags&elf.SHF_COMPRESSED != 0 || sec.Offset > l.size {
			continue
		}
		n := min(sec.Size, l.size-sec.Offset, left)
		left -= n
		if m, ok := l.search(sec.Offset, n, t, table, names); ok {
			return m
		}
	}
	return module{}
}

// search looks through n bytes of the file for the module data.
func (l *loader) search(off, n uint64, t *Table, table, names uint64) (module, bool) {
	ptr := uint64(t.ptr)
	need := (wordGoFunc + 1) * ptr
	block := make([]byte, min(n, searchBlock))
	for at := uint64(0); at+need <= n; {
		b := block[:min(uint64(len(block)), n-at)]
		if got, err := l.r.ReadAt(b, int64(off+at)); got < len(b) && err != nil {
			return module{}, false
		}
		i := uint64(0)
		for ; i+need <= uint64(len(b)); i += ptr {
			if t.word(b, int(i)) == table && t.word(b, int(i+wordFuncNames*ptr)) == names {
				return t.module(b[i:]), true
			}
		}
		if i == 0 {
			break
		}
		at += i
	}
	return module{}, false
}

func (t *Table) module(b []byte) module {
	goFunc := wordGoFunc
	if !t.v120 {
		goFunc = wordGoFunc118
	}
	return module{text: t.word(b, wordText*t.ptr), goFunc: t.word(b, goFunc*t.ptr)}
}
