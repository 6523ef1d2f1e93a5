// SPDX-License-Identifier: Apache-2.0

package dlang

// basicName is the name of a type that is one letter, "" if there is none.
func basicName(c byte) string {
	names := [...]string{
		'v' - 'a': "void", 'g' - 'a': "byte", 'h' - 'a': "ubyte", 's' - 'a': "short", 't' - 'a': "ushort", 'i' - 'a': "int",
		'k' - 'a': "uint", 'l' - 'a': "long", 'm' - 'a': "ulong", 'f' - 'a': "float", 'd' - 'a': "double", 'e' - 'a': "real",
		'o' - 'a': "ifloat", 'p' - 'a': "idouble", 'j' - 'a': "ireal", 'q' - 'a': "cfloat", 'r' - 'a': "cdouble", 'c' - 'a': "creal",
		'b' - 'a': "bool", 0: "char", 'u' - 'a': "wchar", 'w' - 'a': "dchar", 'n' - 'a': "typeof(null)",
	}
	if c < 'a' || int(c-'a') >= len(names) {
		return ""
	}
	return names[c-'a']
}

// convention is how functions with a calling convention are declared. It is
// false if the letter is none.
func convention(c byte) (text string, ok bool) {
	switch c {
	case 'F':
		return "", true
	case 'U':
		return "extern(C) ", true
	case 'W':
		return "extern(Windows) ", true
	case 'V':
		return "extern(Pascal) ", true
	case 'R':
		return "extern(C++) ", true
	case 'Y':
		return "extern(Objective-C) ", true
	}
	return "", false
}

// attribute is what a function attribute is called, behind its N.
func attribute(c byte) string {
	switch c {
	case 'a':
		return "pure "
	case 'b':
		return "nothrow "
	case 'c':
		return "ref "
	case 'd':
		return "@property "
	case 'e':
		return "@trusted "
	case 'f':
		return "@safe "
	case 'i':
		return "@nogc "
	case 'j':
		return "return "
	case 'l':
		return "scope "
	case 'm':
		return "@live "
	}
	return ""
}

// modifiers reads what a method or a delegate requires of its context.
func (p *parser) modifiers() (text string) {
	for {
		switch {
		case p.eat("x"):
			text += " const"
		case p.eat("y"):
			text += " immutable"
		case p.eat("O"):
			text += " shared"
		case p.eat("Ng"):
			text += " inout"
		default:
			return text
		}
		if !p.enter() {
			return ""
		}
		p.leave()
	}
}

// function reads the parameters of the function whose name was written from
// begin on, if it is one. The letter of a calling convention may also begin what
// follows the name: then there is no list of parameters behind it.
func (p *parser) function(begin int, whole bool) {
	mods, save, mark := "", p.pos, len(p.out)
	if p.eat("M") {
		mods = p.modifiers()
	}
	if _, ok := convention(p.peek(0)); !ok || p.bad || p.peek(0) == 'Y' && !whole && !p.objc {
		p.pos = save
		return
	}
	p.pos++
	p.attributes()
	text := p.capture(p.parameters)
	if p.bad || p.pos == len(p.s) {
		p.bad, p.pos, p.out = p.steps > maxSteps, save, p.out[:mark]
		return
	}
	if !p.params || string(p.out[begin:]) == "this(this)" {
		return
	}
	if p.put("(" + text + ")"); whole {
		p.put(mods)
	}
}

func (p *parser) attributes() (text string) {
	for p.peek(0) == 'N' && attribute(p.peek(1)) != "" && p.enter() {
		text += attribute(p.peek(1))
		p.pos += 2
		p.leave()
	}
	return text
}

// parameters reads those of a function, to their end.
func (p *parser) parameters() {
	for n := 0; !p.bad; n++ {
		switch {
		case p.eat("Z"):
			return
		case p.eat("X"): // the last one takes any number
			p.put("...")
			return
		case p.eat("Y"): // as in C
			if n > 0 {
				p.put(", ")
			}
			p.put("...")
			return
		}
		if n > 0 {
			p.put(", ")
		}
		p.parameter()
	}
}

func (p *parser) parameter() {
	for _, x := range []struct{ code, text string }{
		{"M", "scope "}, {"Nk", "return "}, {"I", "in "}, {"J", "out "}, {"K", "ref "}, {"L", "lazy "},
	} {
		if p.eat(x.code) {
			p.put(x.text)
		}
	}
	p.typ()
}

// functionType reads the type of a function and writes it before the word for
// what it is.
func (p *parser) functionType(word string) {
	if !p.enter() {
		return
	}
	defer p.leave()
	if p.peek(0) == 'Q' {
		p.back(func() { p.functionType(word) })
		return
	}
	extern, ok := convention(p.peek(0))
	if !ok {
		p.fail()
		return
	}
	p.pos++
	attributes := p.attributes()
	params := p.capture(p.parameters)
	p.put(extern)
	p.typ()
	p.put("(" + params + ") " + attributes + word)
}

// around writes a type within parentheses behind a word.
func (p *parser) around(word string) {
	p.put(word + "(")
	p.typ()
	p.put(")")
}

// typ reads a type.
func (p *parser) typ() {
	if !p.enter() {
		return
	}
	defer p.leave()
	c := p.peek(0)
	if _, ok := convention(c); ok {
		p.functionType("function")
		return
	}
	if c == 'Q' {
		p.back(p.typ)
		return
	}
	p.pos++
	switch c {
	case 'x':
		p.around("const")
	case 'y':
		p.around("immutable")
	case 'O':
		p.around("shared")
	case 'A':
		p.typ()
		p.put("[]")
	case 'G':
		n := p.digits()
		p.typ()
		p.put("[" + n + "]")
	case 'H':
		key := p.capture(p.typ)
		p.typ()
		p.put("[" + key + "]")
	case 'P':
		if _, ok := convention(p.peek(0)); ok {
			p.functionType("function")
			return
		}
		p.typ()
		p.put("*")
	case 'D':
		mods := p.modifiers()
		p.functionType("delegate")
		p.put(mods)
	case 'I', 'C', 'S', 'E', 'T':
		p.qualified(false)
	case 'B':
		p.tuple()
	default:
		p.pos--
		p.letters(c)
	}
}

// letters reads a type of one or two letters.
func (p *parser) letters(c byte) {
	switch {
	case p.eat("Ng"):
		p.around("inout")
	case p.eat("Nh"):
		p.around("__vector")
	case p.eat("Nn"):
		p.put("typeof(*null)")
	case p.eat("zi"):
		p.put("cent")
	case p.eat("zk"):
		p.put("ucent")
	case c != 0 && basicName(c) != "":
		p.pos++
		p.put(basicName(c))
	default:
		p.fail()
	}
}

func (p *parser) tuple() {
	p.put("Tuple!(")
	for i, n := 0, p.number(); i < n && !p.bad; i++ {
		if i > 0 {
			p.put(", ")
		}
		p.typ()
	}
	p.put(")")
}
