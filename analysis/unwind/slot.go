// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"math"

	"github.com/gantry-tools/gantry/perf"
)

// slot remembers the rule of an address, and all of it if it is one of the
// simple ones that nearly every address has: the frame begins at a distance
// from the stack or the frame pointer, the address of the caller is where a
// call leaves it, and the frame pointer is saved or not touched.
type slot struct {
	key    uint64 // address of the file; the lowest bit says whether it was exact
	cfaOff int32
	fpOff  int32 // noSave if the caller's frame pointer was not saved
	rule   uint32
	bin    uint16
	flags  slotFlags
}

type slotFlags uint8

const (
	slotFromSP  slotFlags = 1 << iota // simple, the frame begins at the stack pointer
	slotFromFP                        // simple, at the frame pointer
	slotSignal                        // of a signal frame
	slotGuessed                       // not from CFI
	slotFull                          // needs the values of other registers
)

const noSave = math.MinInt32

// slotAt finds the rule for an address of the task, nil if there is none.
func (u *Unwinder) slotAt(addr uint64, space AddressSpace) (*slot, End) {
	if addr-u.area.start >= u.area.end-u.area.start && !u.mapped(addr, space) {
		return nil, NoMapping
	}
	b := u.area.bin
	if b == &u.jit {
		return &b.slot, Complete
	}
	in := addr - u.area.bias
	key := in << 1
	if u.exact {
		key |= 1
	}
	s := &b.slot
	if b.id != 0 {
		s = &u.cache[(key*0x9E3779B97F4A7C15^uint64(b.id)<<56)>>(64-cacheBits)]
		if s.key == key && s.bin == b.id {
			return s, Complete
		}
	}
	n, ok := b.ruleAt(in)
	if !ok {
		if n, ok = b.guess(in, u.exact); !ok {
			return nil, NoCFI
		}
	}
	s.fill(b, u.role, key, n)
	return s, Complete
}

// fill makes the slot that of a rule of b.
func (s *slot) fill(b *Binary, role *registers, key uint64, n uint32) {
	r := &b.rules[n]
	*s = slot{key: key, rule: n, bin: b.id, cfaOff: r.cfaOff, fpOff: noSave}
	if r.flags&signalFrame != 0 {
		s.flags |= slotSignal
	}
	if r.flags&guessed != 0 && r.flags&signalFrame == 0 {
		s.flags |= slotGuessed
	}
	if r.flags&(cfaIsExpr|needsOld) != 0 || r.cfaReg != role.sp && r.cfaReg != role.fp {
		s.flags |= slotFull
	}
	if s.flags&^slotGuessed == 0 && r.flags&outermost == 0 {
		s.simple(r, b.regs[r.first:r.first+uint32(r.n)], role)
	}
}

// simple marks the slot if the rule is simple.
func (s *slot) simple(r *rule, regs []regRule, role *registers) {
	if r.ra != role.ra {
		return
	}
	raOff, hasRA := int32(0), false
	for _, g := range regs {
		switch {
		case g.reg != r.ra && g.reg != role.fp && g.reg != role.sp:
		case g.kind != atOffset || g.reg == role.sp:
			return
		case g.reg == r.ra:
			raOff, hasRA = g.arg, true
		default:
			s.fpOff = g.arg
		}
	}
	want := int32(-8)
	if role.ra == arm64LR {
		if s.fpOff == noSave {
			return
		}
		want = s.fpOff + 8
	}
	switch {
	case !hasRA || raOff != want:
	case r.cfaReg == role.sp:
		s.flags |= slotFromSP
	default:
		s.flags |= slotFromFP
	}
}

// fast is step for a simple rule whose words are in the dump. It follows no
// other registers.
func (u *Unwinder) fast(s *slot) (pc uint64, ok bool) {
	role := u.role
	if s.flags&(slotFromSP|slotFromFP) == 0 || u.full {
		return 0, false
	}
	sp := u.regs[role.sp]
	cfa := sp + uint64(int64(s.cfaOff))
	if s.flags&slotFromFP != 0 {
		if u.known&(1<<role.fp) == 0 {
			return 0, false
		}
		cfa = u.regs[role.fp] + uint64(int64(s.cfaOff))
	}
	if cfa <= sp {
		return 0, false
	}
	ra := cfa - 8
	if u.arch == perf.ARM64 {
		ra = cfa + uint64(int64(s.fpOff)) + 8
	}
	if pc, ok = u.mem.word(ra); !ok || pc == 0 {
		return 0, false
	}
	if s.fpOff != noSave {
		fp, ok := u.mem.word(cfa + uint64(int64(s.fpOff)))
		if !ok {
			return 0, false
		}
		u.regs[role.fp] = fp
		u.known |= 1 << role.fp
	}
	if u.arch == perf.ARM64 {
		pc = arm64Address(pc)
	}
	u.regs[role.sp], u.regs[role.ra] = cfa, pc
	u.exact, u.stale = false, true
	return pc, true
}
