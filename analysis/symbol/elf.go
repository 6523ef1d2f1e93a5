// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/elffile"
)

// Errors of ReadELF that a caller may want to tell apart.
var (
	ErrNotELF    = buildid.ErrNotELF
	ErrTruncated = io.ErrUnexpectedEOF // the file ends before what its headers name
)

// Limits of what is read of one file, whatever its headers claim. The largest
// real files (browsers with debug information) stay well below.
const (
	maxStrings = 1 << 29
	maxSymbols = 1 << 24
	maxName    = 1 << 16 // longer ones are left out
)

// Segment is a PT_LOAD program header: what of the file is mapped where.
type Segment struct {
	Offset, Vaddr    uint64
	FileSize, Memory uint64
	Exec             bool
}

// Object is a binary: its identity, its layout and its symbols, whose addresses
// are those of the file's own (virtual) address space. It does not keep the
// file. Any number of goroutines may use it.
type Object struct {
	Table
	BuildID  buildid.ID // zero if the file has none
	Type     elf.Type
	Machine  elf.Machine
	Segments []Segment // in the order of the file

	source    string  // of the names, where it is not the symbols of a file
	exec      Segment // the first executable one, which is nearly always meant
	demangled names
}

// Source says where the names come from: "symtab", or for generated code
// "perf-map" or "jitdump".
func (o *Object) Source() string {
	if o.source == "" {
		return "symtab"
	}
	return o.source
}

// ReadELF reads the symbols of the ELF file in r, which has size bytes. A file
// without symbols gives an Object without symbols. Errors are ErrNotELF,
// ErrTruncated, or say what is wrong where.
func ReadELF(r io.ReaderAt, size int64) (*Object, error) { return readELF(r, size, nil) }

// readELF is ReadELF with a place to look for the symbols of stripped files,
// which may be nil.
func readELF(r io.ReaderAt, size int64, debug *debugSource) (*Object, error) {
	f, err := openELF(r, size)
	if err != nil {
		return nil, err
	}
	o := &Object{Type: f.Type, Machine: f.Machine}
	o.BuildID, err = buildid.FromFile(r, size)
	if err != nil && !errors.Is(err, buildid.ErrNoID) {
		return nil, fmt.Errorf("read build-id: %w", err)
	}
	o.setSegments(f.Progs)
	s := &symbolReader{file: f, size: uint64(size)}
	if err := s.read(); err != nil {
		return nil, err
	}
	if s.stripped() {
		s.addSeparate(o.BuildID, debug, r)
	}
	// The bytes are not written to any more.
	o.Table, _ = buildTable(unsafe.String(unsafe.SliceData(s.names), len(s.names)), s.entries, better, 0)
	o.compact()
	return o, nil
}

func openELF(r io.ReaderAt, size int64) (*elf.File, error) {
	f, err := elffile.Open(r, size)
	if errors.Is(err, elffile.ErrNotELF) {
		err = ErrNotELF
	}
	return f, err
}

func (o *Object) setSegments(progs []*elf.Prog) {
	for _, p := range progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		s := Segment{Offset: p.Off, Vaddr: p.Vaddr, FileSize: p.Filesz, Memory: p.Memsz, Exec: p.Flags&elf.PF_X != 0}
		o.Segments = append(o.Segments, s)
		if s.Exec && o.exec.FileSize == 0 {
			o.exec = s
		}
	}
}

// Addr translates an address of a process into one of the file, for Lookup:
// start and pgoff are those of the mapping that ip lies in.
func (o *Object) Addr(start, pgoff, ip uint64) uint64 {
	off := ip - start + pgoff
	if off-o.exec.Offset < o.exec.FileSize {
		return off - o.exec.Offset + o.exec.Vaddr
	}
	return o.OffsetToAddr(off)
}

// OffsetToAddr translates an offset in the file into an address. Mappings end at
// a page, so that an offset may lie behind what a segment has of the file; it is
// taken as a part of the executable segment before it. In a file without
// segments, offsets are addresses.
func (o *Object) OffsetToAddr(off uint64) uint64 {
	var in, before *Segment
	for i := range o.Segments {
		s := &o.Segments[i]
		switch {
		case off-s.Offset < s.FileSize:
			if in == nil || s.Exec && !in.Exec {
				in = s
			}
		case s.Exec && s.Offset <= off:
			before = s
		}
	}
	switch {
	case in != nil:
		before = in
	case before == nil && len(o.Segments) > 0:
		before = &o.Segments[0]
	case before == nil:
		return off
	}
	return off - before.Offset + before.Vaddr
}
