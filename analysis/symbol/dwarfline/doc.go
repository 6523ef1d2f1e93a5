// SPDX-License-Identifier: Apache-2.0

// Package dwarfline tells which source line an address belongs to, and which
// calls the compiler inlined there, from DWARF of version 2 to 5.
//
// Start with [Load] for the debug sections of an ELF file, then [New]; [Data.Calls]
// answers for an address. Nothing is read before it is needed: first of each
// unit its head only, which says which addresses it covers; then, of the units that
// the addresses hit, all once.
//
// Files are taken as hostile. What is malformed is left out, and [Data.Err] says
// that something was. References may form cycles, tables may overlap or claim to
// be huge: work is paid for from a supply that grows with the size of the
// sections, and ends with it.
package dwarfline

import "errors"

// Call is one of the calls that an address belongs to.
type Call struct {
	// Name is the function's: the one that linkers know if DWARF tells, else
	// the one in the source. It is as the file has it, mangled, and empty if
	// the function has none.
	Name string
	// File is the path of the source, made absolute by the directory of the
	// compilation if that is known; empty if not known.
	File string
	Line uint32 // 0 if not known
}

// Errors of Data.Err.
var (
	ErrMalformed = errors.New("malformed DWARF")
	ErrTooMuch   = errors.New("DWARF takes more work than its size allows for")
	// ErrSplit is a unit whose file of split DWARF is not there, or of another
	// build: its inlined calls are lost.
	ErrSplit = errors.New("inlined calls are missing: split DWARF")
)

// Limits, whatever a file claims.
const (
	maxUnits    = 1 << 20
	maxRanges   = 1 << 22 // kept of all units; and of the functions of one unit
	maxRows     = 1 << 25 // of line tables, of all units
	maxFuncs    = 1 << 24 // of all units
	maxDepth    = 1 << 10 // of the tree of a unit
	maxHops     = 16      // from reference to reference, to a name
	maxFiles    = 1 << 20 // in the table of a line program
	maxAbbrevs  = 1 << 16 // in a table of abbreviations
	maxSplits   = 1 << 14 // files of split DWARF
	maxNameSize = 1 << 16
	maxTexts    = 1 << 29 // bytes of names and paths: many may be one text of the file
)
