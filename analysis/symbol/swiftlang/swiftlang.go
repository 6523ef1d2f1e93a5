// SPDX-License-Identifier: Apache-2.0

// Package swiftlang demangles the names of functions that the Swift compiler makes
// (version 4.2 and later), as docs/ABI/Mangling.rst of the Swift project defines
// them.
//
// Shown is what a profile needs: modules, types, functions with the labels of
// their parameters but not their types, accessors, closures, thunks. Of generic
// specializations and of thunks between types the latter are left out.
//
// A name is a program for a machine with a stack, and what it refers back to may
// stand any number of times in what comes out. Names are from symbol tables that
// may be hostile, so steps, depth and length are bounded.
package swiftlang

import "strings"

// Limits of one name.
const (
	maxNodes  = 1 << 12 // operands, and what they are repeated
	maxDepth  = 1 << 7
	maxOutput = 1 << 14 // bytes
	maxWords  = 26
)

// Demangle returns the name that people write. It is false if name is none of
// the language, or one of data or of a kind that is not known: there are many.
func Demangle(name string) (string, bool) {
	rest, ok := cutPrefix(name)
	if !ok {
		return "", false
	}
	rest, suffix := cutSuffix(rest)
	m := &machine{s: rest}
	for m.pos < len(m.s) && !m.bad {
		m.step()
	}
	if m.bad || len(m.stack) != 1 || !m.stack[0].kind.code() {
		return "", false
	}
	p := &printer{}
	p.node(m.stack[0], 0)
	if p.bad {
		return "", false
	}
	return string(p.out) + suffix, true
}

// cutPrefix takes what all Swift names begin with off a name. Some systems put an
// underscore before every name.
func cutPrefix(name string) (string, bool) {
	name = strings.TrimPrefix(name, "_")
	for _, prefix := range []string{"$s", "$S", "$e"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest, rest != ""
		}
	}
	return "", false
}

// cutSuffix takes off what the compiler's later passes add: ".resume.0", ".17".
// A period is in no mangled name.
func cutSuffix(name string) (string, string) {
	if at := strings.IndexByte(name, '.'); at > 0 {
		return name[:at], name[at:]
	}
	return name, ""
}

// machine runs a name.
type machine struct {
	s     string
	pos   int
	stack []*node
	subst []*node  // what may be referred back to
	words []string // of identifiers
	nodes int
	named int // bytes of all identifiers
	bad   bool
}

func (m *machine) fail() *node {
	m.bad, m.pos = true, len(m.s)
	return nil
}

// next takes a byte; it is 0 behind the end.
func (m *machine) next() byte {
	if m.pos >= len(m.s) {
		m.pos++
		return 0
	}
	m.pos++
	return m.s[m.pos-1]
}

func (m *machine) peek() byte {
	if m.pos >= len(m.s) {
		return 0
	}
	return m.s[m.pos]
}

func (m *machine) eat(c byte) bool {
	if m.peek() != c || c == 0 {
		return false
	}
	m.pos++
	return true
}

// eatAny takes one of some bytes, if it is next.
func (m *machine) eatAny(set string) bool {
	return m.peek() != 0 && strings.IndexByte(set, m.peek()) >= 0 && m.eat(m.peek())
}

// push adds an operand; nil is a failure.
func (m *machine) push(n *node) {
	if m.nodes++; n == nil || m.nodes > maxNodes {
		m.fail()
		return
	}
	m.stack = append(m.stack, n)
}

// top is the last operand, of no kind if there is none.
func (m *machine) top() *node {
	if len(m.stack) == 0 {
		return &node{}
	}
	return m.stack[len(m.stack)-1]
}

// pop takes the last operand if ok says so of its kind, and is nil otherwise.
func (m *machine) pop(ok func(kind) bool) *node {
	n := m.top()
	if !ok(n.kind) {
		return nil
	}
	m.stack = m.stack[:len(m.stack)-1]
	return n
}

func (m *machine) popKind(k kind) *node {
	return m.pop(func(other kind) bool { return other == k })
}

// need is pop that fails if there is none.
func (m *machine) need(ok func(kind) bool) *node {
	n := m.pop(ok)
	if n == nil {
		m.fail()
		return &node{}
	}
	return n
}

// remember makes n what later parts may refer to.
func (m *machine) remember(n *node) *node {
	m.subst = append(m.subst, n)
	return n
}

// natural reads a number, -1 if there is none or it is beyond all reason.
func (m *machine) natural() int {
	if c := m.peek(); c < '0' || c > '9' {
		return -1
	}
	n := 0
	for c := m.peek(); c >= '0' && c <= '9'; c = m.peek() {
		if n = n*10 + int(c-'0'); n > 1<<20 {
			m.fail()
			return -1
		}
		m.pos++
	}
	return n
}

