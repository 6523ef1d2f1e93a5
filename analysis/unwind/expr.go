// SPDX-License-Identifier: Apache-2.0

package unwind

// Limits of the evaluation of one expression.
const (
	maxExprOps   = 1 << 10
	maxExprStack = 64
)

// evaluation evaluates an expression.
type evaluation struct {
	cursor
	stack [maxExprStack]uint64
	n     int
	regs  *[numRegs]uint64
	known uint64
	mem   *stackMemory
}

// Operations of expressions (DW_OP_*), from section 2.5.1 of the DWARF 5
// standard.
const (
	xAddr    = 0x03
	xDeref   = 0x06
	xConst1u = 0x08
	xConst1s = 0x09
	xConst2u = 0x0a
	xConst2s = 0x0b
	xConst4u = 0x0c
	xConst4s = 0x0d
	xConst8u = 0x0e
	xConst8s = 0x0f
	xConstu  = 0x10
	xConsts  = 0x11
	xDup     = 0x12
	xDrop    = 0x13
	xOver    = 0x14
	xPick    = 0x15
	xSwap    = 0x16
	xRot     = 0x17
	xAbs     = 0x19
	xAnd     = 0x1a
	xDiv     = 0x1b
	xMinus   = 0x1c
	xMod     = 0x1d
	xMul     = 0x1e
	xNeg     = 0x1f
	xNot     = 0x20
	xOr      = 0x21
	xPlus    = 0x22
	xPlusU   = 0x23
	xShl     = 0x24
	xShr     = 0x25
	xShra    = 0x26
	xXor     = 0x27
	xBra     = 0x28
	xEq      = 0x29
	xGe      = 0x2a
	xGt      = 0x2b
	xLe      = 0x2c
	xLt      = 0x2d
	xNe      = 0x2e
	xSkip    = 0x2f
	xLit0    = 0x30
	xLit31   = 0x4f
	xBreg0   = 0x70
	xBreg31  = 0x8f
	xBregx   = 0x92
	xDerefN  = 0x94
	xNop     = 0x96
)

func (e *evaluation) push(v uint64) {
	if e.n == maxExprStack {
		e.bad = true
		return
	}
	e.stack[e.n] = v
	e.n++
}

func (e *evaluation) pop() uint64 {
	if e.n == 0 {
		e.bad = true
		return 0
	}
	e.n--
	return e.stack[e.n]
}

// run evaluates b on what is on the stack.
func (e *evaluation) run(b []byte) (uint64, bool) {
	e.cursor = cursor{b: b}
	for range maxExprOps {
		if e.bad || e.at == len(e.b) {
			v := e.pop()
			return v, !e.bad
		}
		e.step(e.u8())
	}
	return 0, false
}

func (e *evaluation) step(op uint8) {
	switch {
	case op >= xLit0 && op <= xLit31:
		e.push(uint64(op - xLit0))
	case op >= xBreg0 && op <= xBreg31:
		e.breg(uint64(op - xBreg0))
	case op == xBregx:
		e.breg(e.uleb())
	case op == xAddr || op >= xConst1u && op <= xConsts:
		e.push(e.constant(op))
	case op >= xDup && op <= xRot:
		e.shuffle(op)
	case op == xDeref:
		e.deref(8)
	case op == xDerefN:
		e.deref(int(e.u8()))
	case op == xAbs || op == xNeg || op == xNot || op == xPlusU:
		e.unary(op)
	case op >= xAnd && op <= xXor || op >= xEq && op <= xNe:
		e.binary(op)
	case op == xBra || op == xSkip:
		e.jump(op)
	case op == xNop:
	default:
		e.bad = true
	}
}

func (e *evaluation) breg(reg uint64) {
	off := e.sleb()
	if reg >= numRegs || e.known&(1<<reg) == 0 {
		e.bad = true
		return
	}
	e.push(e.regs[reg] + uint64(off))
}

func (e *evaluation) constant(op uint8) uint64 {
	switch op {
	case xConst1u:
		return uint64(e.u8())
	case xConst1s:
		return uint64(int64(int8(e.u8())))
	case xConst2u:
		return uint64(e.u16())
	case xConst2s:
		return uint64(int64(int16(e.u16())))
	case xConst4u:
		return uint64(e.u32())
	case xConst4s:
		return uint64(int64(int32(e.u32())))
	case xConstu:
		return e.uleb()
	case xConsts:
		return uint64(e.sleb())
	}
	return e.u64()
}

func (e *evaluation) shuffle(op uint8) {
	switch op {
	case xDup:
		e.pick(0)
	case xDrop:
		e.pop()
	case xOver:
		e.pick(1)
	case xPick:
		e.pick(int(e.u8()))
	case xSwap:
		a, b := e.pop(), e.pop()
		e.push(a)
		e.push(b)
	case xRot:
		a, b, c := e.pop(), e.pop(), e.pop()
		e.push(a)
		e.push(c)
		e.push(b)
	}
}

func (e *evaluation) pick(depth int) {
	if depth >= e.n {
		e.bad = true
		return
	}
	e.push(e.stack[e.n-1-depth])
}

func (e *evaluation) deref(size int) {
	v, ok := e.mem.load(e.pop(), size)
	if !ok {
		e.bad = true
	}
	e.push(v)
}

func (e *evaluation) unary(op uint8) {
	v := e.pop()
	switch op {
	case xAbs:
		if int64(v) < 0 {
			v = -v
		}
	case xNeg:
		v = -v
	case xNot:
		v = ^v
	case xPlusU:
		v += e.uleb()
	}
	e.push(v)
}

func (e *evaluation) binary(op uint8) {
	b, a := e.pop(), e.pop()
	switch op {
	case xAnd:
		a &= b
	case xOr:
		a |= b
	case xXor:
		a ^= b
	case xPlus:
		a += b
	case xMinus:
		a -= b
	case xMul:
		a *= b
	case xShl:
		a <<= b
	case xShr:
		a >>= b
	case xShra:
		a = uint64(int64(a) >> b)
	case xDiv, xMod:
		a = e.divide(op, a, b)
	default:
		a = compare(op, int64(a), int64(b))
	}
	e.push(a)
}

func (e *evaluation) divide(op uint8, a, b uint64) uint64 {
	switch {
	case b == 0:
		e.bad = true
		return 0
	case op == xMod:
		return a % b
	case int64(b) == -1:
		return -a
	}
	return uint64(int64(a) / int64(b))
}

func compare(op uint8, a, b int64) uint64 {
	var yes bool
	switch op {
	case xEq:
		yes = a == b
	case xGe:
		yes = a >= b
	case xGt:
		yes = a > b
	case xLe:
		yes = a <= b
	case xLt:
		yes = a < b
	case xNe:
		yes = a != b
	}
	if yes {
		return 1
	}
	return 0
}

func (e *evaluation) jump(op uint8) {
	by := int(int16(e.u16()))
	if op == xBra && e.pop() == 0 {
		return
	}
	if to := e.at + by; to >= 0 && to <= len(e.b) {
		e.at = to
		return
	}
	e.bad = true
}
