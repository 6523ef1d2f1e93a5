// SPDX-License-Identifier: Apache-2.0

package dlang

import (
	"fmt"
	"strconv"
)

// kind is the letter of the type at a position, behind references back.
func (p *parser) kind(at int) byte {
	for range maxDepth {
		if at >= len(p.s) {
			return 0
		}
		if p.s[at] != 'Q' {
			return p.s[at]
		}
		to, _ := p.target(at)
		if to < 0 {
			return 0
		}
		at = to
	}
	return 0
}

// value reads a value of a type: its letter, and what it is called.
func (p *parser) value(kind byte, name string) {
	if !p.enter() {
		return
	}
	defer p.leave()
	switch c := p.peek(0); {
	case c == 'n':
		p.pos++
		p.put("null")
	case c == 'N':
		p.pos++
		p.put("-")
		p.integer(kind)
	case c == 'i' && digit(p.peek(1)):
		p.pos++
		p.integer(kind)
	case digit(c):
		p.integer(kind)
	case c == 'e':
		p.pos++
		p.real()
	case c == 'c':
		p.pos++
		p.real()
		p.put("+")
		if !p.eat("c") {
			p.fail()
		}
		p.real()
		p.put("i")
	case c == 'a' || c == 'w' || c == 'd':
		p.text()
	case c == 'A':
		p.pos++
		p.list("[", "]", kind == 'H')
	case c == 'S':
		p.pos++
		p.list(name+"(", ")", false)
	case c == 'f':
		p.pos++
		p.mangled()
	default:
		p.fail()
	}
}

// list reads a number of values, or of pairs.
func (p *parser) list(open, end string, pairs bool) {
	p.put(open)
	for i, n := 0, p.number(); i < n && !p.bad; i++ {
		if i > 0 {
			p.put(", ")
		}
		p.value(0, "")
		if pairs {
			p.put(":")
			p.value(0, "")
		}
	}
	p.put(end)
}

// integer reads a number, and writes it as literals of its type are.
func (p *parser) integer(kind byte) {
	text := p.digits()
	switch kind {
	case 'a', 'u', 'w':
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			p.fail()
			return
		}
		p.put(character(kind, uint32(n)))
		return
	case 'b':
		if text == "0" {
			text = "false"
		} else {
			text = "true"
		}
	case 'h', 't', 'k':
		text += "u"
	case 'l':
		text += "L"
	case 'm':
		text += "uL"
	}
	p.put(text)
}

// character is a literal of char, wchar or dchar.
func character(kind byte, n uint32) string {
	switch {
	case kind == 'a' && n >= ' ' && n < 0x7f:
		return "'" + string(rune(n)) + "'"
	case kind == 'a':
		return fmt.Sprintf(`'\x%02x'`, n)
	case kind == 'u':
		return fmt.Sprintf(`'\u%04x'`, n)
	}
	return fmt.Sprintf(`'\U%08x'`, n)
}

// real reads a hexadecimal number with an exponent.
func (p *parser) real() {
	for _, x := range []struct{ code, text string }{{"NAN", "NaN"}, {"INF", "Inf"}, {"NINF", "-Inf"}} {
		if p.eat(x.code) {
			p.put(x.text)
			return
		}
	}
	if p.eat("N") {
		p.put("-")
	}
	if !hexDigit(p.peek(0)) {
		p.fail()
		return
	}
	p.put("0x" + p.s[p.pos:p.pos+1] + ".")
	p.pos++
	start := p.pos
	for hexDigit(p.peek(0)) {
		p.pos++
	}
	p.put(p.s[start:p.pos])
	if !p.eat("P") {
		p.fail()
		return
	}
	p.put("p")
	if p.eat("N") {
		p.put("-")
	}
	p.put(p.digits())
}

func hexDigit(c byte) bool { return digit(c) || c >= 'A' && c <= 'F' || c >= 'a' && c <= 'f' }

// text reads a string: the letter of its characters, their number, and the
// bytes in hexadecimal.
func (p *parser) text() {
	kind := p.peek(0)
	p.pos++
	n := p.number()
	if !p.eat("_") || n > (len(p.s)-p.pos)/2 {
		p.fail()
		return
	}
	p.put(`"`)
	for range n {
		c, err := strconv.ParseUint(p.s[p.pos:p.pos+2], 16, 8)
		if err != nil {
			p.fail()
			return
		}
		p.pos += 2
		p.put(escaped(byte(c)))
	}
	p.put(`"`)
	if kind != 'a' {
		p.out = append(p.out, kind)
	}
}

func escaped(c byte) string {
	switch c {
	case '\t':
		return `\t`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\f':
		return `\f`
	case '\v':
		return `\v`
	}
	if c >= ' ' && c < 0x7f {
		return string(rune(c))
	}
	return fmt.Sprintf(`\x%02x`, c)
}
