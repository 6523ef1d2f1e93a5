// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"math/bits"

	"github.com/gantry-tools/gantry/perf"
)

// Numbers of DWARF registers, from the psABI of each architecture.
const (
	amd64RBP = 6
	amd64RSP = 7
	amd64RIP = 16 // "return address"

	arm64FP = 29
	arm64LR = 30
	arm64SP = 31
	arm64PC = 32

	// numRegs is how many DWARF registers are followed, from 0 on: the general
	// ones. Vector registers hold no address that a step needs.
	numRegs = 33
)

// registers are the registers of an architecture that have a role, and what is
// told of them.
type registers struct {
	sp, fp uint8
	// pc is where the address that was interrupted is, ra where a call leaves
	// the address that it returns to, unless the CFI says otherwise.
	pc, ra uint8
	// perf has the DWARF number of each bit of a sample's register mask, from
	// enum perf_event_x86_regs or perf_event_arm_regs in asm/perf_regs.h.
	perf []int8
}

const none = -1

func registersOf(a perf.Arch) *registers {
	if a == perf.ARM64 {
		return &arm64Registers
	}
	return &amd64Registers
}

var amd64Registers = registers{
	sp: amd64RSP, fp: amd64RBP, pc: amd64RIP, ra: amd64RIP,
	// ax bx cx dx si di bp sp ip flags cs ss ds es fs gs r8-r15
	perf: []int8{
		0, 3, 2, 1, 4, 5, amd64RBP, amd64RSP, amd64RIP,
		none, none, none, none, none, none, none, 8, 9, 10, 11, 12, 13, 14, 15,
	},
}

var arm64Registers = registers{
	sp: arm64SP, fp: arm64FP, pc: arm64PC, ra: arm64LR,
	perf: []int8{
		0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
		21, 22, 23, 24, 25, 26, 27, 28, arm64FP, arm64LR, arm64SP, arm64PC,
	},
}

// arm64Address takes the pointer authentication code, and a tag, out of an
// address: Linux gives programs 48 bits unless they ask for more.
func arm64Address(v uint64) uint64 { return v & (1<<48 - 1) }

// load fills the registers with those of a sample, in the order of the bits
// of mask. It says which are known.
func (r *registers) load(regs *[numRegs]uint64, mask uint64, values []uint64) (known uint64) {
	for i := 0; mask != 0 && i < len(values); i++ {
		bit := bits.TrailingZeros64(mask)
		mask &= mask - 1
		if bit < len(r.perf) && r.perf[bit] != none {
			n := r.perf[bit]
			regs[n] = values[i]
			known |= 1 << n
		}
	}
	return known
}
