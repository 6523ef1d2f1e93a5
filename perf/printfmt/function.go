// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// function is a call of one of the kernel's helpers for print fmt lines.
func (p *parser) function(name string) node {
	p.expect("(")
	defer p.expect(")")
	base := strings.TrimSuffix(strings.Replace(name, "_rel_", "_", 1), "_u64")
	switch base {
	case "__get_str", "__get_dynamic_array":
		return p.fieldArg()
	case "__get_dynamic_array_len":
		return dynLen{of: p.fieldArg()}
	case "__get_bitmask", "__get_cpumask":
		return bitmask{of: p.fieldArg()}
	case "__print_flags":
		return p.flags()
	case "__print_symbolic":
		v := p.expr()
		return symbolic{v: v, names: p.pairs()}
	case "__print_hex", "__print_hex_str":
		return p.hex(base)
	case "__print_array":
		return p.array()
	case "__builtin_expect":
		x := p.expr()
		p.expect(",")
		p.expr()
		return x
	}
	p.fail(ErrUnsupported, "the function %s", name)
	return constant{}
}

// fieldArg is an argument that is the bare name of a field.
func (p *parser) fieldArg() node {
	name := p.tok.s
	f := p.field(name)
	if p.tok.kind != word || f == nil {
		p.fail(ErrSyntax, "there is no field %q", name)
		return constant{}
	}
	p.next()
	return field{f}
}

// pair is { value, "name" }.
type pair struct {
	v    uint64
	name string
}

// pairs are the pairs behind the other arguments. The value may be the name
// of a constant that only the kernel's headers know, and the last name may be
// a null pointer: those are left out, so that the number is printed.
func (p *parser) pairs() []pair {
	var list []pair
	for p.accept(",") && p.err == nil {
		p.expect("{")
		if p.accept("}") {
			continue
		}
		save := p.lexer
		v := p.constant()
		known := true
		if errors.Is(p.err, ErrUnsupported) {
			p.lexer, known = save, false
			p.skipTo(",")
		}
		p.expect(",")
		if p.tok.kind != text {
			p.skipTo("}")
			known = false
		}
		name := p.strings()
		if p.expect("}"); known {
			list = append(list, pair{v, name})
		}
	}
	return list
}

// skipTo moves to the operator, over everything in parentheses, or to the end.
func (p *parser) skipTo(op string) {
	depth := 0
	for p.err == nil && p.tok.kind != end && (depth > 0 || !p.is(op)) {
		switch {
		case p.is("("), p.is("{"), p.is("["):
			depth++
		case p.is(")"), p.is("}"), p.is("]"):
			if depth--; depth < 0 {
				return
			}
		}
		p.next()
	}
}

// constant is an expression without fields.
func (p *parser) constant() uint64 {
	x := p.expr()
	if p.err != nil {
		return 0
	}
	return x.num(&call{o: &Options{}})
}

// flags is __print_flags: the names of the bits that are set.
type flags struct {
	textual
	v     node
	delim string
	names []pair
}

func (p *parser) flags() node {
	v := p.expr()
	p.expect(",")
	if p.tok.kind != text {
		p.fail(ErrSyntax, "a string expected")
	}
	delim := p.strings()
	return flags{v: v, delim: delim, names: p.pairs()}
}

func (n flags) text(c *call, dst []byte) []byte {
	v := n.v.num(c)
	first := true
	sep := func() {
		if !first {
			dst = append(dst, n.delim...)
		}
		first = false
	}
	for _, p := range n.names {
		if v == 0 && first && p.v == 0 {
			return append(dst, p.name...)
		}
		if p.v != 0 && v&p.v == p.v {
			sep()
			dst = append(dst, p.name...)
			v &^= p.v
		}
	}
	if v != 0 {
		sep()
		dst = strconv.AppendUint(append(dst, "0x"...), v, 16)
	}
	return dst
}

// symbolic is __print_symbolic: the name of a value.
type symbolic struct {
	textual
	v     node
	names []pair
}

func (n symbolic) text(c *call, dst []byte) []byte {
	v := n.v.num(c)
	for _, p := range n.names {
		if p.v == v || uint32(p.v) == uint32(v) && int64(p.v) < 0 {
			return append(dst, p.name...)
		}
	}
	return strconv.AppendUint(append(dst, "0x"...), v, 16)
}

// hexBytes is __print_hex and __print_hex_str.
type hexBytes struct {
	textual
	of, n  node
	spaces bool
}

func (p *parser) hex(name string) node {
	of := p.expr()
	p.expect(",")
	return hexBytes{of: of, n: p.expr(), spaces: name == "__print_hex"}
}

func (n hexBytes) text(c *call, dst []byte) []byte {
	b := n.of.bytes(c)
	b = b[:min(uint64(len(b)), n.n.num(c))]
	if !n.spaces {
		return hex.AppendEncode(dst, b)
	}
	for i := range b {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = hex.AppendEncode(dst, b[i:i+1])
	}
	return dst
}

// array is __print_array: {0x1,0x2}.
type array struct {
	textual
	of, n, size node
}

func (p *parser) array() node {
	of := p.expr()
	p.expect(",")
	n := p.expr()
	p.expect(",")
	return array{of: of, n: n, size: p.expr()}
}

func (n array) text(c *call, dst []byte) []byte {
	dst = append(dst, '{')
	b := n.of.bytes(c)
	size := validSize(int(min(n.size.num(c), 16)))
	if size > 0 {
		for i := range min(n.n.num(c), uint64(len(b)/size)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(append(dst, "0x"...), load(b[int(i)*size:], size, c.order, false), 16)
		}
	}
	return append(dst, '}')
}

// bitmask is a set of cpus, as hexadecimal words of 32 bits.
type bitmask struct {
	textual
	of node
}

func (n bitmask) text(c *call, dst []byte) []byte {
	b := n.of.bytes(c)
	for i := len(b)/4 - 1; i >= 0; i-- {
		at := i
		if c.order != 0 && len(b)%8 == 0 { // words of 64 bits, the high half first
			at ^= 1
		}
		v := c.order.Uint32(b[at*4:])
		for shift := 28; shift >= 0; shift -= 4 {
			dst = append(dst, "0123456789abcdef"[v>>shift&15])
		}
		if i > 0 {
			dst = append(dst, ',')
		}
	}
	return dst
}
