// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// TestHostileFiles: claims that no file can keep cost no memory.
func TestHostileFiles(t *testing.T) {
	c := newCFI(perf.AMD64)
	data := c.bytes()
	good := makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, 64), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: data})
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	sections := le.Uint64(good[40:])
	big := packed(t, elf.COMPRESS_ZLIB, data)
	le.PutUint64(big[8:], 1<<40)
	for name, file := range map[string][]byte{
		"empty":            {},
		"no ELF":           []byte("#!/bin/sh\n"),
		"short":            good[:80],
		"32 bit":           change(func(b []byte) { b[elf.EI_CLASS] = 1 }),
		"big endian":       change(func(b []byte) { b[elf.EI_DATA] = 2 }),
		"other machine":    change(func(b []byte) { b[18] = byte(elf.EM_S390) }),
		"arm64":            change(func(b []byte) { le.PutUint16(b[18:], uint16(elf.EM_AARCH64)) }),
		"sections outside": change(func(b []byte) { le.PutUint64(b[40:], 1<<62) }),
		"section outside":  change(func(b []byte) { le.PutUint64(b[sections+64+24:], 1<<63) }),
		"huge section":     change(func(b []byte) { le.PutUint64(b[sections+64+32:], 1<<40) }),
		"progs outside":    change(func(b []byte) { le.PutUint64(b[32:], 1<<62) }),
		"prog width":       change(func(b []byte) { b[54] = 3 }),
		"unpacked":         makeELF(elf.EM_X86_64, testSection{name: ".debug_frame", data: big, flags: elf.SHF_COMPRESSED}),
		"no CFI":           makeELF(elf.EM_X86_64, testSection{name: ".text", addr: codeAt, data: make([]byte, 64), exec: true}),
	} {
		b := binaryOf(perf.AMD64, file)
		b.load()
		if _, ok := b.ruleAt(leafAt); ok && name != "section outside" && name != "huge section" {
			t.Errorf("%s: a rule", name)
		}
		if name != "section outside" && name != "huge section" && b.Err() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestTooLarge: files share what is read of all of them.
func TestTooLarge(t *testing.T) {
	c := newCFI(perf.AMD64)
	file := makeELF(elf.EM_X86_64, testSection{name: ".eh_frame", addr: frameAt, data: c.bytes()})
	b := binaryOf(perf.AMD64, file)
	b.left = 16
	b.load()
	if !errors.Is(b.Err(), errTooLarge) {
		t.Errorf("error %v", b.Err())
	}
}

// TestEndlessWork: entries that overlap are not run for ever.
func TestEndlessWork(t *testing.T) {
	tab := table{work: maxWork - 10}
	p := program{t: &tab, arch: perf.AMD64, cie: &cie{codeAlign: 1}}
	if err := p.run(make([]byte, 8)); err != nil {
		t.Error(err)
	}
	if err := p.run(make([]byte, 8)); !errors.Is(err, errCFI) {
		t.Errorf("error %v", err)
	}
}

// failingFile has a part that cannot be read.
type failingFile struct {
	memFile
	from int64
}

func (f failingFile) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > f.from {
		return 0, io.ErrUnexpectedEOF
	}
	return f.memFile.ReadAt(b, off)
}

// TestReadErrors: a file that fails anywhere is one without CFI.
func TestReadErrors(t *testing.T) {
	c := newCFI(perf.AMD64)
	file := makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, 64), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: c.bytes()})
	for from := range len(file) {
		b := NewBinary(perf.AMD64, func() (File, int64, error) {
			return failingFile{memFile{bytes.NewReader(file)}, int64(from)}, int64(len(file)), nil
		})
		b.load()
		b.ruleAt(leafAt)
		b.codeBytes(leafAt, 8)
		if b.Err() == nil {
			t.Fatalf("read up to %d of %d: no error", from, len(file))
		}
	}
}

// TestPlacesInCIE: the instructions of a CIE, which is of no function, cannot say
// where in it they hold, nor go back to what they make.
func TestPlacesInCIE(t *testing.T) {
	for name, insns := range map[string][]byte{
		"set_loc": {opSetLoc, 0, 0, 0, 0},
		"advance": {opAdvance | 1},
		"restore": {opRestore | amd64RIP},
	} {
		c := newCFI(perf.AMD64)
		c.insns = append(c.insns, insns)
		b := binaryOf(perf.AMD64, makeELF(elf.EM_X86_64, testSection{name: ".eh_frame", addr: frameAt, data: c.bytes()}))
		b.load()
		if _, ok := b.ruleAt(leafAt); ok || b.Err() != nil {
			t.Errorf("%s: a rule, or %v", name, b.Err())
		}
	}
}
