// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// TestGuessAMD64: addresses without CFI, by the code there.
func TestGuessAMD64(t *testing.T) {
	const at = 0x800 // in the code, where there is no CFI
	for _, c := range []struct {
		name  string
		code  []byte
		into  uint64
		stack []uint64
		exact int
	}{
		{name: "push", code: []byte{0x55, 0x48, 0x89, 0xe5, 0x90}, stack: []uint64{returnTo}, exact: 1},
		{name: "endbr, push", code: []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, stack: []uint64{returnTo}, exact: 1},
		{name: "mov", code: []byte{0x55, 0x48, 0x89, 0xe5, 0x90}, into: 1, stack: []uint64{stackBase + 80, returnTo}, exact: 1},
		{name: "ret", code: []byte{0xc3, 0x90, 0x90, 0x90, 0x90}, stack: []uint64{returnTo}, exact: 1},
		{name: "body", code: []byte{0x90, 0x90, 0x90, 0x90, 0x90}, stack: []uint64{1, 2, 3, 4, 0, returnTo}, exact: 1},
		{name: "sigreturn", code: amd64Sigreturn, exact: 3,
			stack: append(make([]uint64, 5+15), stackBase+0x400, returnTo-1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := append(make([]byte, at), c.code...)
			s := regsOf(perf.AMD64, amd64Regs(codeAt+at+c.into, map[uint8]uint64{amd64RBP: stackBase + 32}))
			s.Memory = append(words(c.stack...), make([]byte, 64)...)
			got, res := New(perf.AMD64).Unwind(nil, s, spaceOf(perf.AMD64, newCFI(perf.AMD64), code))
			want := []uint64{loadAddr + codeAt + at + c.into, returnTo - 1}
			if c.name == "sigreturn" {
				res.Exact++ // what is interrupted is found by CFI again
			}
			if !slices.Equal(got, want) || res != (Result{Complete, c.exact}) {
				t.Errorf("%#x, %v; want %#x, exact %d", got, res, want, c.exact)
			}
		})
	}
}

// TestPLT: stubs without CFI, as LLVM's linker writes them.
func TestPLT(t *testing.T) {
	const lazy, direct = 0x1800, 0x1900
	c := newCFI(perf.AMD64)
	data := c.bytes()
	space := mapCode(perf.AMD64, makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true},
		testSection{name: ".plt", addr: lazy, data: make([]byte, 64)},
		testSection{name: ".plt.sec", addr: direct, data: make([]byte, 64)},
		testSection{name: ".eh_frame", addr: frameAt, data: data}))
	for at, pushed := range map[uint64]int{lazy: 2, lazy + 6: 3, lazy + 16: 1, lazy + 27: 2, direct + 16: 1, direct + 30: 1} {
		stack := make([]uint64, pushed)
		stack[pushed-1] = returnTo
		s := regsOf(perf.AMD64, amd64Regs(at))
		s.Memory = words(stack...)
		if got, res := New(perf.AMD64).Unwind(nil, s, space); len(got) != 2 || got[1] != returnTo-1 || res.End != Complete {
			t.Errorf("at %#x: %#x, %v", at, got, res)
		}
	}
}

// TestJIT: code without a file keeps its frame in the frame pointer.
func TestJIT(t *testing.T) {
	space := spaceOf(perf.AMD64, newCFI(perf.AMD64), nil)
	space.jit = 0x10000
	s := regsOf(perf.AMD64, map[uint8]uint64{amd64RIP: 0x10010, amd64RSP: stackBase, amd64RBP: stackBase + 8})
	s.Memory = words(1, stackBase+32, 0x10020, 4, 0, returnTo)
	u := New(perf.AMD64)
	got, res := u.Unwind(nil, s, space)
	if want := []uint64{0x10010, 0x1001f, returnTo - 1}; !slices.Equal(got, want) || res != (Result{Complete, 1}) || u.Stats.Guessed != 1 {
		t.Errorf("%#x, %v; want %#x", got, res, want)
	}
}

// arm64Regs are those of a task at pc, an address of the file.
func arm64Regs(pc uint64, more map[uint8]uint64) map[uint8]uint64 {
	regs := map[uint8]uint64{arm64PC: loadAddr + pc, arm64SP: stackBase}
	for k, v := range more {
		regs[k] = v
	}
	return regs
}

