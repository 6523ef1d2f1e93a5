// SPDX-License-Identifier: Apache-2.0

package swiftlang

// kind is what an operand is.
type kind uint8

const (
	none      kind = iota
	marker         // "_", behind the first of a list
	emptyList      // "y"
	ident          // a name; also of a module, a label, a word
	declName       // an operator, or a name with a discriminator
	private        // the discriminator of a file
	module
	nominal   // a class, struct, enum, protocol, alias: a type, too
	extension // of a type
	typ       // any other type
	function  // what can run, or be made of something that can
	variable
	signature   // of generics
	requirement // of a signature
	conformance
	conformanceRef
	retroactive
	annotation // of a function type: async, throws
	variadic
)

// code says whether a name of this kind is one of code.
func (k kind) code() bool { return k == function }

func isType(k kind) bool { return k == typ || k == nominal }

func isDeclName(k kind) bool { return k == ident || k == declName }

func isEntity(k kind) bool { return k == function || k == variable || k == nominal }

func isFunction(k kind) bool { return k == function }

// node is an operand. What refers to it shares it, so it does not change once it
// is pushed.
type node struct {
	kind kind
	// text is the name, or what stands before the first of parts.
	text string
	// in is the context that the name is declared in.
	in *node
	// apart says that the name stands before its context: "closure #1 in f".
	apart bool
	// labels are those of parameters: "(x:_:)".
	labels string
	// after is what follows: ".getter".
	after string
	// parts are what a type, or the name of a thunk, is made of, with seps
	// between them and behind the last.
	parts []*node
	seps  []string
	// params counts those of a function type, -1 for other types.
	params int
}

// list is a type that is written with brackets and commas around others.
func list(open string, parts []*node, end string) *node {
	n := &node{kind: typ, text: open, parts: parts, params: -1}
	for range parts {
		n.seps = append(n.seps, ", ")
	}
	if len(parts) == 0 {
		n.text += end
		return n
	}
	n.seps[len(parts)-1] = end
	return n
}

// around is a type or function that is written before and behind another one.
func around(k kind, before string, n *node, behind string) *node {
	return &node{kind: k, text: before, parts: []*node{n}, seps: []string{behind}, params: -1}
}

// printer writes nodes.
type printer struct {
	out []byte
	bad bool
}

func (p *printer) put(s string) {
	if p.bad = p.bad || len(p.out)+len(s) > maxOutput; !p.bad {
		p.out = append(p.out, s...)
	}
}

func (p *printer) node(n *node, depth int) {
	if n == nil || depth > maxDepth {
		p.bad = true
	}
	if p.bad {
		return
	}
	away := n.in != nil && (n.apart || n.in.within(depth))
	if n.in != nil && !away {
		p.node(n.in, depth+1)
		p.put(".")
	}
	p.put(n.text)
	for i, part := range n.parts {
		p.node(part, depth+1)
		p.put(n.seps[i])
	}
	p.put(n.labels)
	p.put(n.after)
	if away {
		p.put(" in ")
		p.node(n.in, depth+1)
	}
}

// within says whether n is written as "NAME in CONTEXT", so that what is declared in it
// has to stand before that.
func (n *node) within(depth int) bool {
	for ; n != nil && depth <= maxDepth; depth++ {
		switch {
		case n.kind == extension:
			n = n.parts[0]
		case n.apart, n.kind == function:
			return true
		default:
			n = n.in
		}
	}
	return false
}
