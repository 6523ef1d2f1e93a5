// SPDX-License-Identifier: Apache-2.0

package swiftlang

import (
	"fmt"
	"strings"
)

// popModule takes a module: a name becomes one by where it is.
func (m *machine) popModule() *node {
	return m.pop(func(k kind) bool { return k == ident || k == module })
}

// context takes what something is declared in.
func (m *machine) context() *node {
	if n := m.popModule(); n != nil {
		return n
	}
	return m.need(func(k kind) bool { return k == extension || isEntity(k) })
}

// extension takes a type, and the module that extends it.
func (m *machine) extension() *node {
	m.popKind(signature)
	by := m.popModule()
	of := m.need(isType)
	if by == nil || m.bad {
		return m.fail()
	}
	return &node{kind: extension, text: "(extension in " + by.text + "):", parts: []*node{of}, seps: []string{""}}
}

// labels takes those of the parameters of a function of type t: one for each, or an
// empty list if none has one.
func (m *machine) labels(t *node) string {
	if m.popKind(emptyList) != nil || t.params <= 0 {
		return "(" + strings.Repeat("_:", max(t.params, 0)) + ")"
	}
	names := make([]string, t.params)
	for i := range names {
		if n := m.need(func(k kind) bool { return k == ident || k == marker }); n.kind == ident {
			names[t.params-1-i] = n.text
		} else {
			names[t.params-1-i] = "_"
		}
	}
	return "(" + m.join(names, ":") + ":)"
}

// join joins names, which may be one name many times over, unless that is too long
// to be shown.
func (m *machine) join(names []string, sep string) string {
	size := 0
	for _, name := range names {
		if size += len(name) + len(sep); size > maxOutput {
			m.fail()
			return ""
		}
	}
	return strings.Join(names, sep)
}

// entity runs an operator that makes functions and variables, or what is said of
// them.
func (m *machine) entity(c byte) {
	switch c {
	case 'F':
		m.popKind(signature)
		labels := m.labels(m.functionType())
		name := m.need(isDeclName)
		m.push(&node{kind: function, text: name.text, apart: name.apart, labels: labels, in: m.context()})
	case 'f':
		m.push(m.nameless())
	case 'i':
		m.popKind(private)
		labels := m.labels(m.need(isType))
		m.push(m.accessor(&node{kind: variable, text: "subscript", labels: labels, in: m.context()}))
	case 'v':
		m.popKind(private)
		m.labels(m.need(isType))
		name := m.need(isDeclName)
		m.push(m.accessor(&node{kind: variable, text: name.text, apart: name.apart, in: m.context()}))
	case 'Z':
		m.push(m.prefix("static ", isEntity))
	case 'E':
		m.push(m.extension())
	case 'T':
		m.push(m.thunk())
	case 'M':
		m.push(m.metadata())
	case 'W':
		m.push(m.outlined())
	case 'w':
		m.push(m.witness())
	case 'L':
		m.push(m.local())
	}
}

// prefix says something of what is before it.
func (m *machine) prefix(text string, ok func(kind) bool) *node {
	n := m.need(ok)
	k := n.kind
	if k == nominal {
		k = function
	}
	return around(k, text, n, "")
}

// wraps is prefix for functions.
func (m *machine) wraps(text string) *node {
	return m.prefix(text, isFunction)
}

// accessors are the functions of a variable.
var accessors = map[byte]string{
	's': ".setter", 'g': ".getter", 'G': ".getter", 'w': ".willset", 'W': ".didset", 'r': ".read", 'M': ".modify", 'm': ".materializeForSet",
	'x': ".modify", 'y': ".read", 'b': ".borrow", 'z': ".mutate", 'i': ".init", 'a': ".mutableAddressor", 'l': ".addressor",
}

func (m *machine) accessor(of *node) *node {
	c := m.next()
	if c == 'p' || m.bad {
		return of
	}
	name := accessors[c]
	if c == 'a' || c == 'l' {
		switch m.next() {
		case 'u':
			name = ".unsafe" + strings.ToUpper(name[1:2]) + name[2:]
		case 'O', 'o', 'p':
		default:
			name = ""
		}
	}
	if name == "" {
		return m.fail()
	}
	n := *of
	n.kind, n.after = function, name
	return &n
}

