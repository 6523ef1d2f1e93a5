// SPDX-License-Identifier: Apache-2.0

package swiftlang

import (
	"fmt"
	"slices"
	"strings"
)

// standardTypes and laterTypes are the letters of known types.
var (
	standardTypes = map[byte]string{
		'A': "AutoreleasingUnsafeMutablePointer", 'a': "Array", 'B': "BinaryFloatingPoint", 'b': "Bool", 'D': "Dictionary",
		'd': "Double", 'E': "Encodable", 'e': "Decodable", 'F': "FloatingPoint", 'f': "Float", 'G': "RandomNumberGenerator",
		'H': "Hashable", 'h': "Set", 'I': "DefaultIndices", 'i': "Int", 'J': "Character", 'j': "Numeric",
		'K': "BidirectionalCollection", 'k': "RandomAccessCollection", 'L': "Comparable", 'l': "Collection",
		'M': "MutableCollection", 'm': "RangeReplaceableCollection", 'N': "ClosedRange", 'n': "Range", 'O': "ObjectIdentifier",
		'P': "UnsafePointer", 'p': "UnsafeMutablePointer", 'Q': "Equatable", 'q': "Optional", 'R': "UnsafeBufferPointer",
		'r': "UnsafeMutableBufferPointer", 'S': "String", 's': "Substring", 'T': "Sequence", 't': "IteratorProtocol",
		'U': "UnsignedInteger", 'u': "UInt", 'V': "UnsafeRawPointer", 'v': "UnsafeMutableRawPointer",
		'W': "UnsafeRawBufferPointer", 'w': "UnsafeMutableRawBufferPointer", 'X': "RangeExpression", 'x': "Strideable",
		'Y': "RawRepresentable", 'y': "StringProtocol", 'Z': "SignedInteger", 'z': "BinaryInteger",
	}
	laterTypes = map[byte]string{
		'A': "Actor", 'C': "CheckedContinuation", 'c': "UnsafeContinuation", 'E': "CancellationError", 'e': "UnownedSerialExecutor",
		'F': "Executor", 'f': "SerialExecutor", 'G': "TaskGroup", 'g': "ThrowingTaskGroup", 'I': "AsyncIteratorProtocol",
		'i': "AsyncSequence", 'J': "UnownedJob", 'M': "MainActor", 'P': "TaskPriority", 'S': "AsyncStream",
		's': "AsyncThrowingStream", 'T': "Task", 't': "UnsafeCurrentTask",
	}
	builtinTypes = map[byte]string{
		'b': "BridgeObject", 'B': "UnsafeValueBuffer", 'c': "RawUnsafeContinuation", 'D': "DefaultActorStorage", 'e': "Executor",
		'd': "NonDefaultDistributedActorStorage", 'I': "IntLiteral", 'j': "Job", 'P': "PackIndex", 'O': "UnknownObject",
		'o': "NativeObject", 'p': "RawPointer", 't': "SILToken", 'w': "Word", 'A': "ImplicitActor",
	}
)

func swiftType(name string) *node {
	return &node{kind: nominal, text: name, in: &node{kind: module, text: "Swift"}, params: -1}
}

func plain(text string) *node { return &node{kind: typ, text: text, params: -1} }

// standard reads what begins with S: a known type, possibly repeated, or a module
// of the compiler's own, or the type before it as an optional.
func (m *machine) standard() {
	switch c := m.next(); c {
	case 'o':
		m.push(&node{kind: module, text: "__C"})
		return
	case 'C':
		m.push(&node{kind: module, text: "__C_Synthesized"})
		return
	case 'g':
		m.push(m.remember(around(typ, "", m.need(isType), "?")))
		return
	}
	m.pos--
	repeat := m.natural()
	names := standardTypes
	if m.eat('c') {
		names = laterTypes
	}
	name := names[m.next()]
	if name == "" || repeat > maxNodes {
		m.fail()
		return
	}
	for range max(repeat, 1) {
		m.push(swiftType(name))
	}
}

// nominal makes a type that has a name, or the context of an extension, of what the
// letter was behind.
func (m *machine) nominal() *node {
	name := m.need(isDeclName)
	n := &node{kind: nominal, text: name.text, apart: name.apart, params: -1}
	n.in = m.context()
	return m.remember(n)
}

// typeStep runs an operator of types.
func (m *machine) typeStep(c byte) {
	switch c {
	case 'B':
		m.push(m.builtin())
	case 'c':
		m.push(m.functionType())
	case 'd':
		m.push(&node{kind: variadic})
	case 'G':
		m.push(m.boundGeneric())
	case 'H', 'g':
		m.push(m.conformanceStep(c))
	case 'h', 'n', 'z':
		m.push(around(typ, map[byte]string{'h': "__shared ", 'n': "__owned ", 'z': "inout "}[c], m.need(isType), ""))
	case 'I':
		m.push(m.implFunction())
	case 'K':
		m.push(&node{kind: annotation})
	case 'l':
		m.push(m.signature(false))
	case 'r':
		m.push(m.signature(true))
	case 'm':
		m.push(around(typ, "", m.need(isType), ".Type"))
	case 'p':
		m.push(m.existential())
	case 'Q':
		m.push(m.archetype())
	case 'q':
		m.push(m.param())
	case 'x':
		m.push(plain("A"))
	case 'R':
		m.push(m.requirement())
	case 't':
		m.push(m.tuple())
	case 'u':
		m.popKind(signature)
		m.push(m.need(isType))
	case 'X':
		m.push(m.special())
	case 'Y':
		m.annotate()
	default:
		m.fail()
	}
}

