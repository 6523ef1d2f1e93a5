// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"math"
	"slices"
)

// rule says how to get from a frame to its caller's: the address of the frame
// (CFA) first, then where each register is that the caller had another value in.
type rule struct {
	cfaOff int32 // added to the register, or the index of an expression
	first  uint32
	n      uint8 // regs[first : first+n]
	cfaReg uint8
	ra     uint8 // the register with the address of the caller
	flags  ruleFlags
}

type ruleFlags uint8

const (
	cfaIsExpr    ruleFlags = 1 << iota // cfaOff is the index of an expression
	needsOld                           // registers are computed from those of this frame
	signalFrame                        // what it returns to was interrupted, and is no call
	outermost                          // there is no caller
	signedReturn                       // the address has an authentication code (arm64)
	guessed                            // not from CFI
	raUnset                            // the caller's address is still in its register
)

// regRule says where one register of the caller is.
type regRule struct {
	arg  int32
	reg  uint8
	kind regKind
}

type regKind uint8

const (
	unset     regKind = iota // it still has its value
	same                     // so the CFI says
	undefined                // it is lost
	atOffset                 // in memory, arg bytes from the CFA
	isOffset                 // it is the CFA and arg
	inReg                    // in register arg
	atExpr                   // in memory, where expression arg says
	isExpr                   // it is what expression arg says
)

// row begins, off bytes behind the start of its function, the range of
// addresses that have a rule.
type row struct {
	off  uint32
	rule uint32
}

// span are the rows of one function.
type span struct {
	start, end uint64 // addresses of the file
	first, n   uint32 // rows[first : first+n]
}

// Limits of the table of one binary, whatever its CFI claims: the CFI of the
// largest programs gives a tenth.
const (
	maxRows  = 1 << 23
	maxRules = 1 << 18
	maxExpr  = 1 << 10 // bytes of one expression
	maxWork  = 1 << 28 // bytes of instructions: overlapping entries are many times the file
)

// table is what the CFI of a binary was turned into so far.
type table struct {
	rules []rule
	regs  []regRule
	exprs [][]byte
	rows  []row
	spans []span

	interned     map[string]uint32 // by the bytes of key
	internedExpr map[string]int32
	key          []byte
	work         int // bytes of instructions that were run
}

// at is the index of the rule at an address of a span.
func (t *table) at(s *span, addr uint64) (uint32, bool) {
	if s.n == 0 || addr < s.start || addr >= s.end {
		return 0, false
	}
	off := addr - s.start
	lo, hi := s.first, s.first+s.n
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if uint64(t.rows[mid].off) <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return t.rows[lo].rule, true
}

// expr is the index of an expression, negative if it is too long or there are
// too many.
func (t *table) expr(b []byte) int32 {
	if len(b) > maxExpr || len(t.exprs) >= maxRules {
		return -1
	}
	if i, ok := t.internedExpr[string(b)]; ok {
		return i
	}
	if t.internedExpr == nil {
		t.internedExpr = make(map[string]int32)
	}
	i := int32(len(t.exprs))
	own := slices.Clone(b)
	t.exprs = append(t.exprs, own)
	t.internedExpr[string(own)] = i
	return i
}

// intern is the index of a rule with these registers.
func (t *table) intern(r rule, regs []regRule) (uint32, bool) {
	t.makeKey(r, regs)
	if i, ok := t.interned[string(t.key)]; ok {
		return i, true
	}
	if len(t.rules) >= maxRules || len(regs) > math.MaxUint8 {
		return 0, false
	}
	if t.interned == nil {
		t.interned = make(map[string]uint32)
	}
	r.first, r.n = uint32(len(t.regs)), uint8(len(regs))
	t.regs = append(t.regs, regs...)
	t.rules = append(t.rules, r)
	i := uint32(len(t.rules) - 1)
	t.interned[string(t.key)] = i
	return i, true
}

// makeKey makes the key of a rule.
func (t *table) makeKey(r rule, regs []regRule) {
	t.key = append(t.key[:0], r.cfaReg, r.ra, uint8(r.flags))
	t.key = binary.LittleEndian.AppendUint32(t.key, uint32(r.cfaOff))
	for _, g := range regs {
		t.key = append(t.key, g.reg, uint8(g.kind))
		t.key = binary.LittleEndian.AppendUint32(t.key, uint32(g.arg))
	}
}
