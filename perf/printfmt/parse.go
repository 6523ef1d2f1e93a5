// SPDX-License-Identifier: Apache-2.0

package printfmt

import (
	"errors"
	"strings"

	"github.com/gantry-tools/gantry/perf/perfdata"
)

// parser builds the nodes of a line.
type parser struct {
	lexer
	f     *perfdata.EventFormat
	long  int
	depth int
}

// maxDepth bounds the nesting of expressions.
const maxDepth = 200

// deeper is called at each level, and undone by the function it returns.
func (p *parser) deeper() func() {
	p.depth++
	if p.depth > maxDepth {
		p.fail(ErrUnsupported, "nested more than %d deep", maxDepth)
	}
	return func() { p.depth-- }
}

// argument is an argument of the format string: unknown if it needs the kernel
// itself.
func (p *parser) argument() node {
	save := p.lexer
	x := p.expr()
	if !errors.Is(p.err, ErrUnsupported) {
		return x
	}
	p.lexer = save
	p.skipTo(",")
	return unknown{}
}

// expr is an expression without commas.
func (p *parser) expr() node {
	defer p.deeper()()
	cond := p.binary(0)
	if !p.accept("?") {
		return cond
	}
	yes := p.expr()
	p.expect(":")
	return choice{cond, yes, p.expr()}
}

