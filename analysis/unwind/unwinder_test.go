// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// Where the code of test programs is: leaf from 0x1000, caller from 0x1100,
// which has no caller. codeOff is its offset in the file.
const (
	leafAt   = 0x1000
	callerAt = 0x1100
	codeAt   = 0x1000
	codeSize = 0x1000
	frameAt  = 0x3000
	hdrAt    = 0x2800
)

// callerFn ends every stack.
func callerFn(arch perf.Arch) function {
	ra := uint64(amd64RIP)
	if arch == perf.ARM64 {
		ra = arm64LR
	}
	return function{start: callerAt, size: 0x100, insns: [][]byte{insn(opUndefined, ra)}}
}

// newCFI has the usual rules of a function that has just been called.
func newCFI(arch perf.Arch, insns ...[]byte) *cfi {
	c := &cfi{addr: frameAt, ra: amd64RIP}
	c.insns = [][]byte{insn(opDefCFA, uint64(amd64RSP), uint64(8)), insn(opOffset|amd64RIP, uint64(1))}
	if arch == perf.ARM64 {
		c.ra = arm64LR
		c.insns = [][]byte{insn(opDefCFA, uint64(arm64SP), uint64(0))}
	}
	c.functions = []function{{start: leafAt, size: 0x100, insns: insns}, callerFn(arch)}
	return c
}