// TestARM64 has what differs from x86-64.
func TestARM64(t *testing.T) {
	const signed = 0x00aa<<48 | returnTo // as pointer authentication leaves it
	signal := make([]uint64, (128+176+8)/8+33)
	signal[len(signal)-2], signal[len(signal)-1] = stackBase+0x1000, returnTo-1
	for _, c := range []struct {
		name  string
		insns [][]byte
		at    uint64
		code  []byte
		regs  map[uint8]uint64
		stack []uint64
		exact int
	}{
		{name: "leaf", regs: map[uint8]uint64{arm64LR: returnTo}, exact: 2},
		{name: "frame", insns: [][]byte{insn(opDefCFAOffset, uint64(32)), insn(opOffset|arm64FP, uint64(4)), insn(opOffset|arm64LR, uint64(3))},
			stack: []uint64{7, returnTo, 1, 2}, exact: 2},
		{name: "frame pointer", insns: [][]byte{insn(opDefCFA, uint64(arm64FP), uint64(16)), insn(opOffset|arm64FP, uint64(2)), insn(opOffset|arm64LR, uint64(1))},
			regs: map[uint8]uint64{arm64FP: stackBase + 16}, stack: []uint64{1, 2, 7, returnTo}, exact: 2},
		{name: "signed", insns: [][]byte{insn(opNegateRAState), insn(opDefCFAOffset, uint64(16)), insn(opOffset|arm64FP, uint64(2)), insn(opOffset|arm64LR, uint64(1))},
			stack: []uint64{7, signed}, exact: 2},
		{name: "signed leaf", insns: [][]byte{insn(opNegateRAState)}, regs: map[uint8]uint64{arm64LR: signed}, exact: 2},
		{name: "signed, address only", insns: [][]byte{insn(opNegateRAState), insn(opDefCFAOffset, uint64(16)), insn(opOffset|arm64LR, uint64(2))},
			stack: []uint64{signed, 1}, exact: 2},
		{name: "no CFI", at: 0x800, regs: map[uint8]uint64{arm64FP: stackBase + 8}, stack: []uint64{1, 2, returnTo}, exact: 1},
		{name: "no CFI, first instruction", at: 0x800, code: le.AppendUint32(nil, 0xa9bf7bfd), regs: map[uint8]uint64{arm64LR: returnTo}, exact: 1},
		{name: "sigreturn", at: 0x800, code: arm64Sigreturn, stack: signal, exact: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfi := newCFI(perf.ARM64, c.insns...)
			cfi.dataAlign = -8
			code := append(make([]byte, c.at), c.code...)
			s := regsOf(perf.ARM64, arm64Regs(leafAt+c.at, c.regs))
			s.Memory = append(words(c.stack...), make([]byte, 64)...)
			got, res := New(perf.ARM64).Unwind(nil, s, spaceOf(perf.ARM64, cfi, code))
			want := []uint64{loadAddr + leafAt + c.at, returnTo - 1}
			if !slices.Equal(got, want) || res != (Result{Complete, c.exact}) {
				t.Errorf("%#x, %v; want %#x", got, res, want)
			}
		})
	}
}

// TestExpressions evaluates each operation.
func TestExpressions(t *testing.T) {
	regs := [numRegs]uint64{3: 100}
	mem := &stackMemory{base: stackBase, data: words(0x1122334455667788, 42)}
	for _, c := range []struct {
		name string
		b    []byte
		want uint64
	}{
		{"lit", []byte{xLit31}, 31},
		{"addr", append([]byte{xAddr}, words(7)...), 7},
		{"const1s", []byte{xConst1s, 0xff}, 1<<64 - 1},
		{"const2", []byte{xConst2u, 1, 2, xConst2s, 0xff, 0xff, xPlus}, 0x200},
		{"const4", []byte{xConst4u, 1, 0, 0, 0, xConst4s, 1, 0, 0, 0, xPlus}, 2},
		{"const8", append([]byte{xConst8s}, words(9)...), 9},
		{"uleb", []byte{xConstu, 0x80, 1, xConsts, 0x7f, xPlus}, 127},
		{"breg", []byte{xBreg0 + 3, 0x7c}, 96},
		{"bregx", []byte{xBregx, 3, 4}, 104},
		{"deref", []byte{xBreg0 + 4, 0, xDrop, xConst8u, 8, 0, 0, 0, 0xff, 0x7f, 0, 0, xDeref}, 42},
		{"deref size", []byte{xConst8u, 0, 0, 0, 0, 0xff, 0x7f, 0, 0, xDerefN, 2}, 0x7788},
		{"stack", []byte{xLit0 + 1, xLit0 + 2, xOver, xDup, xPick, 3, xSwap, xPlus, xPlus, xPlus, xPlus}, 6},
		{"rot", []byte{xLit0 + 1, xLit0 + 2, xLit0 + 3, xRot, xMinus, xMinus}, 4},
		{"unary", []byte{xLit0 + 5, xNeg, xAbs, xNot, xPlusU, 7}, 1},
		{"logic", []byte{xLit0 + 12, xLit0 + 10, xAnd, xLit0 + 1, xOr, xLit0 + 3, xXor}, 10},
		{"arithmetic", []byte{xLit0 + 7, xLit0 + 5, xMul, xLit0 + 3, xDiv, xLit0 + 4, xMod}, 3},
		{"shift", []byte{xLit0 + 1, xLit0 + 4, xShl, xLit0 + 1, xShr, xNeg, xLit0 + 2, xShra}, 1<<64 - 2},
		{"compare", []byte{xLit0 + 1, xLit0 + 2, xLt, xLit0 + 1, xEq, xLit0, xNe, xLit0, xGt, xLit0 + 1, xGe, xLit0 + 1, xLe}, 1},
		{"branch", []byte{xLit0 + 9, xLit0 + 1, xBra, 1, 0, xDrop, xSkip, 1, 0, xDrop, xNop}, 9},
		{"PLT", []byte{xBreg0 + 3, 8, xBreg0 + 3, 0, xLit0 + 15, xAnd, xLit0 + 11, xGe, xLit0 + 3, xShl, xPlus}, 108},
	} {
		e := evaluation{regs: &regs, known: 1<<3 | 1<<4, mem: mem}
		if got, ok := e.run(c.b); !ok || got != c.want {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got, ok, c.want)
		}
	}
	for name, b := range map[string][]byte{
		"empty": {}, "unknown": {0x50}, "unknown register": {xBreg0 + 9, 0}, "underflow": {xPlus}, "zero": {xLit0, xLit0, xDiv},
		"loop": {xSkip, 0xfd, 0xff}, "overflow": bytes.Repeat([]byte{xLit0}, 100), "short": {xConst8u, 1}, "out": {xSkip, 9, 0},
		"outside": {xLit0, xDeref}, "size": {xConst8u, 0, 0, 0, 0, 0xff, 0x7f, 0, 0, xDerefN, 9},
	} {
		e := evaluation{regs: &regs, known: 1 << 3, mem: mem}
		if got, ok := e.run(b); ok {
			t.Errorf("%s: %#x", name, got)
		}
	}
}