// levels are the binary operators, the weakest first.
func levels() [][]string {
	return [][]string{{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<<", ">>"},
		{"+", "-"}, {"*", "/", "%"}}
}

func (p *parser) binary(level int) node {
	all := levels()
	if level == len(all) {
		return p.unary()
	}
	l := p.binary(level + 1)
	for p.err == nil {
		op := ""
		for _, o := range all[level] {
			if p.is(o) {
				op = o
			}
		}
		if op == "" {
			break
		}
		p.next()
		r := p.binary(level + 1)
		both := l.signed() && r.signed()
		switch op {
		case "<<", ">>":
			both = l.signed()
		}
		l = binary{numeric{both || level <= 1 || level == 5 || level == 6}, op, l, r, both}
	}
	return l
}

func (p *parser) unary() node {
	defer p.deeper()()
	switch {
	case p.is("-"), p.is("~"), p.is("!"), p.is("+"):
		op := p.tok.s[0]
		p.next()
		x := p.unary()
		return unary{numeric{op == '-' || op == '!' || x.signed()}, op, x}
	case p.accept("&"):
		return p.unary() // an array's address is the array
	case p.accept("*"):
		return p.deref(p.unary())
	case p.is("("):
		return p.parens()
	}
	return p.postfix(p.primary())
}

func (p *parser) deref(x node) node {
	size, signed := elementOf(x)
	if size == 0 {
		p.fail(ErrUnsupported, "a pointer into the kernel")
		return constant{}
	}
	return deref{numeric{signed}, x, size}
}

// parens is a cast or an expression in parentheses.
func (p *parser) parens() node {
	save := p.lexer
	p.next()
	typ, stars, ok := p.typeName()
	if ok && p.accept(")") && p.err == nil && p.startsOperand() {
		return p.cast(typ, stars, p.unary())
	}
	p.lexer = save
	p.next()
	if p.is("{") {
		p.fail(ErrUnsupported, "statements")
	}
	x := p.expr()
	p.expect(")")
	return p.postfix(x)
}

// startsOperand reports whether the current token can begin an operand, as
// behind a cast, and is no operator between two.
func (p *parser) startsOperand() bool {
	switch p.tok.kind {
	case word, number, text:
		return true
	}
	return p.is("(") || p.is("~") || p.is("!") || p.is("-") || p.is("*") || p.is("&")
}

// typeName reads words and stars.
func (p *parser) typeName() (typ string, stars int, ok bool) {
	var words []string
	for p.tok.kind == word && p.tok.s != "REC" {
		switch p.tok.s {
		case "const", "volatile", "__user", "__force", "__data_loc":
		default:
			words = append(words, p.tok.s)
		}
		p.next()
	}
	for p.accept("*") {
		stars++
	}
	return strings.Join(words, " "), stars, len(words) > 0
}

// cast converts x. Types that are not known are taken to be as wide as x.
func (p *parser) cast(typ string, stars int, x node) node {
	size, signed := p.sizeOf(typ)
	switch {
	case stars == 1 && size > 0:
		return pointer{x, size, signed}
	case stars > 0:
		return x
	case size > 0:
		return cast{numeric{signed}, x, size}
	}
	return x
}

// sizeOf is the size of a type of numbers in bytes, 0 if it is not known.
func (p *parser) sizeOf(typ string) (size int, signed bool) {
	switch typ {
	case "char", "signed char", "s8", "__s8", "int8_t":
		return 1, true
	case "unsigned char", "u8", "__u8", "uint8_t", "bool":
		return 1, false
	case "short", "s16", "__s16", "int16_t":
		return 2, true
	case "unsigned short", "u16", "__u16", "uint16_t", "__le16", "__be16", "umode_t":
		return 2, false
	case "int", "s32", "__s32", "int32_t", "pid_t", "signed", "signed int":
		return 4, true
	case "unsigned int", "unsigned", "u32", "__u32", "uint32_t", "__le32", "__be32", "gfp_t", "dev_t":
		return 4, false
	case "long", "ssize_t", "long int", "intptr_t":
		return p.long, true
	case "unsigned long", "size_t", "uintptr_t", "long unsigned int":
		return p.long, false
	case "long long", "s64", "__s64", "int64_t", "loff_t", "ktime_t", "long long int":
		return 8, true
	case "unsigned long long", "u64", "__u64", "uint64_t", "sector_t", "__le64", "__be64", "dma_addr_t",
		"long long unsigned int":
		return 8, false
	}
	return 0, false
}

// elementOf is the size and sign of what x points to, 0 if it points to
// nothing in the record.
func elementOf(x node) (int, bool) {
	switch x := x.(type) {
	case pointer:
		return x.size, x.sign
	case field:
		if x.f.Dynamic != perfdata.NotDynamic {
			return elementSize(x.f.Type), x.f.Signed
		}
		if x.f.Array > 0 && x.f.Size%x.f.Array == 0 {
			return validSize(x.f.Size / x.f.Array), x.f.Signed
		}
	}
	return 0, false
}

func validSize(n int) int {
	switch n {
	case 1, 2, 4, 8:
		return n
	}
	return 0
}

func elementSize(typ string) int {
	p := parser{long: 8}
	size, _ := p.sizeOf(strings.TrimPrefix(typ, "const "))
	return max(size, 1)
}

// postfix is x and the brackets behind it.
func (p *parser) postfix(x node) node {
	for p.accept("[") {
		i := p.expr()
		p.expect("]")
		size, signed := elementOf(x)
		if size == 0 {
			p.fail(ErrUnsupported, "an index of something that is no array")
			return constant{}
		}
		x = index{numeric{signed}, x, i, size}
	}
	if p.is("->") || p.is(".") {
		p.fail(ErrUnsupported, "a member of a structure")
	}
	return x
}

func (p *parser) primary() node {
	t := p.tok
	switch t.kind {
	case number:
		p.next()
		return constant{numeric{true}, t.n}
	case text:
		return literal{s: p.strings()}
	case word:
		p.next()
		switch {
		case t.s == "REC":
			return p.record()
		case t.s == "sizeof":
			return p.sizeofExpr()
		case p.is("("):
			return p.function(t.s)
		}
		p.tok.at = t.at
		p.fail(ErrUnsupported, "the name %q", t.s)
	default:
		p.fail(ErrSyntax, "an operand expected before %q", t.s)
	}
	return constant{}
}

// strings joins strings that stand side by side.
func (p *parser) strings() string {
	var b strings.Builder
	for p.tok.kind == text {
		b.WriteString(p.tok.s)
		p.next()
	}
	return b.String()
}

// record is what follows REC.
func (p *parser) record() node {
	p.expect("->")
	name := p.tok.s
	if p.tok.kind != word {
		p.fail(ErrSyntax, "the name of a field expected")
		return constant{}
	}
	p.next()
	for _, prefix := range []string{"__data_loc_", "__rel_loc_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			if f := p.field(rest); f != nil {
				return fieldRef{f: f}
			}
		}
	}
	f := p.field(name)
	if f == nil {
		p.fail(ErrSyntax, "there is no field %q", name)
		return constant{}
	}
	return field{f}
}

func (p *parser) field(name string) *perfdata.Field {
	for i := range p.f.Fields {
		if f := &p.f.Fields[i]; f.Name == name {
			return f
		}
	}
	return nil
}

func (p *parser) sizeofExpr() node {
	p.expect("(")
	if p.tok.kind == word && p.tok.s == "REC" {
		p.next()
		if f, ok := p.record().(field); ok {
			p.expect(")")
			return constant{v: uint64(f.f.Size)}
		}
	}
	typ, stars, _ := p.typeName()
	size, _ := p.sizeOf(typ)
	if stars > 0 {
		size = p.long
	}
	if size == 0 {
		p.fail(ErrUnsupported, "the size of %q", typ)
	}
	p.expect(")")
	return constant{v: uint64(size)}
}