func machineOf(arch perf.Arch) elf.Machine {
	if arch == perf.ARM64 {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

// spaceOf maps the code of a file that has CFI in .eh_frame with its table.
func spaceOf(arch perf.Arch, c *cfi, code []byte) *testSpace {
	data := c.bytes()
	file := makeELF(machineOf(arch),
		testSection{name: ".text", addr: codeAt, data: append(code, make([]byte, codeSize-len(code))...), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: data},
		testSection{name: ".eh_frame_hdr", addr: hdrAt, data: c.hdr(hdrAt), ehHdr: true})
	return mapCode(arch, file)
}

// mapCode maps the executable segment of a file.
func mapCode(arch perf.Arch, file []byte) *testSpace {
	s := &testSpace{b: binaryOf(arch, file), code: codeAt, codeEnd: codeAt + codeSize}
	im, err := readImage(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		panic(err)
	}
	for _, seg := range im.segs {
		if seg.exec {
			s.off = seg.off
		}
	}
	return s
}

// regsOf makes the registers of a sample.
func regsOf(arch perf.Arch, regs map[uint8]uint64) *Stack {
	s := &Stack{}
	for bit, reg := range registersOf(arch).perf {
		if reg == none {
			continue
		}
		s.Mask |= 1 << bit
		s.Values = append(s.Values, regs[uint8(reg)])
	}
	return s
}

// amd64Regs are those of a task at pc, an address of the file.
func amd64Regs(pc uint64, more ...map[uint8]uint64) map[uint8]uint64 {
	regs := map[uint8]uint64{amd64RIP: loadAddr + pc, amd64RSP: stackBase}
	for _, m := range more {
		for k, v := range m {
			regs[k] = v
		}
	}
	return regs
}

const returnTo = loadAddr + callerAt + 0x20

// TestRules runs every instruction of CFI.
func TestRules(t *testing.T) {
	r := func(reg uint8, v uint64) map[uint8]uint64 { return map[uint8]uint64{reg: v} }
	for _, c := range []struct {
		name  string
		insns [][]byte
		at    uint64 // behind the start of the function
		regs  map[uint8]uint64
		stack []uint64
	}{
		{name: "initial", stack: []uint64{returnTo}},
		{name: "offset", insns: [][]byte{insn(opDefCFAOffset, uint64(24))}, stack: []uint64{1, 2, returnTo}},
		{name: "before advance", insns: [][]byte{insn(opAdvance | 4), insn(opDefCFAOffset, uint64(24))}, at: 3, stack: []uint64{returnTo}},
		{name: "after advance", insns: [][]byte{insn(opAdvance | 4), insn(opDefCFAOffset, uint64(24))}, at: 4, stack: []uint64{1, 2, returnTo}},
		{name: "advance1", insns: [][]byte{{opAdvance1, 0x80}, insn(opDefCFAOffset, uint64(16))}, at: 0x80, stack: []uint64{1, returnTo}},
		{name: "advance2", insns: [][]byte{{opAdvance2, 0x80, 0}, insn(opDefCFAOffset, uint64(16))}, at: 0x81, stack: []uint64{1, returnTo}},
		{name: "advance4", insns: [][]byte{{opAdvance4, 0x80, 0, 0, 0}, insn(opDefCFAOffset, uint64(16))}, at: 0x7f, stack: []uint64{returnTo}},
		{name: "register", insns: [][]byte{insn(opDefCFA, uint64(amd64RBP), uint64(16))},
			regs: r(amd64RBP, stackBase+8), stack: []uint64{1, 2, returnTo}},
		{name: "other register", insns: [][]byte{insn(opDefCFA, uint64(10), uint64(0))},
			regs: r(10, stackBase+16), stack: []uint64{1, returnTo}},
		{name: "register only", insns: [][]byte{insn(opDefCFAReg, uint64(3))}, regs: r(3, stackBase+8), stack: []uint64{1, returnTo}},
		{name: "factored", insns: [][]byte{insn(opDefCFASF, uint64(amd64RSP), -3)}, stack: []uint64{1, 2, returnTo}},
		{name: "factored offset", insns: [][]byte{insn(opDefCFAOffSF, -2)}, stack: []uint64{1, returnTo}},
		{name: "offset extended", insns: [][]byte{insn(opOffsetExt, uint64(amd64RIP), uint64(2)), insn(opDefCFAOffset, uint64(24))}, stack: []uint64{1, returnTo, 3}},
		{name: "offset factored", insns: [][]byte{insn(opOffsetExtSF, uint64(amd64RIP), -1), insn(opDefCFAOffset, uint64(16))}, stack: []uint64{1, 2, 3, returnTo}},
		{name: "negative offset", insns: [][]byte{insn(opNegOffsetExt, uint64(amd64RIP), uint64(1)), insn(opDefCFAOffset, uint64(8))}, stack: []uint64{1, 2, returnTo}},
		{name: "in register", insns: [][]byte{insn(opRegister, uint64(amd64RIP), uint64(3))}, regs: r(3, returnTo), stack: []uint64{1}},
		{name: "value offset", insns: [][]byte{insn(opValOffset, uint64(5), uint64(2)), insn(opRegister, uint64(amd64RIP), uint64(3))}, regs: r(3, returnTo)},
		{name: "value expression", insns: [][]byte{insn(opValExpr, uint64(amd64RIP), block(xConst8u, 0x20, 0x11, 0, 0, 0, 0x7f, 0, 0))}},
		{name: "expression", insns: [][]byte{insn(opExpr, uint64(amd64RIP), block(xLit0+16, xPlus))}, stack: []uint64{1, 2, 3, returnTo}},
		{name: "CFA expression", insns: [][]byte{insn(opDefCFAExpr, block(xBreg0+amd64RSP, 8, xDeref))}, stack: []uint64{1, stackBase + 24, returnTo}},
		{name: "remembered", insns: [][]byte{insn(opRemember), insn(opDefCFAOffset, uint64(32)), insn(opAdvance | 8), insn(opRestoreState)},
			at: 8, stack: []uint64{returnTo}},
		{name: "restored", insns: [][]byte{insn(opOffset|amd64RIP, uint64(2)), insn(opRestore | amd64RIP)}, stack: []uint64{returnTo}},
		{name: "restored extended", insns: [][]byte{insn(opUndefined, uint64(amd64RIP)), insn(opRestoreExt, uint64(amd64RIP))}, stack: []uint64{returnTo}},
		{name: "no effect", insns: [][]byte{insn(opArgsSize, uint64(48)), insn(opSameValue, uint64(3)), insn(opOffset|33, uint64(9)), {opNop}}, stack: []uint64{returnTo}},
	} {
		t.Run(c.name, func(t *testing.T) {
			space := spaceOf(perf.AMD64, newCFI(perf.AMD64, c.insns...), nil)
			s := regsOf(perf.AMD64, amd64Regs(leafAt+c.at, c.regs))
			s.Memory = append(words(c.stack...), make([]byte, 64)...)
			want := []uint64{loadAddr + leafAt + c.at, returnTo - 1}
			for range 2 { // the second time from the cache
				got, res := New(perf.AMD64).Unwind(nil, s, space)
				if !slices.Equal(got, want) || res != (Result{Complete, 2}) {
					t.Errorf("frames %#x, %v; want %#x", got, res, want)
				}
			}
		})
	}
}

// TestSetLoc: an absolute address in the middle of the instructions.
func TestSetLoc(t *testing.T) {
	c := newCFI(perf.AMD64)
	c.debug, c.ra = true, amd64RIP
	c.functions[0].insns = [][]byte{{opSetLoc}, le.AppendUint64(nil, leafAt+0x10), insn(opDefCFAOffset, uint64(16))}
	space := mapCode(perf.AMD64, makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true},
		testSection{name: ".debug_frame", data: c.bytes()}))
	for at, stack := range map[uint64][]uint64{0xf: {returnTo, 2}, 0x10: {1, returnTo}} {
		s := regsOf(perf.AMD64, amd64Regs(leafAt+at))
		s.Memory = words(stack...)
		if got, res := New(perf.AMD64).Unwind(nil, s, space); len(got) != 2 || got[1] != returnTo-1 || res.End != Complete {
			t.Errorf("at %#x: %#x, %v", at, got, res)
		}
	}
}

