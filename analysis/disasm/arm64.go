// SPDX-License-Identifier: Apache-2.0

package disasm

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
)

// pageMask takes the place in a page off an address, as ADRP does.
const pageMask = 1<<12 - 1

func arm64(code []byte, addr uint64) Insn {
	in := Insn{Addr: addr, Size: min(4, len(code))}
	if len(code) < 4 {
		in.Text, in.Unknown = fmt.Sprintf(".byte %#x", code), true
		return in
	}
	inst, text, ok := decodeARM64(code[:4])
	if !ok {
		in.Text, in.Unknown = fmt.Sprintf(".inst 0x%08x", binary.LittleEndian.Uint32(code)), true
		return in
	}
	for _, arg := range inst.Args {
		rel, ok := arg.(arm64asm.PCRel)
		if !ok {
			continue
		}
		switch inst.Op {
		case arm64asm.ADRP:
			in.Target = addr&^pageMask + uint64(rel)
		case arm64asm.BL:
			in.Target, in.Flow = addr+uint64(rel), Call
		case arm64asm.B, arm64asm.CBZ, arm64asm.CBNZ, arm64asm.TBZ, arm64asm.TBNZ:
			in.Target, in.Flow = addr+uint64(rel), Jump
		default:
			in.Target = addr + uint64(rel)
		}
		text = distance.ReplaceAllString(text, fmt.Sprintf("%#x", in.Target))
	}
	if inst.Op == arm64asm.BLR {
		in.Flow = Call
	}
	in.Text = text
	return in
}

// distance is how the library writes what is a distance away.
var distance = regexp.MustCompile(`\.[+-]0x[0-9a-f]+`)

// decodeARM64 is decodeAMD64 for one instruction of four bytes.
func decodeARM64(code []byte) (inst arm64asm.Inst, text string, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	inst, err := arm64asm.Decode(code)
	if err != nil {
		return inst, "", false
	}
	return inst, strings.TrimSpace(arm64asm.GNUSyntax(inst)), true
}
