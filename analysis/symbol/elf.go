// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
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

	// Place is where the file was opened, as its Opener calls it.
	Place string

	// Lost counts, of generated code, the lines and records that were left out:
	// they make no sense, or are beyond a limit.
	Lost int

	sources   []uint16 // of the names, by symbol; nil if all have source
	source    uint16
	read      int     // symbols that were read, whether or not they are kept
	exec      Segment // the first executable one, which is nearly always meant
	demangled names
}

// Where names come from: the kinds of entries.
const (
	fromSymtab uint16 = iota
	fromDynsym
	fromPLT
	fromDebugFile
	fromMini
	fromGo
	fromMap
	fromDump
)

// Source says where the name of a symbol comes from: "symtab", "dynsym", "plt",
// "debug file", "mini debug info" or "pclntab", of generated code "perf-map" or
// "jitdump".
func (o *Object) Source(sym int32) string {
	from := o.source
	if o.sources != nil {
		from = o.sources[sym]
	}
	return [...]string{"symtab", "dynsym", "plt", "debug file", "mini debug info", "pclntab", "perf-map",
		"jitdump"}[from]
}

// HasSymbols reports whether the file has symbols at all, also if none of them
// is needed for the addresses that were asked for.
func (o *Object) HasSymbols() bool { return o.read > 0 || o.Len() > 0 }

// setTable makes the table of o.
func (o *Object) setTable(names []byte, entries []entry) {
	// The bytes are not written to as long as the table has them.
	o.Table, o.sources = buildTable(unsafe.String(unsafe.SliceData(names), len(names)), entries, new(demangling).better,
		0)
	for _, from := range o.sources {
		if from != o.sources[0] {
			return
		}
	}
	if len(o.sources) > 0 {
		o.source, o.sources = o.sources[0], nil
	}
}

// ReadELF reads the symbols of the ELF file in r, which has size bytes. A file
// without symbols gives an Object without symbols. Errors are ErrNotELF,
// ErrTruncated, or say what is wrong where.
func ReadELF(r io.ReaderAt, size int64) (*Object, error) { return new(loader).read(r, size) }

// loader reads binaries.
type loader struct {
	// debug is where to look for the symbols of stripped files; it may be nil.
	debug *debugSource
	// offsets are those in the file that will be looked up; the symbols need
	// to be right there only. nil is all.
	offsets []uint64
	scratch *scratch // nil is none to reuse
}

// scratch is memory that the reading of one file after the other reuses: fresh
// memory costs more than what is done in it.
type scratch struct {
	names, block, dynsym []byte
	wanted, spare        []uint64
	subset               symbolSubset
}

func (l *loader) read(r io.ReaderAt, size int64) (*Object, error) {
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
	if l.offsets != nil {
		ok, err := l.readSubset(o, f, r, size)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return o, nil
		}
	}
	s := &symbolReader{file: f, size: uint64(size)}
	if err := l.symbols(s, o, r); err != nil {
		return nil, err
	}
	o.setTable(s.names, s.entries)
	o.compact()
	return o, nil
}

// symbols reads the symbols of o's file, which r has, and if it has none but
// those for its linking, the separate ones.
func (l *loader) symbols(s *symbolReader, o *Object, r io.ReaderAt) error {
	if err := s.read(); err != nil {
		return err
	}
	if s.stripped() {
		s.addSeparate(o.BuildID, l.debug, r)
	}
	o.read = s.kept
	return nil
}

// readSubset gives o a table of the symbols that the wanted offsets need. It is not
// ok if that takes all symbols.
func (l *loader) readSubset(o *Object, f *elf.File, r io.ReaderAt, size int64) (ok bool, err error) {
	mem := l.scratch
	if mem == nil {
		mem = new(scratch)
	}
	mem.wanted = slices.Grow(mem.wanted[:0], len(l.offsets))
	for _, off := range l.offsets {
		mem.wanted = append(mem.wanted, o.Addr(0, 0, off))
	}
	mem.wanted, mem.spare = sortAddrs(mem.wanted, mem.spare)
	mem.subset.reset(slices.Compact(mem.wanted))
	s := &symbolReader{file: f, size: uint64(size), scratch: mem, names: mem.names[:0], subset: &mem.subset}
	err = l.symbols(s, o, r)
	mem.names = s.names
	if err != nil {
		return false, err
	}
	entries, ok := mem.subset.entries()
	if ok {
		o.setTable(s.names, entries)
		o.copyNames()
	}
	return ok, nil
}

func openELF(r io.ReaderAt, size int64) (*elf.File, error) {
	return elffile.Open(r, size)
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