// TestSections: the same CFI in every place and form.
func TestSections(t *testing.T) {
	text := testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true}
	eh := func(change func(*cfi)) *cfi {
		c := newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16)))
		if change != nil {
			change(c)
		}
		return c
	}
	debug := func(c *cfi) { c.debug, c.addr = true, 0 }
	plain := eh(nil)
	data, hdr := plain.bytes(), plain.hdr(hdrAt)
	partial := eh(func(c *cfi) { c.functions = c.functions[1:] })
	partialData, partialHdr := partial.bytes(), partial.hdr(hdrAt)
	for name, sections := range map[string][]testSection{
		"table":       {{name: ".eh_frame", addr: frameAt, data: data}, {name: ".eh_frame_hdr", addr: hdrAt, data: hdr}},
		"no table":    {{name: ".eh_frame", addr: frameAt, data: data}},
		"no sections": {{addr: frameAt, data: data}, {addr: hdrAt, data: hdr, ehHdr: true}},
		"debug":       {{name: ".debug_frame", data: eh(debug).bytes()}},
		"zlib":        {{name: ".debug_frame", data: packed(t, elf.COMPRESS_ZLIB, eh(debug).bytes()), flags: elf.SHF_COMPRESSED}},
		"zstd":        {{name: ".debug_frame", data: packed(t, elf.COMPRESS_ZSTD, eh(debug).bytes()), flags: elf.SHF_COMPRESSED}},
		"version 4":   {{name: ".debug_frame", data: eh(func(c *cfi) { debug(c); c.version = 4 }).bytes()}},
		"wide":        {{name: ".eh_frame", addr: frameAt, data: eh(func(c *cfi) { c.wide = true }).bytes()}},
		"wide debug":  {{name: ".debug_frame", data: eh(func(c *cfi) { debug(c); c.wide = true }).bytes()}},
		"both": {{name: ".eh_frame", addr: frameAt, data: partialData}, {name: ".eh_frame_hdr", addr: hdrAt, data: partialHdr},
			{name: ".debug_frame", data: eh(debug).bytes()}},
	} {
		t.Run(name, func(t *testing.T) {
			space := mapCode(perf.AMD64, makeELF(elf.EM_X86_64, append([]testSection{text}, sections...)...))
			s := regsOf(perf.AMD64, amd64Regs(leafAt+4))
			s.Memory = words(1, returnTo)
			got, res := New(perf.AMD64).Unwind(nil, s, space)
			if len(got) != 2 || got[1] != returnTo-1 || res != (Result{Complete, 2}) || space.b.Err() != nil {
				t.Errorf("%#x, %v, error %v", got, res, space.b.Err())
			}
		})
	}
}

