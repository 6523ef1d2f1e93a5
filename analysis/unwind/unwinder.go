// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"math"

	"github.com/gantry-tools/gantry/perf"
)

// Mapping is a range of addresses of a task, and the file that it shows.
type Mapping struct {
	Start, End uint64
	Offset     uint64 // in the file, of Start
	// Binary is nil for memory that shows no file, as generated code.
	Binary *Binary
}

// AddressSpace is the address space of a task at the time of a sample.
type AddressSpace interface {
	// Find is the executable mapping that covers addr.
	Find(addr uint64) (Mapping, bool)
}

// Stack is what was recorded of a user stack.
type Stack struct {
	// Mask says which registers Values has, as in perf_event_attr's
	// sample_regs_user; the lowest bit's comes first.
	Mask   uint64
	Values []uint64
	// Memory begins at the stack pointer, and has the valid bytes only.
	Memory []byte
}

// End says why a stack has no more frames.
type End uint8

// Reasons. Complete is the only one that is not a loss.
const (
	Complete  End = iota // the outermost frame was reached
	Truncated            // the dump ended
	NoMapping            // nothing is mapped at the address that was found
	NoCFI                // no call frame information, and no frame pointer
	BadCFI               // the information makes no sense there
	BadStack             // it leads to where the stack is not
	Loop                 // it leads in a circle
	TooDeep              // more than MaxFrames
	NoRegs               // registers or stack were not recorded
	numEnds
)

// String is the reason in words.
func (e End) String() string {
	switch e {
	case Complete:
		return "complete"
	case Truncated:
		return "dump too short"
	case NoMapping:
		return "no mapping"
	case NoCFI:
		return "no call frame information"
	case BadCFI:
		return "bad call frame information"
	case BadStack:
		return "bad frame address"
	case Loop:
		return "loop"
	case TooDeep:
		return "too deep"
	case NoRegs:
		return "no registers"
	}
	return "?"
}

// Ends lists all reasons in the order of their numbers.
func Ends() []End {
	list := make([]End, numEnds)
	for i := range list {
		list[i] = End(i)
	}
	return list
}

// MaxFrames bounds a stack; a dump of 64 KiB has room for four times as many.
const MaxFrames = 1024

const (
	maxSignals = 16 // signal frames in one stack
	cacheBits  = 15
)

// Result says how an unwind went.
type Result struct {
	End End
	// Exact is how many frames were found by CFI alone. Those behind were
	// found by a frame pointer, which may have skipped callers.
	Exact int
}

// Stats are counts of all unwinds.
type Stats struct {
	Ends    [numEnds]uint64
	Frames  uint64
	Guessed uint64 // stacks with frames found by a frame pointer
}

// Unwinder unwinds the stacks of one architecture. It allocates nothing but
// for functions that it meets first. It is not safe for use by several
// goroutines, and a Binary belongs to one Unwinder.
type Unwinder struct {
	Stats Stats

	arch  perf.Arch
	role  *registers
	cache []slot
	ids   uint16 // given to binaries so far
	left  uint64 // bytes of sections that may be read
	jit   Binary // stands for code without a file

	regs  [numRegs]uint64
	old   [numRegs]uint64
	known uint64
	mem   stackMemory
	eval  evaluation
	area  area
	// exact: the address is where the task was, not behind a call.
	exact   bool
	signals int
	// full: all registers are followed. Otherwise, stale says that those
	// other than stack pointer, frame pointer and address have values of
	// frames before.
	full, stale bool
}

// area is the mapping that was found last.
type area struct {
	start, end uint64
	bias       uint64 // of its addresses to those of the file
	bin        *Binary
}

// New makes an Unwinder for AMD64 or ARM64.
func New(arch perf.Arch) *Unwinder {
	u := &Unwinder{arch: arch, role: registersOf(arch), cache: make([]slot, 1<<cacheBits), left: maxSections}
	u.jit = Binary{arch: arch, loaded: true, err: ErrNoCFI}
	n, _ := u.jit.intern(framePointer(arch))
	u.jit.slot.fill(&u.jit, u.role, 0, n)
	return u
}

