// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"bytes"
	"strconv"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// call is one Append.
type call struct {
	raw   []byte
	order perf.Order
	o     *Options
}

// node is an expression. Numbers are 64 bits, sign-extended if they are
// signed; what has no value, as bytes that are not there, is 0 or empty.
type node interface {
	num(c *call) uint64
	// text is what %s prints.
	text(c *call, dst []byte) []byte
	// bytes is what a pointer points to, nil for numbers.
	bytes(c *call) []byte
	signed() bool
}

// numeric is the part of nodes that are numbers only.
type numeric struct{ isSigned bool }

func (numeric) bytes(*call) []byte { return nil }
func (n numeric) signed() bool     { return n.isSigned }

// textual is the part of nodes that are text only.
type textual struct{}

func (textual) num(*call) uint64   { return 0 }
func (textual) bytes(*call) []byte { return nil }
func (textual) signed() bool       { return false }

// pointerText prints a number as the string it points to in the kernel.
func pointerText(c *call, dst []byte, v uint64) []byte {
	if c.o.String != nil {
		if s, ok := c.o.String(v); ok {
			return append(dst, s...)
		}
	}
	return strconv.AppendUint(append(dst, "0x"...), v, 16)
}

// unknown is what only the kernel can tell.
type unknown struct{ textual }

func (unknown) text(_ *call, dst []byte) []byte { return append(dst, '?') }

// constant is a number in the line.
type constant struct {
	numeric
	v uint64
}

func (n constant) num(*call) uint64                { return n.v }
func (n constant) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.v) }

// literal is a string in the line.
type literal struct {
	textual
	s string
}

func (n literal) text(_ *call, dst []byte) []byte { return append(dst, n.s...) }
func (n literal) bytes(*call) []byte              { return []byte(n.s) }

// field is REC->name: a number, or the text or the elements of an array.
type field struct{ f *perfdata.Field }

func (n field) num(c *call) uint64 {
	v, _ := n.f.Uint(c.raw, c.order)
	return v
}

func (n field) bytes(c *call) []byte {
	if n.f.Array == 0 && n.f.Dynamic == perfdata.NotDynamic {
		return nil
	}
	b, _ := n.f.Bytes(c.raw, c.order)
	return b
}

func (n field) text(c *call, dst []byte) []byte {
	if n.f.Array == 0 && n.f.Dynamic == perfdata.NotDynamic {
		return pointerText(c, dst, n.num(c))
	}
	return append(dst, cString(n.bytes(c))...)
}

func (n field) signed() bool { return n.f.Signed }

func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b
}

// fieldRef is the four bytes that say where a dynamic field is.
type fieldRef struct {
	numeric
	f *perfdata.Field
}

func (n fieldRef) num(c *call) uint64 {
	v, _ := n.f.Uint(c.raw, c.order)
	return v
}

func (n fieldRef) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

// dynLen is __get_dynamic_array_len.
type dynLen struct {
	numeric
	of node
}

func (n dynLen) num(c *call) uint64              { return uint64(len(n.of.bytes(c))) }
func (n dynLen) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

// pointer is what a cast makes of bytes: size is that of what it points to.
type pointer struct {
	node
	size int
	sign bool
}

// index is one element of an array.
type index struct {
	numeric
	of   node
	i    node
	size int
}

func (n index) num(c *call) uint64 {
	b := n.of.bytes(c)
	i := n.i.num(c)
	if i >= uint64(len(b)/n.size) {
		return 0
	}
	return load(b[int(i)*n.size:], n.size, c.order, n.isSigned)
}

func (n index) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

// deref is *p.
type deref struct {
	numeric
	of   node
	size int
}

func (n deref) num(c *call) uint64 {
	b := n.of.bytes(c)
	if len(b) < n.size {
		return 0
	}
	return load(b, n.size, c.order, n.isSigned)
}

func (n deref) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

func load(b []byte, size int, o perf.Order, signed bool) uint64 {
	var v uint64
	switch size {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(o.Uint16(b))
	case 4:
		v = uint64(o.Uint32(b))
	case 8:
		v = o.Uint64(b)
	}
	return extend(v, size, signed)
}

// extend cuts v to size bytes and extends its sign.
func extend(v uint64, size int, signed bool) uint64 {
	shift := 64 - 8*size
	if signed {
		return uint64(int64(v<<shift) >> shift)
	}
	return v << shift >> shift
}

// cast is a conversion to a number of a size.
type cast struct {
	numeric
	of   node
	size int
}

func (n cast) num(c *call) uint64              { return extend(n.of.num(c), n.size, n.isSigned) }
func (n cast) text(c *call, dst []byte) []byte { return n.of.text(c, dst) }
func (n cast) bytes(c *call) []byte            { return n.of.bytes(c) }

// unary is an operator before its operand.
type unary struct {
	numeric
	op byte
	x  node
}

func (n unary) num(c *call) uint64 {
	v := n.x.num(c)
	switch n.op {
	case '-':
		return -v
	case '~':
		return ^v
	case '!':
		return truth(v == 0)
	}
	return v
}

func (n unary) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// binary is an operator between its operands. less says the comparisons are
// of signed numbers.
type binary struct {
	numeric
	op   string
	l, r node
	less bool
}

func (n binary) num(c *call) uint64 {
	l := n.l.num(c)
	switch n.op {
	case "&&":
		return truth(l != 0 && n.r.num(c) != 0)
	case "||":
		return truth(l != 0 || n.r.num(c) != 0)
	}
	return n.apply(l, n.r.num(c))
}

func (n binary) apply(l, r uint64) uint64 {
	switch n.op {
	case "|":
		return l | r
	case "^":
		return l ^ r
	case "&":
		return l & r
	case "==":
		return truth(l == r)
	case "!=":
		return truth(l != r)
	case "<":
		return truth(n.compare(l, r))
	case ">":
		return truth(n.compare(r, l))
	case "<=":
		return truth(!n.compare(r, l))
	case ">=":
		return truth(!n.compare(l, r))
	case "+":
		return l + r
	case "-":
		return l - r
	case "*":
		return l * r
	case "<<":
		return l << min(r, 64)
	case ">>":
		if n.l.signed() {
			return uint64(int64(l) >> min(r, 63))
		}
		return l >> min(r, 64)
	}
	return n.divide(l, r)
}

// divide is / and %. By zero, which the kernel would not survive, it is 0.
func (n binary) divide(l, r uint64) uint64 {
	if r == 0 {
		return 0
	}
	if n.less {
		if n.op == "/" {
			return uint64(int64(l) / int64(r))
		}
		return uint64(int64(l) % int64(r))
	}
	if n.op == "/" {
		return l / r
	}
	return l % r
}

func (n binary) compare(l, r uint64) bool {
	if n.less {
		return int64(l) < int64(r)
	}
	return l < r
}

func (n binary) text(c *call, dst []byte) []byte { return pointerText(c, dst, n.num(c)) }

// choice is cond ? yes : no.
type choice struct{ cond, yes, no node }

func (n choice) pick(c *call) node {
	if n.cond.num(c) != 0 {
		return n.yes
	}
	return n.no
}

func (n choice) num(c *call) uint64              { return n.pick(c).num(c) }
func (n choice) text(c *call, dst []byte) []byte { return n.pick(c).text(c, dst) }
func (n choice) bytes(c *call) []byte            { return n.pick(c).bytes(c) }
func (n choice) signed() bool                    { return n.yes.signed() && n.no.signed() }
