// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gantry-tools/gantry/perf"
)

// state is what a CFI program has at one address.
type state struct {
	cfaReg  uint8
	cfaExpr bool
	hasCFA  bool
	signed  bool
	cfaOff  int64  // or the index of an expression
	set     uint64 // registers with a rule
	kinds   [numRegs]regKind
	args    [numRegs]int64
}

func (s *state) put(reg uint64, kind regKind, arg int64) {
	if reg >= numRegs {
		return // a vector register
	}
	s.kinds[reg], s.args[reg] = kind, arg
	if kind == unset {
		s.set &^= 1 << reg
	} else {
		s.set |= 1 << reg
	}
}

func (s *state) restore(reg uint64, from *state) {
	if reg < numRegs {
		s.put(reg, from.kinds[reg], from.args[reg])
	}
}

// Instructions of CFI programs (DW_CFA_*), from section 6.4.2 of the DWARF 5
// standard and, the last ones, the psABIs. The first three have their operand
// in the low six bits.
const (
	opAdvance = 0x40
	opOffset  = 0x80
	opRestore = 0xc0

	opNop           = 0x00
	opSetLoc        = 0x01
	opAdvance1      = 0x02
	opAdvance2      = 0x03
	opAdvance4      = 0x04
	opOffsetExt     = 0x05
	opRestoreExt    = 0x06
	opUndefined     = 0x07
	opSameValue     = 0x08
	opRegister      = 0x09
	opRemember      = 0x0a
	opRestoreState  = 0x0b
	opDefCFA        = 0x0c
	opDefCFAReg     = 0x0d
	opDefCFAOffset  = 0x0e
	opDefCFAExpr    = 0x0f
	opExpr          = 0x10
	opOffsetExtSF   = 0x11
	opDefCFASF      = 0x12
	opDefCFAOffSF   = 0x13
	opValOffset     = 0x14
	opValOffsetSF   = 0x15
	opValExpr       = 0x16
	opNegateRAState = 0x2d // on arm64; elsewhere SPARC's
	opNegateRAPC    = 0x2c
	opArgsSize      = 0x2e
	opNegOffsetExt  = 0x2f
)

// maxRemembered bounds the stack of states; compilers use one or two.
const maxRemembered = 32

// program runs the instructions of one function.
type program struct {
	cursor
	t    *table
	arch perf.Arch
	cie  *cie
	fde  *fde // nil while those of the CIE run

	state      state
	initial    *state // after the instructions of the CIE; nil while they run
	remembered []state
	off        uint64 // of the row, from the start of the function
	lastRule   uint32
	rows       uint32 // of this function so far
	done       bool   // the rows behind are not of this function
}

// run executes b to its end.
func (p *program) run(b []byte) error {
	p.cursor = cursor{b: b}
	if p.t.work += len(b); p.t.work > maxWork {
		return fmt.Errorf("more than %d bytes of instructions: %w", maxWork, errCFI)
	}
	for p.at < len(p.b) && !p.done {
		start := p.at
		if err := p.step(p.u8()); err != nil {
			return fmt.Errorf("instruction at byte %#x of %#x: %w", start, len(b), err)
		}
		if p.bad {
			return fmt.Errorf("instruction at byte %#x of %#x: %w", start, len(b), errCFI)
		}
	}
	return nil
}

func (p *program) step(op uint8) error {
	low := uint64(op & 0x3f)
	switch op & 0xc0 {
	case opAdvance:
		return p.advance(low)
	case opOffset:
		p.offset(low, int64(p.uleb()))
		return nil
	case opRestore:
		return p.restoreReg(low)
	}
	switch op {
	case opNop:
	case opSetLoc:
		return p.setLoc()
	case opAdvance1:
		return p.advance(uint64(p.u8()))
	case opAdvance2:
		return p.advance(uint64(p.u16()))
	case opAdvance4:
		return p.advance(uint64(p.u32()))
	case opRemember:
		if len(p.remembered) == maxRemembered {
			return errCFI
		}
		p.remembered = append(p.remembered, p.state)
	case opRestoreState:
		n := len(p.remembered)
		if n == 0 {
			return errCFI
		}
		p.state, p.remembered = p.remembered[n-1], p.remembered[:n-1]
	case opNegateRAState, opNegateRAPC:
		if p.arch != perf.ARM64 {
			return errCFI
		}
		p.state.signed = !p.state.signed
	case opArgsSize:
		p.uleb()
	case opDefCFA, opDefCFASF, opDefCFAReg, opDefCFAOffset, opDefCFAOffSF, opDefCFAExpr:
		return p.defCFA(op)
	default:
		return p.regRule(op)
	}
	return nil
}