// Unwind appends the frames of a stack to dst, leaf first. The first is where
// the task was; of callers it is an address in the call.
func (u *Unwinder) Unwind(dst []uint64, s *Stack, space AddressSpace) ([]uint64, Result) {
	n := len(dst)
	dst, res := u.unwind(dst, s, space)
	u.Stats.Ends[res.End]++
	u.Stats.Frames += uint64(len(dst) - n)
	if res.Exact < len(dst)-n {
		u.Stats.Guessed++
	}
	return dst, res
}

func (u *Unwinder) unwind(dst []uint64, s *Stack, space AddressSpace) ([]uint64, Result) {
	n := len(dst)
	u.full = false
	dst, res, ok := u.walk(dst, s, space)
	if !ok {
		u.full = true
		dst, res, _ = u.walk(dst[:n], s, space)
	}
	return dst, res
}

// start takes the registers and the stack of a sample.
func (u *Unwinder) start(s *Stack) bool {
	u.known = u.role.load(&u.regs, s.Mask, s.Values)
	if need := uint64(1)<<u.role.sp | 1<<u.role.pc; u.known&need != need {
		return false
	}
	u.mem = stackMemory{base: u.regs[u.role.sp], data: s.Memory}
	u.area, u.exact, u.signals, u.stale = area{}, true, 0, false
	return true
}

// walk follows the frames. It is not ok if that has to be done again with all
// registers.
func (u *Unwinder) walk(dst []uint64, s *Stack, space AddressSpace) (_ []uint64, res Result, ok bool) {
	if !u.start(s) {
		return dst, Result{End: NoRegs}, true
	}
	res.Exact = none
	pc, first := u.regs[u.role.pc], len(dst)
	for {
		at := pc
		if !u.exact {
			at--
		}
		sl, end := u.slotAt(at, space)
		if sl == nil && len(dst) > first {
			return finish(dst, first, res, end)
		}
		if sl != nil && sl.flags&slotSignal != 0 {
			at = pc
		}
		dst = append(dst, at)
		if sl == nil {
			return finish(dst, first, res, end)
		}
		if len(dst)-first == MaxFrames {
			return finish(dst, first, res, TooDeep)
		}
		guess := sl.flags&slotGuessed != 0
		if guess && res.Exact < 0 {
			res.Exact = len(dst) - first
		}
		next, done := u.fast(sl)
		if !done {
			if sl.flags&slotFull != 0 && u.stale {
				return dst, res, false
			}
			b := u.area.bin
			if next, end, done = u.step(b, &b.rules[sl.rule]); done {
				return finish(dst, first, res, end)
			}
		}
		if pc = next; guess && !u.mapped(pc-1, space) {
			return finish(dst, first, res, NoCFI)
		}
	}
}

// load reads the CFI of a binary that is met first.
func (u *Unwinder) load(b *Binary) {
	if u.ids < math.MaxUint16 {
		u.ids++
		b.id = u.ids
	}
	b.left = u.left
	b.load()
	u.left = b.left
}

func finish(dst []uint64, first int, res Result, end End) ([]uint64, Result, bool) {
	res.End = end
	if res.Exact < 0 {
		res.Exact = len(dst) - first
	}
	return dst, res, true
}

// mapped finds the mapping of an address.
func (u *Unwinder) mapped(addr uint64, space AddressSpace) bool {
	if addr-u.area.start < u.area.end-u.area.start {
		return true
	}
	m, ok := space.Find(addr)
	if !ok {
		return false
	}
	u.area = area{start: m.Start, end: m.End, bin: &u.jit}
	if m.Binary == nil {
		return true
	}
	if !m.Binary.loaded {
		u.load(m.Binary)
	}
	if in, ok := addressIn(m.Binary.segs, addr-m.Start+m.Offset); ok {
		u.area.bin, u.area.bias = m.Binary, addr-in
	}
	return true
}