func (m *machine) builtin() *node {
	c := m.next()
	if name := builtinTypes[c]; name != "" {
		return plain("Builtin." + name)
	}
	name := map[byte]string{'f': "Builtin.FPIEEE", 'i': "Builtin.Int", 'v': "Builtin.Vec"}[c]
	n := m.index() - 1
	switch {
	case name == "" || n < 0:
		return m.fail()
	case c == 'v':
		return around(typ, fmt.Sprintf("%s%dx", name, n), m.need(isType), "")
	}
	return plain(fmt.Sprint(name, n))
}

// functionType takes what a function returns and what it is called with.
func (m *machine) functionType() *node {
	for m.popKind(annotation) != nil {
	}
	params, result := m.operand(), m.operand()
	n := &node{kind: typ, parts: []*node{params, result}, seps: []string{" -> ", ""}, params: 1}
	switch {
	case params.text == "()" && len(params.parts) == 0:
		n.params = 0
	case params.isTuple():
		n.params = len(params.parts)
	default:
		n.text, n.seps = "(", []string{") -> ", ""}
	}
	return n
}

// operand is what a function takes or returns.
func (m *machine) operand() *node {
	if m.popKind(emptyList) != nil {
		return plain("()")
	}
	return m.need(isType)
}

func (n *node) isTuple() bool { return strings.HasPrefix(n.text, "(") && n.params < 0 }

// items takes the elements of a list from the stack, each by take.
func (m *machine) items(take func() *node) []*node {
	if m.popKind(emptyList) != nil {
		return nil
	}
	var out []*node
	for !m.bad {
		first := m.popKind(marker) != nil
		out = append(out, take())
		if first {
			break
		}
	}
	slices.Reverse(out)
	return out
}

func (m *machine) tuple() *node {
	return list("(", m.items(func() *node {
		more := m.popKind(variadic) != nil
		label := m.popKind(ident)
		n := m.need(isType)
		if more {
			n = around(typ, "", n, "...")
		}
		if label != nil {
			n = around(typ, label.text+": ", n, "")
		}
		return n
	}), ")")
}

// boundGeneric puts its arguments to a generic type: a list for each type that is
// nested.
func (m *machine) boundGeneric() *node {
	for m.popKind(retroactive) != nil {
	}
	var args []*node // the last first
	for !m.bad {
		for isType(m.top().kind) {
			args = append(args, m.need(isType))
		}
		if m.popKind(emptyList) != nil {
			break
		}
		m.need(func(k kind) bool { return k == marker })
	}
	args = append(args, m.need(isType))
	if m.bad {
		return nil
	}
	slices.Reverse(args)
	// The arguments of outer types are shown with those of the inner one.
	n := list("", args, ">")
	if n.seps[0] = "<"; len(args) == 1 {
		n.seps[0] = ""
	}
	return m.remember(n)
}

func (m *machine) existential() *node {
	protocols := m.items(m.protocol)
	if len(protocols) == 0 {
		return plain("Any")
	}
	n := list("", protocols, "")
	for i := range len(n.seps) - 1 {
		n.seps[i] = " & "
	}
	return n
}

// protocol takes a protocol: a type, or a name and its context.
func (m *machine) protocol() *node {
	if t := m.pop(isType); t != nil {
		return t
	}
	name := m.need(isDeclName)
	return &node{kind: nominal, text: name.text, apart: name.apart, in: m.context(), params: -1}
}

// special reads types that begin with X.
func (m *machine) special() *node {
	switch c := m.next(); c {
	case 'E', 'f', 'A', 'K', 'B', 'C', 'L', 'U', 'O':
		return m.functionType()
	case 'o', 'u', 'w', 'b', 'D':
		return m.need(isType)
	case 'e':
		return plain("<<error type>>")
	case 'p':
		return around(typ, "", m.need(isType), ".Type")
	case 'M', 'm':
		m.next() // how it is represented
		return around(typ, "", m.need(isType), ".Type")
	case 'l':
		m.items(m.protocol)
		return plain("AnyObject")
	case 'c':
		super := m.need(isType)
		m.items(m.protocol)
		return super
	}
	return m.fail()
}

// annotate reads what begins with Y: how functions and parameters are.
func (m *machine) annotate() {
	switch c := m.next(); c {
	case 'a', 'b', 'A', 'C', 'T':
		m.push(&node{kind: annotation})
	case 'c', 'K':
		m.need(isType)
		m.push(&node{kind: annotation})
	case 'j':
		m.next()
		m.push(&node{kind: annotation})
	case 'i', 'k', 't', 'u':
		m.push(m.need(isType))
	default:
		m.fail()
	}
}

// implFunction reads the type of a function as the compiler's middle has it: an
// operand for each convention of a parameter or result.
func (m *machine) implFunction() *node {
	for _, optional := range []string{"P", "e", "AN", "O", "dlfr"} {
		m.eatAny(optional)
	}
	if !m.eatAny("ygxt") {
		return m.fail() // also what has substitutions of its own
	}
	for _, optional := range []string{"BCMJKVW", "AIG", "h", "H", "T"} {
		m.eatAny(optional)
	}
	count := 0
	for !m.eat('_') {
		switch c := m.next(); {
		case strings.IndexByte("iclbnXxygevpmroduak", c) >= 0:
			count++
		case strings.IndexByte("wYzTIL", c) < 0 || c == 0:
			return m.fail()
		}
	}
	m.popKind(signature)
	for range count {
		m.need(isType)
	}
	return plain("function")
}