func (p *program) defCFA(op uint8) error {
	s := &p.state
	switch op {
	case opDefCFA:
		p.cfaReg(p.uleb())
		s.cfaOff, s.cfaExpr = int64(p.uleb()), false
	case opDefCFASF:
		p.cfaReg(p.uleb())
		s.cfaOff, s.cfaExpr = p.sleb()*p.cie.dataAlign, false
	case opDefCFAReg:
		p.cfaReg(p.uleb())
		if s.cfaExpr {
			return errCFI
		}
	case opDefCFAOffset:
		s.cfaOff = int64(p.uleb())
		if s.cfaExpr {
			return errCFI
		}
	case opDefCFAOffSF:
		s.cfaOff = p.sleb() * p.cie.dataAlign
		if s.cfaExpr {
			return errCFI
		}
	case opDefCFAExpr:
		e := p.t.expr(p.block())
		if e < 0 {
			return errCFI
		}
		s.cfaOff, s.cfaExpr, s.hasCFA = int64(e), true, true
	}
	return nil
}

func (p *program) cfaReg(reg uint64) {
	if reg >= numRegs {
		p.bad = true
		return
	}
	p.state.cfaReg, p.state.hasCFA = uint8(reg), true
}

func (p *program) block() []byte {
	n := p.uleb()
	if n > math.MaxInt32 {
		p.bad = true
		return nil
	}
	return p.take(int(n))
}

func (p *program) offset(reg uint64, factored int64) {
	p.state.put(reg, atOffset, factored*p.cie.dataAlign)
}

// regRule executes the instructions that say where one register is.
func (p *program) regRule(op uint8) error {
	reg := p.uleb()
	switch op {
	case opOffsetExt:
		p.offset(reg, int64(p.uleb()))
	case opOffsetExtSF:
		p.offset(reg, p.sleb())
	case opNegOffsetExt:
		p.offset(reg, -int64(p.uleb()))
	case opRestoreExt:
		return p.restoreReg(reg)
	case opUndefined:
		p.state.put(reg, undefined, 0)
	case opSameValue:
		p.state.put(reg, same, 0)
	case opRegister:
		from := p.uleb()
		if from >= numRegs {
			p.state.put(reg, undefined, 0)
		} else {
			p.state.put(reg, inReg, int64(from))
		}
	case opValOffset:
		p.state.put(reg, isOffset, int64(p.uleb())*p.cie.dataAlign)
	case opValOffsetSF:
		p.state.put(reg, isOffset, p.sleb()*p.cie.dataAlign)
	case opExpr, opValExpr:
		kind := atExpr
		if op == opValExpr {
			kind = isExpr
		}
		e := p.t.expr(p.block())
		if e < 0 {
			return errCFI
		}
		p.state.put(reg, kind, int64(e))
	default:
		return errCFI
	}
	return nil
}

func (p *program) restoreReg(reg uint64) error {
	if p.initial == nil {
		return errCFI
	}
	p.state.restore(reg, p.initial)
	return nil
}

func (p *program) setLoc() error {
	if p.initial == nil {
		return errCFI
	}
	c := cursor{b: p.b[p.at:]}
	to := c.pointer(p.cie.enc, p.fde.code+uint64(p.at), 0)
	p.at += c.at
	if c.bad || to < p.fde.start+p.off {
		return errCFI
	}
	return p.moveTo(to - p.fde.start)
}

func (p *program) advance(delta uint64) error {
	if p.initial == nil {
		return errCFI
	}
	return p.moveTo(p.off + delta*p.cie.codeAlign)
}

// moveTo ends the row that begins at off, and begins the next.
func (p *program) moveTo(off uint64) error {
	if off < p.off {
		return errCFI
	}
	if off > p.off {
		if err := p.emit(); err != nil {
			return err
		}
	}
	p.off = off
	p.done = off >= p.fde.end-p.fde.start
	return nil
}

// emit adds the row of the current state.
func (p *program) emit() error {
	r, ok := p.rule()
	if !ok {
		return errCFI
	}
	if p.rows > 0 && r == p.lastRule {
		return nil
	}
	if len(p.t.rows) >= maxRows || p.off > math.MaxUint32 {
		return errCFI
	}
	p.t.rows = append(p.t.rows, row{uint32(p.off), r})
	p.rows++
	p.lastRule = r
	return nil
}

// rule turns the state into a rule.
func (p *program) rule() (uint32, bool) {
	s := &p.state
	if !s.hasCFA || s.cfaOff != int64(int32(s.cfaOff)) {
		return 0, false
	}
	r := rule{cfaOff: int32(s.cfaOff), cfaReg: s.cfaReg, ra: p.cie.ra}
	if s.cfaExpr {
		r.flags |= cfaIsExpr
		r.cfaReg = 0
	}
	if s.signed {
		r.flags |= signedReturn
	}
	if p.cie.signal {
		r.flags |= signalFrame
	}
	if k := s.kinds[r.ra]; k == undefined {
		r.flags |= outermost
	} else if k == unset || k == same {
		r.flags |= raUnset
	}
	var regs [numRegs]regRule
	n := 0
	for m := s.set; m != 0; m &= m - 1 {
		reg := uint8(bits.TrailingZeros64(m))
		k, arg := s.kinds[reg], s.args[reg]
		if k == same {
			continue
		}
		if arg != int64(int32(arg)) {
			return 0, false
		}
		if k == inReg || k == atExpr || k == isExpr {
			r.flags |= needsOld
		}
		regs[n] = regRule{arg: int32(arg), reg: reg, kind: k}
		n++
	}
	return p.t.intern(r, regs[:n])
}
