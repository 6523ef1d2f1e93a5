// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What is wrong with a definition, for errors.Is.
var (
	ErrName      = errors.New("not a name for a definition")
	ErrNamespace = errors.New("unknown namespace")
	ErrDuplicate = errors.New("given twice")
	ErrEmpty     = errors.New("empty")
	ErrGlob      = errors.New("bad cgroup pattern")
	ErrTooMany   = errors.New("too many")
)

// DefinitionError says what is wrong with a definition, and where.
type DefinitionError struct {
	Kind error  // one of the sentinels above
	Text string // the definition as given
	// Offset of the place in Text, in bytes.
	Offset int
	// Reason is the sentence for the user, without the place.
	Reason string
	// Part and Index say which argument of NewDefinition is wrong, and which
	// of its elements. What is missing has the Index behind the last one.
	// Offset is in that element if there is no Text.
	Part  DefinitionPart
	Index int
}

// DefinitionPart is an argument of NewDefinition.
type DefinitionPart uint8

// The arguments.
const (
	PartName DefinitionPart = iota
	PartNamespaces
	PartCgroups
)

func (e *DefinitionError) Error() string {
	if e.Text == "" {
		return e.Reason
	}
	return fmt.Sprintf("definition %q, column %d: %s", e.Text, e.Offset+1, e.Reason)
}

// Unwrap is the kind.
func (e *DefinitionError) Unwrap() error { return e.Kind }

func (e *DefinitionError) in(part DefinitionPart, index int) *DefinitionError {
	e.Part, e.Index = part, index
	return e
}

func wrong(kind error, offset int, format string, args ...any) *DefinitionError {
	return &DefinitionError{Kind: kind, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

const (
	// cgroupPrefix begins a glob in the text of a definition.
	cgroupPrefix = "cgroup="
	maxName      = 63
	maxGlobs     = 32
)

// ParseDefinition reads "NAME=pid,net;cgroup=GLOB": a list of namespaces, any
// number of globs, or both. A ; in a glob is written \;. The error is a
// *DefinitionError.
func ParseDefinition(text string) (Definition, error) {
	d, err := parseDefinition(text)
	if err != nil {
		err.Text = text
		return Definition{}, err
	}
	return d, nil
}

// span is a part of a text and where it was.
type span struct {
	text string
	pos  int
}

func parseDefinition(text string) (Definition, *DefinitionError) {
	name, rule, ok := strings.Cut(text, "=")
	if !ok {
		return Definition{}, wrong(ErrEmpty, len(text),
			`%q says nothing: write NAME=NAMESPACE,...;cgroup=GLOB, such as web=pid,net`, text)
	}
	var namespaces, globs []span
	for i, p := range splitRule(span{rule, len(name) + 1}) {
		switch glob, isGlob := strings.CutPrefix(p.text, cgroupPrefix); {
		case isGlob:
			globs = append(globs, span{glob, p.pos + len(cgroupPrefix)})
		case i > 0:
			return Definition{}, wrong(ErrNamespace, p.pos, `%q is not cgroup=GLOB, which is all that may follow a ";"`,
				p.text)
		case p.text != "":
			namespaces = splitList(p)
		}
	}
	d, err := newDefinition(name, texts(namespaces), texts(globs))
	if err == nil {
		return d, nil
	}
	switch err.Part {
	case PartNamespaces:
		err.Offset = len(name) + 1
		if err.Index < len(namespaces) {
			err.Offset = namespaces[err.Index].pos
		}
	case PartCgroups:
		err.Offset += globs[err.Index].pos
	}
	return d, err
}

func texts(list []span) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.text
	}
	return out
}

// splitRule splits at each ; that no \ precedes. An empty part behind the
// last one is left out.
func splitRule(s span) []span {
	var out []span
	start := 0
	for i := 0; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			i++
		case ';':
			out = append(out, span{s.text[start:i], s.pos + start})
			start = i + 1
		}
	}
	if start < len(s.text) {
		out = append(out, span{s.text[start:], s.pos + start})
	}
	return out
}

