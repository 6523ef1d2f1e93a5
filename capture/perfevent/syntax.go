// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"strings"
)

// The syntax of a spec, before any name is looked up:
//
//	spec  = item { "," item }
//	item  = "{" event { "," event } "}" [ ":" mods ] | event
//	event = word { ":" word } [ "/" [ terms ] "/" [ [ ":" ] word ] ]
//	      | "mem:" addr [ "/" len ] { ":" word }
//	      | ( "uprobe:" | "uretprobe:" ) path ":" place
//	terms = term { "," term };  term = key [ "=" value ]

// maxSpec bounds a spec; longer ones are a mistake.
const maxSpec = 64 << 10

// word is a piece of text and where it starts in the spec.
type word struct {
	text string
	pos  int
}

type termSyntax struct {
	key, value word
	hasValue   bool
}

type eventSyntax struct {
	parts []word // separated by colons
	// slash: there is a list of terms, perhaps an empty one.
	slash bool
	terms []termSyntax
	mods  word // behind the terms
	// length of a mem: breakpoint, "" if not given.
	length word
	// uprobe: parts are the kind, the path of a file and a place in it.
	uprobe bool
}

type groupSyntax struct {
	braces bool
	events []eventSyntax
	mods   word
}

// parser reads a spec from left to right.
type parser struct {
	s   string
	pos int
}

// parseSyntax reads spec without looking up any name.
func parseSyntax(spec string) ([]groupSyntax, error) {
	p := &parser{s: spec}
	if len(spec) > maxSpec {
		return nil, p.fail(ErrSyntax, "spec is longer than 64 kB")
	}
	list, err := p.spec()
	if err != nil {
		return nil, located(err, spec)
	}
	return list, nil
}

func (p *parser) spec() ([]groupSyntax, error) {
	var list []groupSyntax
	for {
		g, err := p.item()
		if err != nil {
			return nil, err
		}
		list = append(list, g)
		if p.end() {
			return list, nil
		}
		if !p.take(',') {
			return nil, p.fail(ErrSyntax, "unexpected "+p.found()+", a comma belongs between events")
		}
	}
}

func (p *parser) item() (groupSyntax, error) {
	if !p.take('{') {
		ev, err := p.event()
		return groupSyntax{events: []eventSyntax{ev}}, err
	}
	g := groupSyntax{braces: true}
	for {
		ev, err := p.event()
		if err != nil {
			return g, err
		}
		g.events = append(g.events, ev)
		if p.take('}') {
			break
		}
		if !p.take(',') {
			return g, p.fail(ErrSyntax, "unexpected "+p.found()+" in a group, } is missing")
		}
	}
	if p.take(':') {
		g.mods = p.word()
		if g.mods.text == "" {
			return g, p.fail(ErrSyntax, "modifiers are missing after the colon")
		}
	}
	return g, nil
}

func (p *parser) event() (eventSyntax, error) {
	var ev eventSyntax
	for {
		w := p.word()
		if w.text == "" {
			return ev, p.fail(ErrSyntax, "an event name is missing, found "+p.found())
		}
		ev.parts = append(ev.parts, w)
		if isUprobe(w.text) && len(ev.parts) == 1 && p.beforePath() {
			return ev, p.uprobe(&ev)
		}
		if ev.isMem() && len(ev.parts) == 2 && p.take('/') {
			if ev.length = p.word(); ev.length.text == "" {
				return ev, p.fail(ErrSyntax, "the breakpoint's length is missing")
			}
		}
		if !p.take(':') {
			break
		}
	}
	if ev.isMem() || !p.take('/') {
		return ev, nil
	}
	ev.slash = true
	return ev, p.terms(&ev)
}

// isUprobe: what follows the name may be the path of a file.
func isUprobe(name string) bool { return name == "uprobe" || name == "uretprobe" }

// beforePath: a colon and the begin of a path or of quoted text come next.
// Names of tracepoints begin otherwise.
func (p *parser) beforePath() bool {
	rest := strings.TrimLeft(p.s[p.pos:], " \t\n")
	return len(rest) > 1 && rest[0] == ':' && strings.IndexByte(`/."`, rest[1]) >= 0
}