// nameless reads functions without a name of their own, which begin with f.
func (m *machine) nameless() *node {
	n := &node{kind: function}
	switch c := m.next(); c {
	case 'C', 'c':
		m.popKind(private)
		n.text = map[byte]string{'C': "__allocating_init", 'c': "init"}[c]
		n.labels = m.labels(m.need(isType))
	case 'D', 'd', 'Z', 'E', 'e':
		n.text = map[byte]string{
			'D': "__deallocating_deinit", 'd': "deinit", 'Z': "__isolated_deallocating_deinit", 'E': "__ivar_destroyer", 'e': "__ivar_initializer",
		}[c]
	case 'U', 'u':
		n.text = map[byte]string{'U': "closure", 'u': "implicit closure"}[c] + fmt.Sprintf(" #%d", m.index()+1)
		n.apart = true
		m.need(isType)
	case 'A':
		n.text, n.apart = fmt.Sprint("default argument ", m.index()), true
	case 'i', 'P', 'F', 'W':
		return m.prefix(map[byte]string{
			'i': "variable initialization expression of ", 'P': "property wrapper backing initializer of ",
			'F': "property wrapped field init accessor of ", 'W': "property wrapper init from projected value of ",
		}[c], isEntity).running()
	default:
		return m.fail()
	}
	n.in = m.context()
	return n
}

// running is n as something that runs.
func (n *node) running() *node {
	n.kind = function
	return n
}

// local makes a name one of a file, or of what is inside a function.
func (m *machine) local() *node {
	switch c := m.peek(); {
	case c == 'L':
		m.next()
		m.need(func(k kind) bool { return k == ident })
		return &node{kind: declName, text: m.need(isDeclName).text}
	case c == 'l':
		m.next()
		m.need(func(k kind) bool { return k == ident })
		return &node{kind: private}
	case c >= 'a' && c <= 'j' || c >= 'A' && c <= 'J':
		m.next()
		return &node{kind: declName, text: fmt.Sprintf("related decl '%c' for %s", c, m.need(isDeclName).text)}
	}
	n := m.index() + 1
	return &node{kind: declName, text: fmt.Sprintf("%s #%d", m.need(isDeclName).text, n), apart: true}
}

// thunks are what is said of a function by one letter behind T.
var thunks = map[byte]string{
	'c': "curry thunk of ", 'j': "dispatch thunk of ", 'o': "@objc ", 'O': "@nonobjc ", 'D': "dynamic ", 'd': "super ",
	'E': "distributed thunk ", 'F': "distributed accessor for ", 'A': "partial apply for ", 'm': "merged ",
	'I': "dynamically replaceable implementation of ", 'S': "protocol self-conformance witness for ",
}

// thunk reads what begins with T: functions that the compiler makes of others.
func (m *machine) thunk() *node {
	c := m.next()
	if text := thunks[c]; text != "" {
		return m.wraps(text)
	}
	switch c {
	case 'a':
		if p := m.peek(); p < '0' || p > '9' {
			return m.wraps("partial apply ObjC forwarder for ")
		}
		fallthrough
	case 'g', 'G', 'B', 's', 'i', 't', 'p', 'P', 'f':
		return m.specialized(c)
	case 'Q', 'Y':
		n := m.index()
		return m.wraps(fmt.Sprintf("(%d) %s resume partial function for ", n, map[byte]string{'Q': "await", 'Y': "suspend"}[c]))
	case 'w':
		text := map[byte]string{'b': "back deployment thunk for ", 'B': "back deployment fallback for ", 'S': "#_hasSymbol query for "}[m.next()]
		if text == "" {
			return m.fail()
		}
		return m.wraps(text)
	case 'v':
		n := m.index()
		m.eat('r')
		return m.wraps(fmt.Sprintf("outlined variable #%d of ", n))
	case 'e':
		for m.next(); m.eatAny("nbg"); {
		}
		if !m.eat('_') {
			return m.fail()
		}
		return m.wraps("outlined bridged method of ")
	case 'K', 'k':
		m.eat('q')
		m.unwind(func(k kind) bool { return k == function || k == variable })
		return m.prefix(map[byte]string{'K': "key path getter for ", 'k': "key path setter for "}[c], isEntity).running()
	case 'R', 'r', 'y':
		return m.reabstraction(c)
	case 'V':
		base := m.need(isEntity)
		n := list("vtable thunk for ", []*node{base, m.need(isEntity)}, "")
		n.seps[0] = " dispatching to "
		return n.running()
	case 'W':
		of := m.need(isEntity)
		n := list("protocol witness for ", []*node{of, m.conforms()}, "")
		n.seps[0] = " in conformance "
		return n.running()
	}
	return m.fail()
}

// reabstraction takes two types of functions, between which it translates.
func (m *machine) reabstraction(c byte) *node {
	m.popKind(signature)
	for range map[byte]int{'R': 2, 'r': 2, 'y': 3}[c] {
		m.need(isType)
	}
	return &node{kind: function, text: "reabstraction thunk"}
}

// conforms takes a protocol's conformance, of which the type is shown.
func (m *machine) conforms() *node {
	m.popKind(signature)
	if m.popModule() == nil {
		return m.fail()
	}
	m.protocol()
	return m.need(isType)
}

