// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"iter"
	"slices"
	"strings"
)

// Identity is what a sample is under one definition of containers.
type Identity struct {
	Definition string
	// ID is the text of the identity, "" outside of any container.
	ID string
	// Name is what to call the container, "" if there is no better name
	// than ID. With an empty ID it is "-" where nothing tells, else the
	// sample is one of the host.
	Name string
}

// Text is what a report shows, "" for the host.
func (i *Identity) Text() string {
	if i.Name != "" {
		return i.Name
	}
	return i.ID
}

// Identities are those of a sample under any number of definitions. It is
// comparable; the zero value is none.
type Identities string

// identityEnd is behind each part of an Identity; no text has it.
const identityEnd = "\x00"

// MakeIdentities joins identities of different definitions, in their order.
func MakeIdentities(list ...Identity) Identities {
	var b strings.Builder
	for _, i := range list {
		for _, s := range []string{i.Definition, i.ID, i.Name} {
			b.WriteString(strings.ReplaceAll(s, identityEnd, "?"))
			b.WriteString(identityEnd)
		}
	}
	return Identities(b.String())
}

// All gives the identities in their order.
func (s Identities) All() iter.Seq[Identity] {
	return func(yield func(Identity) bool) {
		rest := string(s)
		for rest != "" {
			var i Identity
			i.Definition, rest, _ = strings.Cut(rest, identityEnd)
			i.ID, rest, _ = strings.Cut(rest, identityEnd)
			i.Name, rest, _ = strings.Cut(rest, identityEnd)
			if !yield(i) {
				return
			}
		}
	}
}

// Under is the identity under a definition, zero if there is none.
func (s Identities) Under(definition string) Identity {
	for i := range s.All() {
		if i.Definition == definition {
			return i
		}
	}
	return Identity{}
}

// Shown is s reduced to the texts that a report shows for some definitions.
func (s Identities) Shown(definitions []string) Identities {
	if s == "" {
		return ""
	}
	var list []Identity
	for i := range s.All() {
		if slices.Contains(definitions, i.Definition) {
			list = append(list, Identity{Definition: i.Definition, Name: i.Text()})
		}
	}
	return MakeIdentities(list...)
}
