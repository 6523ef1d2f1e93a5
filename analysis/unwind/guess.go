// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"

	"github.com/gantry-tools/gantry/perf"
)

// guess finds a rule for an address that has no CFI: from the code there if
// the function has not set up its frame, or has given it up, and as it is
// usual otherwise. exact says that the address is where the task was, not a
// call.
func (b *Binary) guess(addr uint64, exact bool) (uint32, bool) {
	r, regs := b.guessed(addr, exact)
	if regs != nil {
		r.flags |= guessed
		return b.intern(r, regs)
	}
	if b.fp == 0 {
		n, ok := b.intern(framePointer(b.arch))
		if !ok {
			return 0, false
		}
		b.fp = n + 1
	}
	return b.fp - 1, true
}

// guessed is the rule that the code shows; without registers if it shows none.
func (b *Binary) guessed(addr uint64, exact bool) (rule, []regRule) {
	at := addr
	if !exact {
		at++ // the trampoline of a signal is returned to, not called
	}
	if b.arch == perf.ARM64 {
		if code := b.codeBytes(at, 8); bytes.Equal(code, arm64Sigreturn) {
			return arm64SignalFrame()
		}
		if exact && b.arm64NoFrame(addr) {
			return rule{cfaReg: arm64SP, ra: arm64LR, flags: raUnset}, []regRule{}
		}
		return rule{}, nil
	}
	if code := b.codeBytes(at, 9); bytes.Equal(code, amd64Sigreturn) {
		return amd64SignalFrame()
	}
	if exact {
		if n := b.amd64Pushed(addr); n > 0 {
			return amd64Stack(n), []regRule{{reg: amd64RIP, kind: atOffset, arg: -8}}
		}
		if pushed, ok := b.amd64Prologue(addr); ok {
			return pushed, []regRule{{reg: amd64RBP, kind: atOffset, arg: -16},
				{reg: amd64RIP, kind: atOffset, arg: -8}}
		}
	}
	return rule{}, nil
}

// framePointer is the rule of a function that keeps its frame in the frame
// pointer.
func framePointer(a perf.Arch) (rule, []regRule) {
	if a == perf.ARM64 {
		return rule{cfaReg: arm64FP, cfaOff: 16, ra: arm64LR, flags: guessed},
			[]regRule{{reg: arm64FP, kind: atOffset, arg: -16}, {reg: arm64LR, kind: atOffset, arg: -8}}
	}
	return rule{cfaReg: amd64RBP, cfaOff: 16, ra: amd64RIP, flags: guessed},
		[]regRule{{reg: amd64RBP, kind: atOffset, arg: -16}, {reg: amd64RIP, kind: atOffset, arg: -8}}
}

func amd64Stack(bytes int32) rule { return rule{cfaReg: amd64RSP, cfaOff: bytes, ra: amd64RIP} }

// amd64Pushed is how many bytes are on the stack up to and including the
// address that is returned to, where the code shows it: 0 if it does not.
func (b *Binary) amd64Pushed(addr uint64) int32 {
	for _, p := range b.plts {
		if addr-p.start < p.end-p.start {
			return amd64PLT(addr-p.start, p.lazy)
		}
	}
	code := b.codeBytes(addr, 5)
	switch {
	case len(code) < 5:
	case code[0] == 0x55: // push %rbp
		return 8
	case bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}): // endbr64, push %rbp
		return 8
	case code[0] == 0xc3, bytes.HasPrefix(code, []byte{0xf3, 0xc3}): // ret
		return 8
	}
	return 0
}

// amd64PLT is what is on the stack at an offset in a section of stubs. In .plt
// each but the first pushes its number, six bytes before its end, and the first
// pushes once more.
func amd64PLT(off uint64, lazy bool) int32 {
	switch {
	case !lazy:
		return 8
	case off < 6:
		return 16
	case off < 16:
		return 24
	case off%16 >= 11:
		return 16
	}
	return 8
}

// amd64Prologue is the rule between "push %rbp" and "mov %rsp,%rbp".
func (b *Binary) amd64Prologue(addr uint64) (rule, bool) {
	if code := b.codeBytes(addr-1, 4); bytes.Equal(code, []byte{0x55, 0x48, 0x89, 0xe5}) {
		return amd64Stack(16), true
	}
	return rule{}, false
}

// amd64Sigreturn is "mov $__NR_rt_sigreturn,%rax; syscall", where the handler
// of a signal returns to.
var amd64Sigreturn = []byte{0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05}

// amd64SignalFrame is the rule of that code: the stack pointer is at a struct
// ucontext (arch/x86/include/uapi/asm/sigcontext.h), whose registers begin
// behind uc_flags, uc_link and uc_stack.
func amd64SignalFrame() (rule, []regRule) {
	const registers = 40
	var regs []regRule
	for i, reg := range []uint8{8, 9, 10, 11, 12, 13, 14, 15, 5, 4, amd64RBP, 3, 1, 0, 2, amd64RSP, amd64RIP} {
		regs = append(regs, regRule{reg: reg, kind: atOffset, arg: registers + 8*int32(i)})
	}
	return rule{cfaReg: amd64RSP, ra: amd64RIP, flags: signalFrame}, regs
}

// arm64Sigreturn is "mov x8, #__NR_rt_sigreturn; svc #0".
var arm64Sigreturn = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}

// arm64SignalFrame is the rule of that code: the stack pointer is at a struct
// rt_sigframe (arch/arm64/kernel/signal.c): siginfo, then ucontext with the
// registers, the stack pointer and the address that was interrupted.
func arm64SignalFrame() (rule, []regRule) {
	const registers = 128 + 176 + 8
	var regs []regRule
	for reg := range uint8(numRegs) { // x0-x30, sp, pc
		regs = append(regs, regRule{reg: reg, kind: atOffset, arg: registers + 8*int32(reg)})
	}
	return rule{cfaReg: arm64SP, ra: arm64PC, flags: signalFrame}, regs
}

// arm64NoFrame says whether the code shows that the function has no frame yet,
// or no longer: a stub, the first instruction, or the return.
func (b *Binary) arm64NoFrame(addr uint64) bool {
	for _, p := range b.plts {
		if addr-p.start < p.end-p.start {
			return !p.lazy || addr-p.start >= 32
		}
	}
	code := b.codeBytes(addr, 4)
	if len(code) < 4 {
		return false
	}
	const (
		ret, paciasp, bti = 0xd65f03c0, 0xd503233f, 0xd503245f
		// stp x29, x30, [sp, #-N]!
		stp, stpMask = 0xa9807bfd, 0xffc07fff
	)
	insn := binary.LittleEndian.Uint32(code)
	return insn == ret || insn == paciasp || insn == bti || insn&stpMask == stp
}