func splitList(s span) []span {
	var out []span
	pos := s.pos
	for text := range strings.SplitSeq(s.text, ",") {
		out = append(out, span{text, pos})
		pos += len(text) + 1
	}
	return out
}

// NewDefinition makes a definition of its parts. The error is a
// *DefinitionError.
func NewDefinition(name string, namespaces, cgroups []string) (Definition, error) {
	d, err := newDefinition(name, namespaces, cgroups)
	if err != nil {
		return Definition{}, err
	}
	return d, nil
}

func newDefinition(name string, namespaces, cgroups []string) (Definition, *DefinitionError) {
	d := Definition{Name: name}
	if err := checkName(name); err != nil {
		return Definition{}, err
	}
	for i, s := range namespaces {
		n, ok := ParseNamespace(s)
		switch {
		case s == "":
			return Definition{}, wrong(ErrEmpty, 0, "a namespace is missing: %s", namespaceChoice).in(PartNamespaces, i)
		case !ok:
			return Definition{}, wrong(ErrNamespace, 0, "unknown namespace %q: %s", s,
				namespaceChoice).in(PartNamespaces, i)
		case slices.Contains(d.Namespaces, n):
			return Definition{}, wrong(ErrDuplicate, 0, "namespace %s is given twice: name it once",
				s).in(PartNamespaces, i)
		}
		d.Namespaces = append(d.Namespaces, n)
	}
	if len(cgroups) > maxGlobs {
		return Definition{}, wrong(ErrTooMany, 0, "more than %d cgroup patterns", maxGlobs).in(PartCgroups, maxGlobs)
	}
	for i, s := range cgroups {
		glob, err := cleanGlob(s)
		if err != nil {
			return Definition{}, err.in(PartCgroups, i)
		}
		if slices.Contains(d.Cgroups, glob) {
			return Definition{}, wrong(ErrDuplicate, 0, "cgroup pattern %q is given twice: name it once",
				glob).in(PartCgroups, i)
		}
		d.Cgroups = append(d.Cgroups, glob)
	}
	if len(d.Namespaces)+len(d.Cgroups) == 0 {
		return Definition{}, wrong(ErrEmpty, 0,
			"it names neither a namespace nor a cgroup, and would hold for every task: %s",
			namespaceChoice).in(PartNamespaces, 0)
	}
	return d, nil
}

const namespaceChoice = "use some of uts, ipc, mnt, pid, net, cgroup, user, time"

// CheckName refuses what no definition may be called. The error is a
// *DefinitionError.
func CheckName(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return nil
}

// checkName refuses what cannot be a column of a report or the begin of a
// selector.
func checkName(name string) *DefinitionError {
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.' && (c < '0' || c > '9')) {
			return wrong(ErrName, i, "%q cannot be a name: use letters, digits and - _ . behind a letter", name)
		}
	}
	switch {
	case name == "":
		return wrong(ErrName, 0, "the name is missing: write NAME=NAMESPACE,...")
	case len(name) > maxName:
		return wrong(ErrName, maxName, "the name is longer than %d letters", maxName)
	case Reserved(name):
		return wrong(ErrName, 0, "%q means something else in reports and selectors: choose another name", name)
	}
	return nil
}

// Reserved reports whether a name has a meaning of its own, as a key of
// reports, a field of scripts or a part of selectors, now or soon: a
// definition cannot have it.
func Reserved(name string) bool {
	if _, ok := ParseNamespace(name); ok {
		return true
	}
	switch name {
	case "any", "all", "none", "host", "default", "self",
		"namespace", "image", "container_id", "node", "unit", "runtime", "label",
		"comm", "tid", "cpu", "dso", "sym", "symbol", "event", "addr", "ip", "period", "time", "trace", "symoff",
		"srcline", "srcfile",
		"file", "line", "function", "thread", "process", "parent", "overhead", "samples", "weight", "kernel",
		"brstack", "iregs", "uregs", "insn", "phys_addr", "data_page_size", "code_page_size", "data_src", "misc",
		"flags", "bpf", "bpfcontainer", "value", "percent":
		return true
	}
	return false
}