// step goes to the caller, by a rule of b. It gives the address there; or why
// there is none, and done.
func (u *Unwinder) step(b *Binary, r *rule) (pc uint64, end End, done bool) {
	if r.flags&outermost != 0 {
		return 0, Complete, true
	}
	if r.flags&guessed != 0 && r.cfaReg == u.role.fp && u.regs[r.cfaReg] == 0 {
		return 0, Complete, true // so the psABIs mark the outermost frame
	}
	if r.flags&needsOld != 0 {
		u.old = u.regs
	}
	u.mem.beyond = false
	cfa, ok := u.cfa(b, r)
	if !ok {
		return 0, u.missing(r, BadStack), true
	}
	if end := u.check(r, cfa); end != Complete {
		return 0, end, true
	}
	if !u.restore(b, r, cfa) {
		return 0, u.missing(r, BadStack), true
	}
	pc = u.regs[r.ra]
	if u.arch == perf.ARM64 && r.flags&signedReturn != 0 {
		pc = arm64Address(pc)
	}
	u.exact = r.flags&signalFrame != 0
	return pc, Complete, pc == 0
}

// check says what speaks against a frame at that address: stacks grow down,
// and only the handler of a signal may have another one.
func (u *Unwinder) check(r *rule, cfa uint64) End {
	sp := u.regs[u.role.sp]
	leaf := r.flags&raUnset != 0 // calls none, and may have it in a register
	switch {
	case r.flags&signalFrame != 0:
		if u.signals++; u.signals > maxSignals {
			return Loop
		}
	case leaf && (u.arch != perf.ARM64 || !u.exact):
		return Loop
	case cfa < sp, cfa == sp && !leaf:
		return u.missing(r, BadStack)
	}
	return Complete
}

// restore gives the registers the values that they have in the caller. It is
// false if its address is not among them.
func (u *Unwinder) restore(b *Binary, r *rule, cfa uint64) bool {
	known := u.known
	u.regs[u.role.sp] = cfa
	u.known |= 1 << u.role.sp
	for i := r.first; i < r.first+uint32(r.n); i++ {
		g := &b.regs[i]
		v, ok := uint64(0), false
		switch g.kind {
		case atOffset:
			v, ok = u.mem.word(cfa + uint64(int64(g.arg)))
		case isOffset:
			v, ok = cfa+uint64(int64(g.arg)), true
		case inReg:
			v, ok = u.old[g.arg], known&(1<<g.arg) != 0
		case atExpr, isExpr:
			v, ok = u.expression(b, g, cfa, known)
		}
		if !ok {
			u.known &^= 1 << g.reg
			if g.reg == r.ra {
				return false
			}
			continue
		}
		u.regs[g.reg] = v
		u.known |= 1 << g.reg
	}
	return u.known&(1<<r.ra) != 0
}

// cfa is the address of the frame.
func (u *Unwinder) cfa(b *Binary, r *rule) (uint64, bool) {
	if r.flags&cfaIsExpr == 0 {
		return u.regs[r.cfaReg] + uint64(int64(r.cfaOff)), u.known&(1<<r.cfaReg) != 0
	}
	e := &u.eval
	e.n, e.bad, e.regs, e.known, e.mem = 0, false, &u.regs, u.known, &u.mem
	return e.run(b.exprs[r.cfaOff])
}

// expression evaluates the expression of a register, which begins with the
// CFA on its stack.
func (u *Unwinder) expression(b *Binary, g *regRule, cfa, known uint64) (uint64, bool) {
	e := &u.eval
	e.n, e.bad, e.regs, e.known, e.mem = 0, false, &u.old, known, &u.mem
	e.push(cfa)
	v, ok := e.run(b.exprs[g.arg])
	if ok && g.kind == atExpr {
		return u.mem.word(v)
	}
	return v, ok
}

// missing is why a value could not be had.
func (u *Unwinder) missing(r *rule, otherwise End) End {
	switch {
	case u.mem.beyond:
		return Truncated
	case r.flags&guessed != 0:
		return NoCFI
	}
	return otherwise
}