// unwind drops operands down to one that ok says so of. They are what a function
// is specialized by.
func (m *machine) unwind(ok func(kind) bool) {
	for len(m.stack) > 0 && !ok(m.top().kind) {
		m.stack = m.stack[:len(m.stack)-1]
	}
}

// specialized reads how a function was specialized: by types, or by how it is
// called.
func (m *machine) specialized(c byte) *node {
	for c == 't' { // arguments that were dropped
		m.natural()
		c = m.next()
	}
	if strings.IndexByte("agGBsipPf", c) < 0 {
		return m.fail()
	}
	m.eat('q')
	m.eatAny("ar")
	if pass := m.next(); pass < '0' || pass > '9' {
		return m.fail()
	}
	if c == 'f' {
		// Two parts: of the parameters, and of the result.
		for !m.eat('_') {
			if !m.argument() {
				return m.fail()
			}
		}
		if !m.argument() {
			return m.fail()
		}
	}
	m.unwind(isFunction)
	if c == 'i' {
		return m.wraps("inlined ")
	}
	return m.wraps("specialized ")
}

// argument reads how one was specialized.
func (m *machine) argument() bool {
	switch m.next() {
	case 'n', 'c', 'E', 'x', 'i', 's':
	case 'C':
		return m.natural() >= 0
	case 'p':
		switch m.next() {
		case 'f', 'g', 'k':
		case 'i', 'd':
			m.eat('n') // it is negative
			return m.natural() >= 0
		case 's':
			return m.eatAny("bwc")
		default:
			return false
		}
	case 'e', 'd', 'g', 'o':
		for m.eatAny("DGOX") {
		}
	default:
		return false
	}
	return true
}

// metadata reads what begins with M and runs; the rest is data.
func (m *machine) metadata() *node {
	text := map[byte]string{
		'a': "type metadata accessor for ", 'i': "type metadata instantiation function for ", 'r': "type metadata completion function for ",
		'u': "method lookup function for ", 'U': "ObjC metadata update function for ",
	}[m.next()]
	if text == "" {
		return m.fail()
	}
	return m.prefix(text, isType).running()
}

// outlined reads what begins with W and runs: operations on types.
func (m *machine) outlined() *node {
	switch m.next() {
	case 'O':
		text := map[byte]string{
			'y': "copy", 'e': "consume", 'r': "retain", 's': "release", 'b': "init with take", 'B': "init with take",
			'c': "init with copy", 'C': "init with copy", 'd': "assign with take", 'D': "assign with take",
			'f': "assign with copy", 'F': "assign with copy", 'h': "destroy", 'H': "destroy",
			'i': "enum tag store", 'j': "enum project data", 'g': "enum get tag",
		}[m.next()]
		if text == "" {
			return m.fail()
		}
		t := m.need(isType)
		m.popKind(signature)
		return around(function, "outlined "+text+" of ", t, "")
	case 'l':
		conf := m.conforms()
		m.need(isType)
		return around(function, "lazy protocol witness table accessor for type ", conf, "")
	case 'Z':
		name := ""
		for m.popKind(marker) != nil {
			name = m.need(isDeclName).text // of several that are made at once, the first
		}
		return around(function, "one-time initialization function for ", &node{kind: variable, text: name, in: m.context()}, "")
	}
	return m.fail()
}

// witnesses are the operations on values of a type.
var witnesses = map[string]string{
	"al": "allocateBuffer", "ca": "assignWithCopy", "ta": "assignWithTake", "de": "deallocateBuffer", "xx": "destroy",
	"XX": "destroyBuffer", "Xx": "destroyArray", "CP": "initializeBufferWithCopyOfBuffer", "Cp": "initializeBufferWithCopy",
	"cp": "initializeWithCopy", "TK": "initializeBufferWithTakeOfBuffer", "Tk": "initializeBufferWithTake", "tk": "initializeWithTake",
	"pr": "projectBuffer", "xs": "storeExtraInhabitant", "xg": "getExtraInhabitantIndex", "Cc": "initializeArrayWithCopy",
	"Tt": "initializeArrayWithTakeFrontToBack", "tT": "initializeArrayWithTakeBackToFront", "ug": "getEnumTag",
	"up": "destructiveProjectEnumData", "ui": "destructiveInjectEnumTag", "et": "getEnumTagSinglePayload", "st": "storeEnumTagSinglePayload",
}

func (m *machine) witness() *node {
	name := witnesses[string([]byte{m.next(), m.next()})]
	if name == "" {
		return m.fail()
	}
	return m.prefix(name+" value witness for ", isType).running()
}