// TestEnds: each reason why a stack ends early.
func TestEnds(t *testing.T) {
	sp := func(off uint64) map[uint8]uint64 { return map[uint8]uint64{amd64RBP: off} }
	for _, c := range []struct {
		name   string
		insns  [][]byte
		pc     uint64
		regs   map[uint8]uint64
		stack  []uint64
		end    End
		frames int
	}{
		{name: "truncated", insns: [][]byte{insn(opDefCFAOffset, uint64(800))}, pc: leafAt, stack: []uint64{1}, end: Truncated, frames: 1},
		{name: "no mapping", pc: leafAt, stack: []uint64{0x1234}, end: NoMapping, frames: 1},
		{name: "no mapping of the leaf", pc: 0x100000, end: NoMapping, frames: 1},
		{name: "no CFI", pc: codeAt + 0x800, regs: sp(stackBase + 0x4000_0000_0000), stack: []uint64{1, 2}, end: Truncated, frames: 1},
		{name: "no CFI, no frame pointer", pc: codeAt + 0x800, regs: sp(3), stack: []uint64{1, 2}, end: NoCFI, frames: 1},
		{name: "frame pointer into nothing", pc: codeAt + 0x800, regs: sp(stackBase), stack: []uint64{1, 2}, end: NoCFI, frames: 1},
		{name: "outermost frame pointer", pc: codeAt + 0x800, regs: sp(0), stack: []uint64{1, 2}, end: Complete, frames: 1},
		{name: "below", insns: [][]byte{insn(opDefCFA, uint64(amd64RBP), uint64(0))}, regs: sp(stackBase - 64), pc: leafAt, stack: []uint64{1}, end: BadStack, frames: 1},
		{name: "zero", pc: leafAt, stack: []uint64{0}, end: Complete, frames: 1},
		{name: "no rule", insns: [][]byte{insn(opRestore | amd64RIP), insn(opSameValue, uint64(amd64RIP))}, pc: leafAt, stack: []uint64{1, 2}, end: Loop, frames: 1},
		{name: "bad expression", insns: [][]byte{insn(opDefCFAExpr, block(xPlus))}, pc: leafAt, stack: []uint64{1}, end: BadStack, frames: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := regsOf(perf.AMD64, amd64Regs(c.pc, c.regs))
			s.Memory = words(c.stack...)
			u := New(perf.AMD64)
			got, res := u.Unwind(nil, s, spaceOf(perf.AMD64, newCFI(perf.AMD64, c.insns...), nil))
			if res.End != c.end || len(got) != c.frames || u.Stats.Ends[c.end] != 1 {
				t.Errorf("%#x, %v; want %v after %d", got, res, c.end, c.frames)
			}
		})
	}
}

// TestDeep: recursion without end is cut.
func TestDeep(t *testing.T) {
	var stack []uint64
	for range 4 * MaxFrames {
		stack = append(stack, loadAddr+leafAt+8)
	}
	s := regsOf(perf.AMD64, amd64Regs(leafAt+8))
	s.Memory = words(stack...)
	got, res := New(perf.AMD64).Unwind(nil, s, spaceOf(perf.AMD64, newCFI(perf.AMD64), nil))
	if len(got) != MaxFrames || res.End != TooDeep {
		t.Errorf("%d frames, %v", len(got), res)
	}
}

// TestNoRegs: what was not recorded is told.
func TestNoRegs(t *testing.T) {
	s := &Stack{Mask: 1 << 3, Values: []uint64{1}, Memory: words(1)}
	if got, res := New(perf.AMD64).Unwind(nil, s, spaceOf(perf.AMD64, newCFI(perf.AMD64), nil)); len(got) != 0 || res.End != NoRegs {
		t.Errorf("%#x, %v", got, res)
	}
}

