// SPDX-License-Identifier: Apache-2.0

package disasm

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// maxAMD64 is the longest instruction that processors take.
const maxAMD64 = 15

// frequent are instructions that compilers like and the library has wrong: it
// takes the marks of places that indirect jumps may lead to for a prefix, and the
// end of vector code for longer than it is.
var frequent = []struct{ code, text string }{
	{"\xf3\x0f\x1e\xfa", "endbr64"}, {"\xf3\x0f\x1e\xfb", "endbr32"},
	{"\xc5\xf8\x77", "vzeroupper"}, {"\xc5\xfc\x77", "vzeroall"},
}

func amd64(code []byte, addr uint64) Insn {
	code = code[:min(len(code), maxAMD64)]
	for i := range frequent {
		if f := &frequent[i]; bytes.HasPrefix(code, []byte(f.code)) {
			return Insn{Addr: addr, Size: len(f.code), Text: f.text}
		}
	}
	inst, text, ok := decodeAMD64(code, addr)
	if !ok {
		return unknownAMD64(code, addr)
	}
	in := Insn{Addr: addr, Size: inst.Len, Text: text}
	next := addr + uint64(inst.Len)
	for _, arg := range inst.Args {
		switch arg := arg.(type) {
		case x86asm.Rel:
			in.Target, in.Flow = next+uint64(int64(arg)), Jump
		case x86asm.Mem:
			if arg.Base == x86asm.RIP && arg.Index == 0 {
				in.Target = next + uint64(arg.Disp)
			}
		}
	}
	if inst.Op == x86asm.CALL {
		in.Flow = Call
	}
	return in
}

// decodeAMD64 asks the library, whose bugs must not end the program: the code
// may be anything.
func decodeAMD64(code []byte, addr uint64) (inst x86asm.Inst, text string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	inst, err := x86asm.Decode(code, 64)
	// A prefix before an unknown instruction comes as an instruction without
	// an operation.
	if err != nil || inst.Op == 0 || inst.Len < 1 || inst.Len > len(code) {
		return inst, "", false
	}
	// The library is wrong about the length of some vector instructions.
	if n := vectorLength(code); n != 0 && n != inst.Len {
		return inst, "", false
	}
	return inst, strings.TrimSpace(x86asm.GNUSyntax(inst, addr, nil)), true
}

// unknownAMD64 is an instruction that is not known, as data. Its length is
// guessed by the rules that nearly all instructions follow, so that those
// behind it are found.
func unknownAMD64(code []byte, addr uint64) Insn {
	n := min(max(guessLength(code), 1), len(code))
	var b strings.Builder
	b.WriteString(".byte ")
	for i, c := range code[:n] {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "0x%02x", c)
	}
	return Insn{Addr: addr, Size: n, Text: b.String(), Unknown: true}
}

// guessLength is how long an instruction is by its encoding alone: prefixes,
// the opcode's map, ModRM with what it asks for, and the immediate byte that
// the third map has.
func guessLength(code []byte) int {
	at := 0
	for at < len(code) && bytes.IndexByte([]byte{0x66, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0x67, 0xf0},
		code[at]) >= 0 {
		at++
	}
	if at < len(code) && code[at]&0xf0 == 0x40 { // REX
		at++
	}
	if at+1 >= len(code) {
		return len(code)
	}
	if n := vectorLength(code[at:]); n != 0 {
		return at + n
	}
	if code[at] != 0x0f {
		return at + 1
	}
	imm := 0
	if at++; code[at] == 0x38 || code[at] == 0x3a {
		imm = int(code[at]&2) / 2
		at++
	}
	at++ // the opcode
	return at + modRM(code, at) + imm
}

// vectorLength is how long an instruction is that begins with VEX or EVEX, 0 for
// others.
func vectorLength(code []byte) int {
	if len(code) < 3 {
		return 0
	}
	prefix, opmap := 0, byte(1)
	switch code[0] {
	case 0xc5: // VEX of two bytes, for the first map only
		prefix = 2
	case 0xc4:
		prefix, opmap = 3, code[1]&0x1f
	case 0x62:
		prefix, opmap = 4, code[1]&7
	}
	if prefix == 0 || prefix >= len(code) {
		return 0
	}
	op, n := code[prefix], prefix+1
	if opmap == 1 && op == 0x77 && prefix < 4 { // VZEROUPPER, VZEROALL
		return n
	}
	n += modRM(code, n)
	if opmap == 3 || opmap == 1 && (op >= 0x70 && op <= 0x73 || op == 0xc2 || op >= 0xc4 && op <= 0xc6) {
		n++
	}
	return n
}

// modRM is how long the ModRM byte at an offset is with SIB and displacement.
func modRM(code []byte, at int) int {
	if at >= len(code) {
		return 0
	}
	mod, rm, n := code[at]>>6, code[at]&7, 1
	if mod == 3 {
		return n
	}
	base := rm
	if rm == 4 {
		n++
		if at+1 < len(code) {
			base = code[at+1] & 7
		}
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, base == 5:
		n += 4
	}
	return n
}
