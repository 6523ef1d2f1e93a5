// SPDX-License-Identifier: Apache-2.0

// Package dlang demangles the names of functions and variables that compilers
// of the D language make, as https://dlang.org/spec/abi.html#name_mangling
// defines them.
//
// Names come from symbol tables that may be hostile: references back may form
// cycles and grow without end, so work, depth and the length of what comes out are
// bounded.
package dlang

// Limits of one name.
const (
	maxSteps  = 1 << 14 // names, types and values that are read, some again
	maxDepth  = 1 << 8
	maxOutput = 1 << 14 // bytes
)

// Demangle returns the name that people write, with parameters if they are
// wanted; those of templates it has in any case. It is false if name is none of
// the language.
func Demangle(name string, params bool) (string, bool) {
	if name == "_Dmain" {
		return "D main", true
	}
	if len(name) < 4 || name[:2] != "_D" {
		return "", false
	}
	// Behind the name of a type, Y ends parameters more often than it begins those
	// of a function in Objective-C around the type.
	for _, objc := range []bool{false, true} {
		p := &parser{s: name, params: params, objc: objc}
		if p.mangled(); !p.bad && p.pos == len(p.s) && len(p.out) > 0 {
			return string(p.out), true
		}
	}
	return "", false
}

// parser reads a name from pos on and writes to out.
type parser struct {
	s      string
	pos    int
	out    []byte
	params bool
	objc   bool // functions around types may be in Objective-C
	steps  int
	depth  int
	bad    bool
}

func (p *parser) fail() { p.bad, p.pos = true, len(p.s) }

// enter counts a step down, and reports whether it may be taken.
func (p *parser) enter() bool {
	p.steps++
	p.depth++
	if p.steps > maxSteps || p.depth > maxDepth || len(p.out) > maxOutput {
		p.fail()
	}
	return !p.bad
}

func (p *parser) leave() { p.depth-- }

func (p *parser) put(s string) { p.out = append(p.out, s...) }

// peek is the byte at an offset from pos, 0 behind the end.
func (p *parser) peek(n int) byte {
	if p.pos+n < len(p.s) {
		return p.s[p.pos+n]
	}
	return 0
}

// eat takes a text, if it is next.
func (p *parser) eat(text string) bool {
	if len(p.s)-p.pos < len(text) || p.s[p.pos:p.pos+len(text)] != text {
		return false
	}
	p.pos += len(text)
	return true
}

// capture is what f writes.
func (p *parser) capture(f func()) string {
	mark := len(p.out)
	f()
	text := string(p.out[mark:])
	p.out = p.out[:mark]
	return text
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number reads a decimal number.
func (p *parser) number() int {
	if !digit(p.peek(0)) {
		p.fail()
		return 0
	}
	n := 0
	for digit(p.peek(0)) {
		if n = n*10 + int(p.peek(0)-'0'); n > 1<<24 {
			p.fail()
			return 0
		}
		p.pos++
	}
	return n
}

// digits reads the digits of a number of any size.
func (p *parser) digits() string {
	start := p.pos
	for digit(p.peek(0)) {
		p.pos++
	}
	if p.pos == start {
		p.fail()
	}
	return p.s[start:p.pos]
}

// target is where a reference back at a position leads to, and where it ends;
// a negative number if it leads nowhere.
func (p *parser) target(at int) (to, end int) {
	n := 0
	for i := at + 1; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c >= 'a' && c <= 'z':
			if n = n*26 + int(c-'a'); n == 0 || n > at {
				return -1, 0
			}
			return at - n, i + 1
		case c >= 'A' && c <= 'Z' && n <= len(p.s):
			n = n*26 + int(c-'A')
		default:
			return -1, 0
		}
	}
	return -1, 0
}

// back reads what a reference back leads to.
func (p *parser) back(read func()) {
	to, end := p.target(p.pos)
	if to < 0 || !p.enter() {
		p.fail()
		return
	}
	p.pos = to
	if read(); !p.bad {
		p.pos = end
	}
	p.leave()
}

// mangled reads a whole name.
func (p *parser) mangled() {
	if !p.eat("_D") {
		p.fail()
		return
	}
	p.qualified(true)
	if p.eat("Z") { // made by the compiler, without a type
		return
	}
	p.capture(p.typ)
}

// startsName reports whether the next is one of the names that a qualified name
// has.
func (p *parser) startsName() bool {
	switch c := p.peek(0); {
	case digit(c):
		return true
	case c == '_':
		return p.template() != ""
	case c == 'Q':
		to, _ := p.target(p.pos)
		return to >= 0 && digit(p.s[to])
	}
	return false
}