// TestFullPass: a frame that needs a register which the quick way does not
// follow, behind one that takes the quick way.
func TestFullPass(t *testing.T) {
	c := newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16)), insn(opOffset|3, uint64(2)))
	middle := function{start: 0x1200, size: 0x100, insns: [][]byte{insn(opDefCFA, uint64(3), uint64(8))}}
	c.functions = append(c.functions, middle)
	s := regsOf(perf.AMD64, amd64Regs(leafAt+4, map[uint8]uint64{3: 0xbad}))
	s.Memory = words(stackBase+0x20, loadAddr+0x1210, 3, 4, returnTo)
	got, res := New(perf.AMD64).Unwind(nil, s, spaceOf(perf.AMD64, c, nil))
	want := []uint64{loadAddr + leafAt + 4, loadAddr + 0x120f, returnTo - 1}
	if !slices.Equal(got, want) || res.End != Complete {
		t.Errorf("%#x, %v; want %#x", got, res, want)
	}
}

// TestSignalFrame: what a signal interrupted is an exact address, in a frame
// on another stack.
func TestSignalFrame(t *testing.T) {
	const trampoline = 0x1300
	// Made like glibc's: all is at the stack pointer, and the function
	// begins a byte before its code.
	sig := &cfi{addr: frameAt, ra: amd64RIP, augmentation: "zRS"}
	sig.functions = []function{{start: trampoline - 1, size: 10, insns: [][]byte{
		insn(opDefCFAExpr, block(xBreg0+amd64RSP, 16, xDeref)),
		insn(opExpr, uint64(amd64RSP), block(xBreg0+amd64RSP, 16)),
		insn(opExpr, uint64(amd64RIP), block(xBreg0+amd64RSP, 24)),
	}}}
	others := newCFI(perf.AMD64)
	others.debug = true
	space := mapCode(perf.AMD64, makeELF(elf.EM_X86_64,
		testSection{name: ".text", addr: codeAt, data: make([]byte, codeSize), exec: true},
		testSection{name: ".eh_frame", addr: frameAt, data: sig.bytes()},
		testSection{name: ".debug_frame", data: others.bytes()}))
	s := regsOf(perf.AMD64, amd64Regs(leafAt+4))
	s.Memory = words(loadAddr+trampoline, 1, 2, stackBase+0x30, loadAddr+leafAt, 5, returnTo)
	got, res := New(perf.AMD64).Unwind(nil, s, space)
	want := []uint64{loadAddr + leafAt + 4, loadAddr + trampoline, loadAddr + leafAt, returnTo - 1}
	if !slices.Equal(got, want) || res != (Result{Complete, 4}) {
		t.Errorf("%#x, %v; want %#x", got, res, want)
	}
}

// TestNoAllocation: the second time an address is met costs no memory.
func TestNoAllocation(t *testing.T) {
	space := spaceOf(perf.AMD64, newCFI(perf.AMD64, insn(opDefCFAOffset, uint64(16))), nil)
	s := regsOf(perf.AMD64, amd64Regs(leafAt+4))
	s.Memory = words(1, returnTo)
	u := New(perf.AMD64)
	frames := make([]uint64, 0, 8)
	var sp AddressSpace = space
	if n := testing.AllocsPerRun(100, func() { frames, _ = u.Unwind(frames[:0], s, sp) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestUnreadable: a file that cannot be had is no reason to stop.
func TestUnreadable(t *testing.T) {
	b := NewBinary(perf.AMD64, func() (File, int64, error) { return nil, 0, fs.ErrNotExist })
	space := &testSpace{b: b, code: codeAt, codeEnd: codeAt + codeSize}
	s := regsOf(perf.AMD64, amd64Regs(codeAt, map[uint8]uint64{amd64RBP: stackBase}))
	s.Memory = words(0, loadAddr+codeAt+0x40)
	got, res := New(perf.AMD64).Unwind(nil, s, space)
	if len(got) != 2 || res != (Result{Complete, 1}) || b.Err() == nil {
		t.Errorf("%#x, %v, error %v", got, res, b.Err())
	}
}
