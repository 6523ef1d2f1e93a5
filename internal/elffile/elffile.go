// SPDX-License-Identifier: Apache-2.0

// Package elffile opens ELF files with debug/elf that may come from a
// container: what debug/elf would read without a limit is looked at first.
package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrNotELF is a file that does not begin as an ELF file does.
var ErrNotELF = errors.New("not an ELF file")

// Open reads the headers of the ELF file in r, which has size bytes. The error
// is ErrNotELF, io.ErrUnexpectedEOF for a file that ends before what its
// headers name, or says what is wrong. Closing the result does nothing.
//
// Sections are not checked: who reads one bounds how much.
func Open(r io.ReaderAt, size int64) (*elf.File, error) {
	var ident [elf.EI_NIDENT]byte
	n, err := r.ReadAt(ident[:min(max(size, 0), elf.EI_NIDENT)], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if !strings.HasPrefix(string(ident[:n]), elf.ELFMAG) {
		return nil, ErrNotELF
	}
	file := io.NewSectionReader(r, 0, size)
	if err := checkSections(file, ident[:]); err != nil {
		return nil, fmt.Errorf("read ELF headers: %w", err)
	}
	f, err := elf.NewFile(file)
	if errors.Is(err, io.EOF) { // what debug/elf gives for headers beyond the end
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read ELF headers: %w", err)
	}
	return f, nil
}

const (
	maxSections     = 1 << 16
	maxSectionNames = 1 << 24
)

// sectionTable is where the section headers of a file are.
type sectionTable struct {
	r            io.ReaderAt
	order        binary.ByteOrder
	is32         bool
	off          uint64
	width        uint16
	count, names uint64 // how many sections; which of them has their names
}

func readSectionTable(r io.ReaderAt, ident []byte) (sectionTable, error) {
	t := sectionTable{r: r, order: binary.LittleEndian, is32: elf.Class(ident[elf.EI_CLASS]) == elf.ELFCLASS32}
	if elf.Data(ident[elf.EI_DATA]) == elf.ELFDATA2MSB {
		t.order = binary.BigEndian
	}
	if t.is32 {
		var h elf.Header32
		err := t.decode(0, &h)
		t.off, t.width, t.count, t.names = uint64(h.Shoff), h.Shentsize, uint64(h.Shnum), uint64(h.Shstrndx)
		return t, err
	}
	var h elf.Header64
	err := t.decode(0, &h)
	t.off, t.width, t.count, t.names = h.Shoff, h.Shentsize, uint64(h.Shnum), uint64(h.Shstrndx)
	return t, err
}

// section returns what counts of one section header.
func (t *sectionTable) section(n uint64) (size uint64, link uint32, err error) {
	off := t.off + n*uint64(t.width)
	if t.is32 {
		var s elf.Section32
		err = t.decode(off, &s)
		return uint64(s.Size), s.Link, err
	}
	var s elf.Section64
	err = t.decode(off, &s)
	return s.Size, s.Link, err
}

// decode reads a structure of fixed size.
func (t *sectionTable) decode(off uint64, v any) error {
	if off > 1<<62 {
		return fmt.Errorf("header at offset %#x: %w", off, io.ErrUnexpectedEOF)
	}
	b := make([]byte, binary.Size(v))
	if n, err := t.r.ReadAt(b, int64(off)); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("header: %d bytes at %#x: %w", len(b), off, err)
	}
	_, err := binary.Decode(b, t.order, v)
	return err
}

// checkSections refuses a file whose section headers or section names debug/elf
// should not read, as it reads as much of both as there is: in a file with
// holes, which takes no room on a disk, that can be more than the memory.
func checkSections(r io.ReaderAt, ident []byte) error {
	t, err := readSectionTable(r, ident)
	if err != nil || t.off == 0 {
		return err
	}
	if t.count == 0 { // the number did not fit, and is in the first header
		size, link, err := t.section(0)
		if err != nil {
			return err
		}
		t.count = size
		if t.names == uint64(elf.SHN_XINDEX) {
			t.names = uint64(link)
		}
	}
	if t.count > maxSections {
		return fmt.Errorf("%d sections, at most %d are read", t.count, maxSections)
	}
	if t.names >= t.count {
		return nil // debug/elf says what is wrong
	}
	size, _, err := t.section(t.names)
	if err == nil && size > maxSectionNames {
		err = fmt.Errorf("names of sections have %d bytes, at most %d are read", size, maxSectionNames)
	}
	return err
}