// template is how an instance of a template begins, "" if none does.
func (p *parser) template() string {
	if p.peek(0) == '_' && p.peek(1) == '_' && (p.peek(2) == 'T' || p.peek(2) == 'U') {
		return p.s[p.pos : p.pos+3]
	}
	return ""
}

// made are the names of what compilers make for a type or a module.
func made(name string) string {
	switch name {
	case "__init":
		return "initializer for "
	case "__vtbl":
		return "vtable for "
	case "__Class":
		return "ClassInfo for "
	case "__Interface":
		return "Interface for "
	case "__ModuleInfo":
		return "ModuleInfo for "
	}
	return ""
}

// qualified reads names, each within the one before. Of a whole name, what its
// methods require of their object is written as well.
func (p *parser) qualified(whole bool) {
	if !p.enter() {
		return
	}
	defer p.leave()
	start, first := len(p.out), true
	for more := true; more && !p.bad; more = p.startsName() {
		for p.eat("0") { // without a name
		}
		if p.fakeScope() {
			continue
		}
		dot := len(p.out)
		if !first {
			p.put(".")
		}
		begin := len(p.out)
		p.name()
		if of := made(string(p.out[begin:])); of != "" && !first && p.peek(0) == 'Z' {
			p.out = append(append(p.out[:start:start], of...), p.out[start:dot]...)
			return
		}
		first = false
		p.function(begin, whole)
	}
	if first {
		p.fail()
	}
}

// fakeScope takes the name of a scope that only tells functions of one name
// apart.
func (p *parser) fakeScope() bool {
	save := p.pos
	if digit(p.peek(0)) {
		n := p.number()
		if n > 3 && p.pos+n <= len(p.s) && p.s[p.pos:p.pos+3] == "__S" {
			for i := p.pos + 3; i < p.pos+n && digit(p.s[i]); i++ {
				if i == p.pos+n-1 {
					p.pos += n
					return true
				}
			}
		}
	}
	p.pos = save
	return false
}

// name reads one name.
func (p *parser) name() {
	switch {
	case p.peek(0) == 'Q':
		p.back(p.plain)
	case p.template() != "":
		p.instance()
	default:
		p.plain()
	}
}

// plain reads a name behind its length.
func (p *parser) plain() {
	if !p.enter() {
		return
	}
	defer p.leave()
	n := p.number()
	if n == 0 || n > len(p.s)-p.pos {
		p.fail()
		return
	}
	end := p.pos + n
	if p.template() != "" { // as compilers before 2017 wrote them
		if p.instance(); p.pos != end {
			p.fail()
		}
		return
	}
	text := p.s[p.pos:end]
	p.pos = end
	switch {
	case text == "__ctor":
		text = "this"
	case text == "__dtor":
		text = "~this"
	case text == "__postblit" && p.peek(0) == 'M':
		text = "this(this)"
	}
	p.put(text)
}

// instance reads an instance of a template.
func (p *parser) instance() {
	p.pos += 3
	if p.peek(0) == 'Q' {
		p.back(p.plain)
	} else {
		p.plain()
	}
	p.put("!(")
	for first := true; !p.bad && !p.eat("Z"); first = false {
		if !first {
			p.put(", ")
		}
		p.argument()
	}
	p.put(")")
}

// argument reads one of a template.
func (p *parser) argument() {
	p.eat("H") // matched a specialisation
	switch {
	case p.eat("T"):
		p.typ()
	case p.eat("V"):
		kind, name := p.kind(p.pos), ""
		name = p.capture(p.typ)
		p.value(kind, name)
	case p.eat("S"):
		p.symbol()
	case p.eat("X"):
		if n := p.number(); n <= len(p.s)-p.pos {
			p.put(p.s[p.pos : p.pos+n])
			p.pos += n
		} else {
			p.fail()
		}
	default:
		p.fail()
	}
}

// symbol reads the name of a symbol that is an argument: whole, or without its
// type; compilers before 2017 wrote its length in front of that.
func (p *parser) symbol() {
	if p.peek(0) == '_' && p.peek(1) == 'D' {
		p.mangled()
		return
	}
	save, mark := p.pos, len(p.out)
	if p.qualified(false); !p.bad {
		return
	}
	const digits = 8 // of a length, at most
	for i := save + 1; i <= save+digits && i < len(p.s) && digit(p.s[i-1]) && digit(p.s[i]) && p.steps <= maxSteps; i++ {
		p.bad, p.pos, p.out = false, save, p.out[:mark]
		n := 0
		for _, c := range p.s[save:i] {
			n = min(n*10+int(c-'0'), len(p.s))
		}
		p.pos = i
		if p.qualified(false); !p.bad && p.pos == i+n {
			return
		}
	}
	p.fail()
}
