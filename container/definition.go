// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"slices"
	"strings"
)

// Definition is a named rule that says what a container is. A task is in a
// container under it if every namespace listed differs from the host's, and
// its cgroup is one that the globs mean, if there are any.
type Definition struct {
	Name string
	// Namespaces must all differ from the host's, in the order as written,
	// which is that of the identity's text.
	Namespaces []Namespace
	// Cgroups are patterns of cgroup paths, of which one must match: each
	// component is one of path.Match, and ** stands for any number of
	// components. The outermost cgroup that matches is the container's:
	// all below it belongs to it.
	Cgroups []string
	// Runtime makes a cgroup that a container runtime named sufficient: the
	// cgroup is then the identity, and Namespaces decide about other tasks.
	// Only the built-in "container" has it.
	Runtime bool
}

// The names of the built-in definitions.
const (
	DefContainer     = "container"
	DefPod           = "pod"
	DefKernelDefault = "kernel-default"
)

// Default is the built-in definition "container": a cgroup that a runtime
// named, or a pid and a mount namespace that are both not the host's.
func Default() Definition {
	return Definition{Name: DefContainer, Namespaces: []Namespace{PIDNS, MntNS}, Runtime: true}
}

// BuiltIn are the definitions that every machine has and nobody can change:
// Default, the pod of Kubernetes and Podman, and what the 2017 RFC for the
// kernel had as its default.
func BuiltIn() Definitions {
	return Definitions{
		Default(),
		{Name: DefPod, Namespaces: []Namespace{NetNS, IPCNS}},
		{Name: DefKernelDefault, Namespaces: []Namespace{PIDNS, CgroupNS}},
	}
}

// Set is the namespaces without their order.
func (d *Definition) Set() NamespaceSet { return NamespacesOf(d.Namespaces...) }

// Equal reports whether both say the same with the same words.
func (d *Definition) Equal(o *Definition) bool {
	return d.Name == o.Name && d.Runtime == o.Runtime && slices.Equal(d.Namespaces, o.Namespaces) &&
		slices.Equal(d.Cgroups, o.Cgroups)
}

// String is the definition as ParseDefinition reads it.
func (d *Definition) String() string { return d.Name + "=" + d.Rule() }

// Rule is String without the name.
func (d *Definition) Rule() string {
	var parts []string
	if len(d.Namespaces) > 0 {
		names := make([]string, len(d.Namespaces))
		for i, n := range d.Namespaces {
			names[i] = n.String()
		}
		parts = append(parts, strings.Join(names, ","))
	}
	for _, g := range d.Cgroups {
		parts = append(parts, cgroupPrefix+strings.ReplaceAll(g, ";", `\;`))
	}
	return strings.Join(parts, ";")
}

// definitionJSON is a Definition in a file.
type definitionJSON struct {
	Name       string   `json:"name"`
	Namespaces []string `json:"namespaces,omitempty"`
	Cgroups    []string `json:"cgroups,omitempty"`
}

// MarshalJSON writes {"name":"pod","namespaces":["net","ipc"]}. Runtime, which
// no other definition has, is not written.
func (d Definition) MarshalJSON() ([]byte, error) {
	out := definitionJSON{Name: d.Name, Cgroups: d.Cgroups}
	for _, n := range d.Namespaces {
		out.Namespaces = append(out.Namespaces, n.String())
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes and refuses what
// NewDefinition refuses.
func (d *Definition) UnmarshalJSON(b []byte) error {
	var in definitionJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	out, err := NewDefinition(in.Name, in.Namespaces, in.Cgroups)
	if err == nil {
		*d = out
	}
	return err
}
