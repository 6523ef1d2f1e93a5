// SPDX-License-Identifier: Apache-2.0

package swiftlang

import "fmt"

// paramIndex reads which parameter is meant, and returns its name: A, B, and A1
// of the types inside.
func (m *machine) paramIndex() string {
	depth, index := 0, 0
	switch {
	case m.eat('z'):
	case m.eat('s'):
		return "Self"
	case m.eat('d'):
		depth = m.index() + 1
		index = m.index()
	default:
		index = m.index() + 1
	}
	var name string
	for {
		name += string(rune('A' + index%26))
		if index /= 26; index == 0 {
			break
		}
	}
	if depth > 0 {
		name += fmt.Sprint(depth)
	}
	return name
}

func (m *machine) param() *node { return plain(m.paramIndex()) }

// signature takes the requirements of a generic signature.
func (m *machine) signature(counts bool) *node {
	for counts && !m.eat('l') {
		if !m.eat('z') {
			m.index()
		}
		if m.bad {
			return nil
		}
	}
	for m.popKind(requirement) != nil {
	}
	return &node{kind: signature}
}

// associated takes the name of an associated type, and its protocol if there is one.
func (m *machine) associated() *node {
	m.pop(isType)
	return m.need(func(k kind) bool { return k == ident })
}

// path takes the names of associated types, each one of the one before it.
func (m *machine) path() string {
	var names []string
	for _, n := range m.items(m.associated) {
		names = append(names, n.text)
	}
	return m.join(names, ".")
}

// archetype reads types that begin with Q.
func (m *machine) archetype() *node {
	c := m.next()
	switch c {
	case 'a':
		name := m.need(func(k kind) bool { return k == ident })
		return m.remember(around(typ, "", m.need(isType), "."+name.text))
	case 'y', 'z', 'Y', 'Z':
		base := "A"
		if c == 'y' || c == 'Y' {
			base = m.paramIndex()
		}
		if c >= 'a' {
			return m.remember(plain(base + "." + m.associated().text))
		}
		return m.remember(plain(base + "." + m.path()))
	case 'x':
		name := m.associated().text
		return m.remember(around(typ, "", m.need(isType), "."+name))
	case 'X':
		name := m.path()
		return m.remember(around(typ, "", m.need(isType), "."+name))
	case 'r', 'u':
		return plain("some")
	case 'R', 'U':
		m.index()
		return plain("some")
	case 'O':
		of := m.context()
		return &node{kind: nominal, text: "some", apart: true, in: of, params: -1}
	case 'o':
		return m.opaque()
	case 'p':
		m.need(isType)
		return around(typ, "repeat ", m.need(isType), "")
	case 'P':
		return list("Pack{", m.items(func() *node { return m.need(isType) }), "}")
	case 'e':
		m.index()
		return around(typ, "each ", m.need(isType), "")
	}
	return m.fail()
}

// opaque takes an opaque type with its arguments, which are not shown.
func (m *machine) opaque() *node {
	m.index()
	for m.popKind(retroactive) != nil {
	}
	for !m.bad {
		// What returns it is a type here as well, but comes before the list.
		for isType(m.top().kind) {
			m.need(isType)
		}
		if m.popKind(emptyList) != nil {
			break
		}
		m.need(func(k kind) bool { return k == marker })
	}
	return m.remember(m.need(isType))
}

// requirement reads what begins with R: a condition of a generic signature. What it is
// matters only for what it takes.
func (m *machine) requirement() *node {
	c := m.next()
	const generic, assoc, compound, subst = 1, 2, 3, 4
	of, rest := generic, "protocol"
	switch c {
	case 'b', 's', 'h':
		rest = "type"
	case 'c', 't':
		of, rest = assoc, "type"
	case 'C', 'T':
		of, rest = compound, "type"
	case 'B', 'S':
		of, rest = subst, "type"
	case 'l':
		rest = "layout"
	case 'm':
		of, rest = assoc, "layout"
	case 'M':
		of, rest = compound, "layout"
	case 'L':
		of, rest = subst, "layout"
	case 'p':
		of = assoc
	case 'P':
		of = compound
	case 'Q':
		of = subst
	case 'v':
		rest = ""
	case 'i':
		m.index()
		rest = ""
	case 'j':
		m.index()
		of, rest = assoc, ""
	case 'J':
		m.index()
		of, rest = compound, ""
	case 'I':
		m.index()
		of, rest = subst, ""
	default:
		m.pos--
	}
	switch of {
	case generic:
		m.paramIndex()
	case assoc:
		m.remember(plain(m.paramIndex() + "." + m.associated().text))
	case compound:
		m.remember(plain(m.paramIndex() + "." + m.path()))
	case subst:
		m.need(isType)
	}
	m.constrain(rest)
	return &node{kind: requirement}
}

func (m *machine) constrain(by string) {
	switch by {
	case "protocol":
		m.protocol()
	case "type":
		m.need(isType)
	case "layout":
		switch c := m.next(); c {
		case 'E', 'M':
			m.index()
			m.index()
		case 'e', 'm':
			m.index()
		case 'N', 'R', 'T', 'C', 'D', 'U', 'B', 'S':
		default:
			m.fail()
		}
	}
}

// conformanceStep reads how a type conforms to a protocol, which is not shown.
func (m *machine) conformanceStep(c byte) *node {
	isConformance := func(k kind) bool { return k == conformance }
	if c == 'g' {
		m.index()
		m.need(isConformance)
		return &node{kind: retroactive}
	}
	switch m.next() {
	case 'P', 'p':
		m.protocol()
		return &node{kind: conformanceRef}
	case 'C':
		m.items(func() *node { return m.need(isConformance) })
		if m.popKind(conformanceRef) == nil {
			m.popModule()
			m.protocol()
		}
		m.need(isType)
	case 'D':
		m.index()
		m.protocol()
		m.need(isType)
	case 'I':
		m.index()
		m.protocol()
		m.need(isConformance)
	case 'A':
		m.index()
		m.protocol()
		m.need(isType)
		m.need(isConformance)
	default:
		return m.fail()
	}
	return &node{kind: conformance}
}