// uprobe reads what follows the kind of a probe.
func (p *parser) uprobe(ev *eventSyntax) error {
	ev.uprobe = true
	for _, what := range []string{"path", "function or offset"} {
		if !p.take(':') {
			return p.fail(ErrSyntax, "the "+what+" is missing, found "+p.found())
		}
		w, err := p.text(",:{}")
		if err != nil {
			return err
		}
		if w.text == "" {
			return p.fail(ErrSyntax, "the "+what+" is missing, found "+p.found())
		}
		ev.parts = append(ev.parts, w)
	}
	if path := ev.parts[1]; path.text[0] != '/' && path.text[0] != '.' {
		return failAt(path, ErrSyntax, "write the path of a file: /path/to/it or ./it")
	}
	return nil
}

// isMem: mem:ADDR has a slash that starts no list of terms.
func (ev *eventSyntax) isMem() bool { return len(ev.parts) > 1 && ev.parts[0].text == "mem" }

// terms reads what follows the first slash, up to the modifiers.
func (p *parser) terms(ev *eventSyntax) error {
	for !p.take('/') {
		if len(ev.terms) > 0 && !p.take(',') {
			return p.fail(ErrSyntax, "unexpected "+p.found()+", / is missing after the terms")
		}
		t := termSyntax{key: p.until(",=/")}
		if t.key.text == "" {
			return p.fail(ErrSyntax, "a term is missing, found "+p.found())
		}
		if p.take('=') {
			if err := p.value(&t); err != nil {
				return err
			}
		}
		ev.terms = append(ev.terms, t)
	}
	colon := p.take(':')
	ev.mods = p.word()
	if colon && ev.mods.text == "" {
		return p.fail(ErrSyntax, "modifiers are missing after the colon")
	}
	return nil
}

// value reads a term's value; one that holds a slash, a comma or a blank is
// quoted.
func (p *parser) value(t *termSyntax) error {
	t.hasValue = true
	var err error
	if t.value, err = p.text(",/"); err != nil {
		return err
	}
	if t.value.text == "" {
		return p.fail(ErrSyntax, "the value of "+t.key.text+" is missing")
	}
	return nil
}

// text reads what is quoted, or up to a byte of stop.
func (p *parser) text(stop string) (word, error) {
	if !p.take('"') {
		return p.until(stop), nil
	}
	end := strings.IndexByte(p.s[p.pos:], '"')
	if end < 0 {
		return word{}, p.fail(ErrSyntax, "the closing quote is missing")
	}
	w := word{text: p.s[p.pos : p.pos+end], pos: p.pos}
	p.pos += end + 1
	return w, nil
}

// word reads up to the next delimiter of events.
func (p *parser) word() word { return p.until(",:/{}") }

// until reads up to a byte of stop, a blank, a quote or the end.
func (p *parser) until(stop string) word {
	p.blanks()
	n := strings.IndexAny(p.s[p.pos:], stop+" \t\n\"")
	if n < 0 {
		n = len(p.s) - p.pos
	}
	w := word{text: p.s[p.pos : p.pos+n], pos: p.pos}
	p.pos += n
	p.blanks()
	return w
}

func (p *parser) blanks() {
	for p.pos < len(p.s) && strings.IndexByte(" \t\n", p.s[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) end() bool { p.blanks(); return p.pos == len(p.s) }

func (p *parser) take(c byte) bool {
	p.blanks()
	if p.pos < len(p.s) && p.s[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// found names what stands at the position, for messages.
func (p *parser) found() string {
	if p.end() {
		return "the end"
	}
	return "'" + p.s[p.pos:p.pos+1] + "'"
}

func (p *parser) fail(kind error, reason string) error {
	return &ParseError{Kind: kind, Offset: p.pos, Reason: reason}
}

// format writes a parsed event so that parsing gives the same again.
func (ev *eventSyntax) format(b *strings.Builder) {
	for i, w := range ev.parts {
		if i > 0 {
			b.WriteByte(':')
		}
		if ev.uprobe && i > 0 {
			b.WriteString(quote(w.text, ",:{} \t\n"))
			continue
		}
		b.WriteString(w.text)
		if i == 1 && ev.length.text != "" {
			b.WriteString("/" + ev.length.text)
		}
	}
	if !ev.slash {
		return
	}
	b.WriteByte('/')
	for i, t := range ev.terms {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(t.key.text)
		if t.hasValue {
			b.WriteString("=" + quote(t.value.text, ",/ \t\n"))
		}
	}
	b.WriteString("/" + ev.mods.text)
}

// quote quotes a text that holds one of the bytes.
func quote(s, bytes string) string {
	if strings.ContainsAny(s, bytes) {
		return `"` + s + `"`
	}
	return s
}
