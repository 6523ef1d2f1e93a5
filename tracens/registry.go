// SPDX-License-Identifier: Apache-2.0

// Package tracens keeps tracing namespaces: isolated sets of user events, each with a
// directory that containers mount. What a namespace can do is what the trace systems
// do that are registered: user events of the kernel's kind, rings, LTTng and others.
//
// Start with NewRegistry and Register the systems; then Create, Remove and Configure are
// mkdir, rmdir and a write to the options file of the directory, which package nsfs
// shows. The semantics are those of the kernel RFC of 2022 ("tracing: tracing
// namespaces"). A System of one's own needs the five operations of the interface, and
// nothing of gantry but this package.
package tracens

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// System is a trace system: what keeps the events of namespaces. Its methods are called
// one at a time for one namespace, and at the same time for different ones.
type System interface {
	// Name is the first part of events' names, SYSTEM.NAMESPACE:EVENT.
	Name() string
	// Create makes what the system keeps of a new namespace.
	Create(ns *Namespace) error
	// Remove ends it. ENOENT, that there is nothing, is no failure.
	Remove(ns *Namespace) error
	// Parse carries out one line of the options file, without its end. ErrNotMine is
	// for a command of another system.
	Parse(ns *Namespace, command string) error
	// Show is the system's part of the options file: lines that Parse takes, and
	// comments that begin with #.
	Show(ns *Namespace) (string, error)
	// IsBusy reports whether somebody uses events of the namespace.
	IsBusy(ns *Namespace) bool
}

// Errors beside those of System's methods. Each unwraps to the errno that a program gets.
var (
	// ErrNotMine says that a command is another system's.
	ErrNotMine = fmt.Errorf("not a command of this trace system: %w", syscall.ECANCELED)
	// ErrNoSystems: nothing is registered.
	ErrNoSystems = fmt.Errorf("no trace system is registered: %w", syscall.ENODEV)
	// ErrExists: there is a namespace of that name.
	ErrExists = fmt.Errorf("the tracing namespace exists: %w", syscall.EEXIST)
	// ErrNotFound: there is none.
	ErrNotFound = fmt.Errorf("no such tracing namespace: %w", syscall.ENOENT)
	// ErrBusy: somebody uses it.
	ErrBusy = fmt.Errorf("the tracing namespace is in use: %w", syscall.EBUSY)
	// ErrName: a name that cannot be one of events.
	ErrName = fmt.Errorf("a name has letters, digits, _, - and ., 63 at most, and begins with a letter: %w",
		syscall.EINVAL)
	// ErrCommand: no system knows a command.
	ErrCommand = fmt.Errorf("no trace system knows the command: %w", syscall.EINVAL)
	// ErrFull: there are MaxNamespaces.
	ErrFull = fmt.Errorf("%d tracing namespaces are the most: %w", MaxNamespaces, syscall.ENOSPC)
)

// MaxNamespaces bounds those of a Registry.
const MaxNamespaces = 16384

// maxName bounds a name, in bytes.
const maxName = 63

// ID numbers a namespace. 0 is none, and a number is not soon given again.
type ID uint32

// Namespace is a tracing namespace. Name and ID do not change.
type Namespace struct {
	Name string
	ID   ID

	mu     sync.Mutex // one operation at a time
	users  int
	gone   bool
	values map[System]any
}

// Value is what a system keeps with the namespace; nil before SetValue.
func (ns *Namespace) Value(s System) any { return ns.values[s] }

// SetValue keeps something of a system with the namespace. It is for the system's own
// methods.
func (ns *Namespace) SetValue(s System, value any) {
	if ns.values == nil {
		ns.values = make(map[System]any)
	}
	ns.values[s] = value
}

// Registry is the trace systems and the namespaces. It is safe for concurrent use.
type Registry struct {
	mu      sync.Mutex
	systems []System
	byName  map[string]*Namespace
	last    ID
	ids     map[ID]bool
}

// NewRegistry has no systems and no namespaces.
func NewRegistry() *Registry {
	return &Registry{byName: make(map[string]*Namespace), ids: make(map[ID]bool)}
}

// Register adds a system, behind those that are there. Namespaces that exist already do
// not have it, so it comes before the first: EBUSY is one too late, EEXIST a name that
// is taken, EINVAL a system without one.
func (r *Registry) Register(s System) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case s == nil || !validName(s.Name()):
		return fmt.Errorf("register a trace system: %w", ErrName)
	case len(r.byName) > 0:
		return fmt.Errorf("register trace system %s behind the first namespace: %w", s.Name(), syscall.EBUSY)
	case slices.ContainsFunc(r.systems, func(o System) bool { return o.Name() == s.Name() }):
		return fmt.Errorf("register trace system %s twice: %w", s.Name(), syscall.EEXIST)
	}
	r.systems = append(r.systems, s)
	return nil
}

// Systems are the registered ones, in their order.
func (r *Registry) Systems() []System {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.systems)
}

func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return true
}

