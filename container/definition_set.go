// SPDX-License-Identifier: Apache-2.0

package container

import "slices"

// MaxDefinitions bounds the definitions of a user.
const MaxDefinitions = 64

// Definitions are definitions of different names, in the order in which
// reports list them.
type Definitions []Definition

// Find is the definition of that name, or nil. It belongs to s.
func (s Definitions) Find(name string) *Definition {
	if i := slices.IndexFunc(s, func(d Definition) bool { return d.Name == name }); i >= 0 {
		return &s[i]
	}
	return nil
}

// Names lists the names.
func (s Definitions) Names() []string {
	out := make([]string, len(s))
	for i := range s {
		out[i] = s[i].Name
	}
	return out
}

// Add appends a definition. A name that s has already is a *DefinitionError:
// the built-in ones mean the same on every machine and in every recording.
func (s *Definitions) Add(d Definition) error {
	err := s.check(&d)
	if err != nil {
		err.Text = d.String()
		return err
	}
	*s = append(*s, d)
	return nil
}

func (s Definitions) check(d *Definition) *DefinitionError {
	switch {
	case BuiltIn().Find(d.Name) != nil && s.Find(d.Name) != nil:
		return wrong(ErrDuplicate, 0, "%q is built in and cannot be changed: choose another name", d.Name)
	case s.Find(d.Name) != nil:
		return wrong(ErrDuplicate, 0, "%q is defined twice: choose another name", d.Name)
	case len(s) >= MaxDefinitions+len(BuiltIn()):
		return wrong(ErrTooMany, 0, "more than %d definitions", MaxDefinitions)
	}
	return nil
}

// Custom is s without the built-in ones.
func (s Definitions) Custom() Definitions {
	builtIn := BuiltIn()
	var out Definitions
	for _, d := range s {
		if builtIn.Find(d.Name) == nil {
			out = append(out, d)
		}
	}
	return out
}

// With is s with the definitions of o: of two with the same name, o's counts.
// The built-in ones stay as they are. s is left alone.
func (s Definitions) With(o Definitions) Definitions {
	out := slices.Clone(s)
	builtIn := BuiltIn()
	for _, d := range o {
		switch old := out.Find(d.Name); {
		case old == nil:
			out = append(out, d)
		case builtIn.Find(d.Name) == nil:
			*old = d
		}
	}
	return out
}
