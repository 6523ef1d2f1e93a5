// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/internal/hint"
)

// ErrDefinition says that there is no definition of that name, or that it does
// not go with the identity behind it.
var ErrDefinition = errors.New("no such definition")

// Choice is a selector of containers that are to be recorded, as it was read:
// by name, by identity, or all of a definition.
type Choice struct {
	Text string // as it was given
	// Definition is the one that the text begins with, or nil.
	Definition *Definition
	// Any: all containers of the definition.
	Any bool
	// Match says what the containers are called. Together with a definition it
	// means those of its containers that such a container is in: pod:web is the
	// pod of web, with all that is in it.
	Match Matcher
	// Identity is zero unless the text has one. It may have less than its
	// definition names, and then means every identity that has as much.
	Identity Identity
}

// ByName reports whether names decide, which may become known late.
func (c *Choice) ByName() bool { return !c.Match.IsEmpty() }

// ParseChoice reads "DEFINITION:any", "DEFINITION:IDENTITY", "DEFINITION:NAME",
// "IDENTITY" and "NAME", where NAME is one of a Matcher. s has all
// definitions, the built-in ones too. The error is ErrDefinition or ErrNoMatch.
func (s Definitions) ParseChoice(text string) (Choice, error) {
	c := Choice{Text: text}
	name, rest, _ := strings.Cut(text, ":")
	if sel, ok := s.ParseSelector(text); ok {
		c.Definition, c.Identity = s.Find(sel.Definition), sel.Identity
		c.Any = c.Identity == Identity{}
		return c, c.check()
	}
	if c.Definition = s.Find(name); c.Definition != nil {
		if c.Match = ByName(rest); rest == "" {
			err := fmt.Errorf("%q names no container behind the definition: %w", text, ErrNoMatch)
			return c, hint.Wrap(err, fmt.Sprintf("write %s:any for all of them, or %[1]s:NAME for one; 'gantry "+
				"containers' lists what runs", name))
		}
		return c, nil
	}
	if _, err := ParseIdentity(rest); rest == AnyIdentity || err == nil {
		return c, fmt.Errorf("%q: %w (there are %s)", name, ErrDefinition, strings.Join(s.Names(), ", "))
	}
	c.Match = ByName(text)
	return c, nil
}

// check refuses an identity that no task can have under the definition.
func (c *Choice) check() error {
	d := c.Definition
	if d == nil || c.Any {
		return nil
	}
	for n, ino := range c.Identity.Namespaces {
		if ino != 0 && !d.Set().Has(Namespace(n)) {
			return &mismatchError{fmt.Sprintf("%q: the definition %s has no %s namespace", c.Text, d, Namespace(n))}
		}
	}
	if (c.Identity.Cgroup != 0 || c.Identity.CgroupPath != "") && !d.Runtime && len(d.Cgroups) == 0 {
		return &mismatchError{fmt.Sprintf("%q: the definition %s has no cgroup", c.Text, d)}
	}
	return nil
}

// mismatchError is ErrDefinition where there is the definition, but the identity
// is none of it.
type mismatchError struct{ text string }

func (e *mismatchError) Error() string { return e.text }

// Unwrap is ErrDefinition.
func (e *mismatchError) Unwrap() error { return ErrDefinition }

// Distinct reports whether the namespaces by which a container without a cgroup
// of its own is known are its own: both known and not the host's.
func (t *Table) Distinct(c *Container) bool {
	d := Default()
	return c.Namespaces.Differ(&t.Host, d.Set())
}

// Alone is the definition of which an identity that names none is one: of just
// its namespaces, and its cgroup.
func (id *Identity) Alone() *Definition {
	d := &Definition{Name: AnyIdentity}
	for n, ino := range id.Namespaces {
		if ino != 0 {
			d.Namespaces = append(d.Namespaces, Namespace(n))
		}
	}
	if id.CgroupPath != "" {
		d.Cgroups = []string{globEscaper.Replace(id.CgroupPath)}
	}
	return d
}