// Create makes a namespace: every system in order. If one fails, those before it remove
// theirs again, and the error is its.
func (r *Registry) Create(name string) (*Namespace, error) {
	if !validName(name) {
		return nil, fmt.Errorf("%q: %w", name, ErrName)
	}
	ns, systems, err := r.reserve(name)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	// Nobody else has it while it is locked.
	defer ns.mu.Unlock()
	for i, s := range systems {
		if err := s.Create(ns); err != nil {
			for _, done := range slices.Backward(systems[:i]) {
				_ = done.Remove(ns) // the first error is the one to tell
			}
			ns.gone = true
			r.forget(ns)
			return nil, fmt.Errorf("%q: %s: %w", name, s.Name(), err)
		}
	}
	return ns, nil
}

// reserve takes a name and a number, and returns the namespace locked.
func (r *Registry) reserve(name string) (*Namespace, []System, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.systems) == 0:
		return nil, nil, ErrNoSystems
	case r.byName[name] != nil:
		return nil, nil, ErrExists
	case len(r.byName) >= MaxNamespaces:
		return nil, nil, ErrFull
	}
	for r.last++; r.last == 0 || r.ids[r.last]; r.last++ {
	}
	ns := &Namespace{Name: name, ID: r.last}
	ns.mu.Lock()
	r.byName[name], r.ids[ns.ID] = ns, true
	return ns, slices.Clone(r.systems), nil
}

func (r *Registry) forget(ns *Namespace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byName, ns.Name)
	delete(r.ids, ns.ID)
}

// Find is a namespace by its name, or ErrNotFound.
func (r *Registry) Find(name string) (*Namespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ns := r.byName[name]
	if ns == nil {
		return nil, fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	return ns, nil
}

// List is all namespaces, by name.
func (r *Registry) List() []*Namespace {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*Namespace, 0, len(r.byName))
	for _, ns := range r.byName {
		list = append(list, ns)
	}
	slices.SortFunc(list, func(a, b *Namespace) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Hold keeps a namespace from being removed, as an open file of it does. Release gives it
// back.
func (r *Registry) Hold(ns *Namespace) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.gone {
		return fmt.Errorf("%q: %w", ns.Name, ErrNotFound)
	}
	ns.users++
	return nil
}

// Release undoes one Hold.
func (r *Registry) Release(ns *Namespace) {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.users--
}

// Remove ends a namespace that nobody uses: every system, also behind one that fails. The
// last error is returned, and then the namespace stays.
func (r *Registry) Remove(name string) error {
	r.mu.Lock()
	ns, systems := r.byName[name], slices.Clone(r.systems)
	r.mu.Unlock()
	switch {
	case len(systems) == 0:
		return fmt.Errorf("%q: %w", name, ErrNoSystems)
	case ns == nil:
		return fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.gone {
		return fmt.Errorf("%q: %w", name, ErrNotFound)
	}
	if ns.users > 0 {
		return fmt.Errorf("%q: %w", name, ErrBusy)
	}
	for _, s := range systems {
		if s.IsBusy(ns) {
			return fmt.Errorf("%q: %s: %w", name, s.Name(), ErrBusy)
		}
	}
	var last error
	for _, s := range systems {
		if err := s.Remove(ns); err != nil && !errors.Is(err, syscall.ENOENT) {
			last = fmt.Errorf("%q: %s: %w", name, s.Name(), err)
		}
	}
	if last != nil {
		return last
	}
	ns.gone = true
	r.forget(ns)
	return nil
}

// maxCommand bounds a command, in bytes.
const maxCommand = 4096

// Configure carries out the commands of a text, one a line; empty lines and those that
// begin with # are none. Each goes to the systems in order until one takes it. The first
// that fails ends it.
func (r *Registry) Configure(ns *Namespace, text string) error {
	systems := r.Systems()
	if len(systems) == 0 {
		return fmt.Errorf("%q: %w", ns.Name, ErrNoSystems)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.gone {
		return fmt.Errorf("%q: %w", ns.Name, ErrNotFound)
	}
	line := 0
	for command := range strings.Lines(text) {
		line++
		command = strings.TrimSpace(command)
		if command == "" || command[0] == '#' {
			continue
		}
		if err := parse(systems, ns, command); err != nil {
			return fmt.Errorf("%q: line %d: %w", ns.Name, line, err)
		}
	}
	return nil
}

func parse(systems []System, ns *Namespace, command string) error {
	if len(command) > maxCommand {
		return fmt.Errorf("a command of %d bytes, %d are the most: %w", len(command), maxCommand, syscall.E2BIG)
	}
	for _, s := range systems {
		err := s.Parse(ns, command)
		if errors.Is(err, syscall.ECANCELED) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
		return nil
	}
	return fmt.Errorf("%q: %w", command, ErrCommand)
}

// Show is the text of the options file: what every system says.
func (r *Registry) Show(ns *Namespace) (string, error) {
	systems := r.Systems()
	if len(systems) == 0 {
		return "", fmt.Errorf("%q: %w", ns.Name, ErrNoSystems)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.gone {
		return "", fmt.Errorf("%q: %w", ns.Name, ErrNotFound)
	}
	var b strings.Builder
	for _, s := range systems {
		text, err := s.Show(ns)
		if err != nil {
			return "", fmt.Errorf("%q: %s: %w", ns.Name, s.Name(), err)
		}
		b.WriteString(text)
		if text != "" && !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String(), nil
}
