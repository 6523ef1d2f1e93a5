// SPDX-License-Identifier: Apache-2.0

// Package disasm shows machine code as assembler: x86-64 and arm64, in the
// syntax of GNU.
//
// The code comes from binaries and recordings that may be hostile. Every
// byte of it becomes part of an instruction, and no instruction is empty: what
// is not understood is shown as data. What that is, Disassemble counts, so that
// a caller may ask a better disassembler: [ParseObjdump] reads what objdump
// says.
package disasm

import "github.com/gantry-tools/gantry/perf"

// Flow is how an instruction goes on.
type Flow uint8

// What instructions do to the flow of the program.
const (
	// Next: it goes on with the instruction behind it.
	Next Flow = iota
	// Jump: it goes on, or may go on, elsewhere.
	Jump
	// Call: a function is called.
	Call
)

// Insn is one instruction.
type Insn struct {
	Addr uint64
	Size int // bytes, at least 1
	// Text is the assembler, without the name of the target.
	Text string
	// Target is where it jumps, what it calls, or the data that it refers to
	// by its distance; 0 if that is not in the instruction.
	Target uint64
	Flow   Flow
	// Unknown: the instruction is not known; Text shows its bytes.
	Unknown bool
}

// Disassemble splits code, which was at addr, into instructions. unknown is how
// many of them were not understood. It is nil for NoArch.
func Disassemble(a perf.Arch, code []byte, addr uint64) (list []Insn, unknown int) {
	var one func([]byte, uint64) Insn
	switch a {
	case perf.AMD64:
		one = amd64
	case perf.ARM64:
		one = arm64
	default:
		return nil, 0
	}
	for len(code) > 0 {
		in := one(code, addr)
		if in.Unknown {
			unknown++
		}
		list = append(list, in)
		code, addr = code[in.Size:], addr+uint64(in.Size)
	}
	return list, unknown
}