// index reads "_" for 0 and "N_" for N+1.
func (m *machine) index() int {
	if m.eat('_') {
		return 0
	}
	n := m.natural()
	if n < 0 || !m.eat('_') {
		m.fail()
		return 0
	}
	return n + 1
}

// step runs one operator.
func (m *machine) step() {
	c := m.next()
	switch {
	case c >= '0' && c <= '9':
		m.pos--
		m.push(m.identifier())
	case c == 'A':
		m.substitution()
	case c == 'S':
		m.standard()
	case c == '_':
		m.push(&node{kind: marker})
	case c == 'y':
		m.push(&node{kind: emptyList})
	case c == 's':
		m.push(&node{kind: module, text: "Swift"})
	case strings.IndexByte("CVOPa", c) >= 0:
		m.push(m.nominal())
	case strings.IndexByte("FfivZETMWwL", c) >= 0:
		m.entity(c)
	case c == 'o':
		m.push(m.operator())
	default:
		m.typeStep(c)
	}
}

// substitution reads references to one or more things that were there before:
// small letters for those that are not the last, with a number if they are
// repeated.
func (m *machine) substitution() {
	repeat := -1
	for !m.bad {
		c := m.next()
		at := -1
		switch {
		case c >= 'a' && c <= 'z':
			at = int(c - 'a')
		case c >= 'A' && c <= 'Z':
			at = int(c - 'A')
		case c == '_':
			at, repeat = repeat+maxWords+1, 1
		default:
			m.pos--
			if repeat = m.natural(); repeat < 0 {
				m.fail()
			}
			continue
		}
		if at >= len(m.subst) || repeat > maxNodes {
			m.fail()
			return
		}
		for range max(repeat, 1) {
			m.push(m.subst[at])
		}
		if repeat = -1; c < 'a' { // a capital letter, or '_'
			return
		}
	}
}

// identifier reads a name: some letters, or words of earlier names and letters,
// or what Punycode makes of letters that are not ASCII.
func (m *machine) identifier() *node {
	words, puny := false, false
	if m.eat('0') {
		if puny = m.eat('0'); !puny {
			words = true
		}
	}
	var b strings.Builder
	for again := true; again; again = words {
		for words && isLetter(m.peek()) {
			c := m.next()
			words = c >= 'a'
			at := int(c|0x20) - 'a'
			if at >= len(m.words) || m.named+b.Len() > maxOutput {
				return m.fail()
			}
			b.WriteString(m.words[at])
		}
		if m.eat('0') {
			break
		}
		n := m.natural()
		if puny {
			m.eat('_')
		}
		if n <= 0 || n > len(m.s)-m.pos {
			return m.fail()
		}
		part := m.s[m.pos : m.pos+n]
		m.pos += n
		if puny {
			text, ok := decodePunycode(part)
			if !ok {
				return m.fail()
			}
			b.WriteString(text)
			continue
		}
		b.WriteString(part)
		m.learn(part)
	}
	if m.named += b.Len(); b.Len() == 0 || m.named > maxOutput {
		return m.fail()
	}
	return m.remember(&node{kind: ident, text: b.String()})
}

// learn remembers the words of a name: letters and digits up to an underscore, or to
// a capital letter behind one that is none.
func (m *machine) learn(part string) {
	start := -1
	for i := 0; i <= len(part); i++ {
		var c byte
		if i < len(part) {
			c = part[i]
		}
		if start >= 0 && (c == '_' || c == 0 || isUpper(c) && !isUpper(part[i-1])) {
			if i-start >= 2 && len(m.words) < maxWords {
				m.words = append(m.words, part[start:i])
			}
			start = -1
		}
		if start < 0 && c != 0 && c != '_' && (c < '0' || c > '9') {
			start = i
		}
	}
}

func isUpper(c byte) bool { return c >= 'A' && c <= 'Z' }

func isLetter(c byte) bool { return isUpper(c) || c >= 'a' && c <= 'z' }

// operators are what stands for the letters of an operator's name, from a on.
const operators = "& @/= >    <*!|+?%-~   ^ ."

// operator makes an operator of the name before it: "ee" is "==".
func (m *machine) operator() *node {
	how := map[byte]string{'i': " infix", 'p': " prefix", 'P': " postfix"}[m.next()]
	name := m.need(func(k kind) bool { return k == ident })
	if how == "" || m.bad {
		return m.fail()
	}
	text := []rune(name.text)
	for i, c := range text {
		if c < 0x80 {
			if c < 'a' || c > 'z' || operators[c-'a'] == ' ' {
				return m.fail()
			}
			text[i] = rune(operators[c-'a'])
		}
	}
	return &node{kind: declName, text: string(text) + how}
}
