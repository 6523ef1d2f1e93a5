// SPDX-License-Identifier: Apache-2.0

// Package config reads gantry's configuration, one YAML file. What is wrong in it is
// told with file, line and column.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// DefaultFile is read by the commands that look at this machine, if it is
// there.
const DefaultFile = "/etc/gantry/config.yaml"

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// Config is what a configuration file says; docs/definitions.md, docs/buildid.md,
// docs/containers.md and docs/agent.md describe it.
type Config struct {
	Definitions container.Definitions
	Store       buildid.Limits
	// Sockets are those of runtimes in other places than the usual ones.
	Sockets []container.Socket
	// Policy says what containers may do with perf events: of the rules that match
	// one, the first counts.
	Policy []Rule
}

// Error says what is wrong with a configuration file, and where.
type Error struct {
	file string
	// line and column count from 1; 0 is not known.
	line, column int
	err          error
}

func (e *Error) Error() string {
	at := e.file
	for _, n := range []int{e.line, e.column} {
		if n > 0 {
			at += ":" + strconv.Itoa(n)
		}
	}
	return at + ": " + e.err.Error()
}

func (e *Error) Unwrap() error { return e.err }

// Read reads a configuration file, or the default one if name is "".
func Read(name string) (*Config, error) {
	path := name
	if name == "" {
		path = DefaultFile
	}
	// A FIFO to which nobody writes is not waited for.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case name == "" && errors.Is(err, os.ErrNotExist):
		return new(Config), nil
	case err != nil:
		return nil, hint.Wrap(fmt.Errorf("read configuration: %w", err), "name a file that you may read with --config")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", path, maxFile)
	}
	if info, e := f.Stat(); err == nil && e == nil && len(text) == 0 && info.Mode()&os.ModeNamedPipe != 0 {
		err = fmt.Errorf("%s: nothing is written to the pipe", path)
	}
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("read configuration: %w", err), "name a configuration file with --config")
	}
	c, err := Parse(path, text)
	return c, hint.Wrap(err, "docs/definitions.md has an example of a configuration")
}

// Parse reads the text of a configuration file. The error is a
// *configError.
func Parse(file string, text []byte) (*Config, error) {
	p := parser{file: file}
	root, err := p.document(text)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return &p.config, nil
	}
	err = p.fields(root, "the configuration", map[string]func(key, value *yaml.Node) error{
		"definitions": func(_, value *yaml.Node) error { return p.definitions(value) },
		"store":       func(_, value *yaml.Node) error { return p.store(value) },
		"sockets":     func(_, value *yaml.Node) error { return p.sockets(value) },
		"policy":      func(_, value *yaml.Node) error { return p.policy(value) },
	})
	if err != nil {
		return nil, err
	}
	for _, r := range p.config.Policy {
		if r.Definition != "" && container.BuiltIn().With(p.config.Definitions).Find(r.Definition) == nil {
			return nil, &Error{file, 0, 0, fmt.Errorf("policy: no definition %q", r.Definition)}
		}
	}
	return &p.config, nil
}

type parser struct {
	file   string
	config Config
}

func (p *parser) wrong(at *yaml.Node, format string, args ...any) error {
	return &Error{p.file, at.Line, at.Column, fmt.Errorf(format, args...)}
}

// yamlLine is where yaml says that the syntax is wrong.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document is the one document of the file, nil if it is empty.
func (p *parser) document(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if err == io.EOF {
		return nil, nil
	}
	if err == nil {
		if err = dec.Decode(&more); err == nil {
			return nil, p.wrong(&more, "a second document: one file has one configuration")
		}
	}
	if err != io.EOF {
		m := yamlLine.FindStringSubmatch(err.Error())
		line := 0
		if m != nil {
			line, _ = strconv.Atoi(m[1]) // 0 if there is none
		}
		return nil, &Error{p.file, line, 0, errors.New(yamlLine.ReplaceAllString(err.Error(), ""))}
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// each calls f for all pairs of a mapping.
func (p *parser) each(n *yaml.Node, what string, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return p.wrong(n, "%s is not a list of NAME: VALUE", what)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Kind != yaml.ScalarNode {
			return p.wrong(n.Content[i], "not a name")
		}
		if err := f(n.Content[i], n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a mapping whose keys are known.
func (p *parser) fields(n *yaml.Node, what string, known map[string]func(key, value *yaml.Node) error) error {
	seen := make(map[string]bool)
	return p.each(n, what, func(key, value *yaml.Node) error {
		read := known[key.Value]
		switch {
		case read == nil:
			return p.wrong(key, "unknown field %q: %s has %s", key.Value, what,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case seen[key.Value]:
			return p.wrong(key, "%s is given twice", key.Value)
		}
		seen[key.Value] = true
		return read(key, value)
	})
}

func (p *parser) definitions(n *yaml.Node) error {
	if isNull(n) {
		return nil
	}
	defs := container.BuiltIn()
	err := p.each(n, "definitions", func(key, value *yaml.Node) error {
		d, err := p.definition(key, value)
		if err != nil {
			return err
		}
		if err := defs.Add(d); err != nil {
			return p.locate(err, key, value, nil, nil)
		}
		return nil
	})
	p.config.Definitions = defs.Custom()
	return err
}

func (p *parser) definition(key, value *yaml.Node) (container.Definition, error) {
	var namespaces, cgroups []*yaml.Node
	err := p.fields(value, "a definition", map[string]func(key, value *yaml.Node) error{
		"namespaces": func(_, v *yaml.Node) (err error) { namespaces, err = p.texts(v); return err },
		"cgroups":    func(_, v *yaml.Node) (err error) { cgroups, err = p.texts(v); return err },
	})
	if err != nil {
		return container.Definition{}, err
	}
	d, err := container.NewDefinition(key.Value, values(namespaces), values(cgroups))
	if err != nil {
		err = p.locate(err, key, value, namespaces, cgroups)
	}
	return d, err
}

// texts are the elements of a list of texts.
func (p *parser) texts(n *yaml.Node) ([]*yaml.Node, error) {
	if isNull(n) {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, p.wrong(n, "not a list: write [a, b]")
	}
	for _, e := range n.Content {
		if e.Kind != yaml.ScalarNode {
			return nil, p.wrong(e, "not a text")
		}
	}
	return n.Content, nil
}

func values(list []*yaml.Node) []string {
	var out []string
	for _, n := range list {
		out = append(out, n.Value)
	}
	return out
}

// locate finds the node that a *container.DefinitionError is about.
func (p *parser) locate(err error, key, value *yaml.Node, namespaces, cgroups []*yaml.Node) error {
	var bad *container.DefinitionError
	if !errors.As(err, &bad) {
		return p.wrong(key, "%w", err)
	}
	at, inside := key, bad.Offset
	switch list := map[container.DefinitionPart][]*yaml.Node{
		container.PartNamespaces: namespaces, container.PartCgroups: cgroups}[bad.Part]; {
	case bad.Part == container.PartName:
	case bad.Index < len(list):
		at = list[bad.Index]
	default:
		at, inside = value, 0
	}
	// The place inside of a text is known where nothing in it is escaped.
	if at.Style != 0 || strings.Contains(at.Value, "\n") || inside > len(at.Value) {
		inside = 0
	}
	return &Error{p.file, at.Line, at.Column + len([]rune(at.Value[:inside])), positioned{bad}}
}

// positioned is a DefinitionError without the place that it tells itself.
type positioned struct{ *container.DefinitionError }

func (e positioned) Error() string { return e.Reason }
func (e positioned) Unwrap() error { return e.DefinitionError }
