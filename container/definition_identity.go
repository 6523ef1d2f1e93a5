// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Task is what a definition looks at: where a task is at a time.
type Task struct {
	Cgroup     CgroupID
	CgroupPath string // "" if only the id is known
	Namespaces Namespaces
	// Time is when, in nanoseconds since boot: a container's cgroup may have
	// been another's before. 0 is now.
	Time uint64
	// Lives tell since when the numbers of Namespaces are those of these
	// namespaces. The zero value is not known.
	Lives Lives
}

// Lives are those of a task's namespaces, by kind. Inode numbers are used again,
// mostly by the next container.
type Lives [NumNS]Life

// Life is the time in which an inode number is one namespace.
type Life struct {
	// Number counts the namespaces that had the number, as far as a recording
	// tells, from 1; 0 is not known.
	Number int
	// Born is a time before its first process was in it, in nanoseconds since
	// boot.
	Born uint64
}

// born is when the latest namespace of a set came to be.
func (l *Lives) born(s NamespaceSet) (born uint64) {
	for n := range NumNS {
		if s.Has(n) {
			born = max(born, l[n].Born)
		}
	}
	return born
}

// Identity is what the tasks of one container share under a definition. It is
// comparable, and the zero value means no container.
type Identity struct {
	Definition string
	// Cgroup is the container's own cgroup, by which or below which its
	// tasks are; 0 if cgroups do not count, or the id is not known.
	Cgroup CgroupID
	// CgroupPath is its path, "" if cgroups do not count.
	CgroupPath string
	Namespaces Namespaces // only those that count
	// Life counts the pid namespaces that had this number, from 1, where the
	// pid namespace counts; 0 is not known.
	Life int
}

// Membership reports whether a task is in a container.
type Membership uint8

// The answers.
const (
	Unknown Membership = iota // nothing tells
	Outside                   // a task of the host, as far as the definition goes
	Inside
)

// Identify finds the identity of a task under d. It is not ok for a task that
// is in no container under d, or of which nothing tells.
func (t *Table) Identify(d *Definition, task *Task) (Identity, bool) {
	id, m := t.Judge(d, task)
	return id, m == Inside
}

// IdentifyAll lists the identities of a task under all of the definitions that
// it matches, in their order.
func (t *Table) IdentifyAll(defs Definitions, task *Task) []Identity {
	var out []Identity
	for i := range defs {
		if id, ok := t.Identify(&defs[i], task); ok {
			out = append(out, id)
		}
	}
	return out
}

// Judge is like Identify and tells a task of the host from one of which too
// little is known. The identity is zero unless the task is Inside.
func (t *Table) Judge(d *Definition, task *Task) (Identity, Membership) {
	if d.Runtime {
		if c := t.runtimeCgroup(task); c != nil {
			return Identity{Definition: d.Name, Cgroup: c.CgroupID, CgroupPath: c.CgroupPath}, Inside
		}
	}
	set := d.Set()
	id := Identity{Definition: d.Name, Namespaces: task.Namespaces.Only(set)}
	m := Inside
	if set.Has(PIDNS) {
		id.Life = task.Lives[PIDNS].Number
	}
	if set != 0 {
		m = task.Namespaces.judge(&t.Host, set)
	}
	if len(d.Cgroups) > 0 {
		m = m.and(t.judgeCgroup(d, task, &id))
	}
	if m != Inside {
		id = Identity{}
	}
	return id, m
}

// judgeCgroup decides by the globs of d, and notes the cgroup that matches.
func (t *Table) judgeCgroup(d *Definition, task *Task, id *Identity) Membership {
	path := cmp.Or(task.CgroupPath, t.paths[task.Cgroup])
	if path == "" {
		return Unknown
	}
	own, ok := d.CgroupOf(path)
	if !ok {
		return Outside
	}
	id.CgroupPath, id.Cgroup = own, t.ids[own]
	if own == path && task.Cgroup != 0 {
		id.Cgroup = task.Cgroup
	}
	return Inside
}

// and is the answer to two conditions that must both hold.
func (m Membership) and(o Membership) Membership {
	if m == Outside || o == Outside {
		return Outside
	}
	return min(m, o)
}

// judge reports whether every namespace of the set differs from the host's. One
// that equals it decides, also where others are not known.
func (ns *Namespaces) judge(host *Namespaces, s NamespaceSet) Membership {
	m := Inside
	for n := range NumNS {
		switch {
		case !s.Has(n):
		case ns[n] == 0 || host[n] == 0:
			m = m.and(Unknown)
		case ns[n] == host[n]:
			return Outside
		}
	}
	return m
}

// runtimeCgroup is the container by whose cgroup the task is in one.
func (t *Table) runtimeCgroup(task *Task) *Container {
	time := task.Time
	if time == 0 {
		time = math.MaxUint64
	}
	c := t.ByCgroupAt(task.Cgroup, time)
	if c == nil && task.CgroupPath != "" {
		c = t.pathUpAt(task.CgroupPath, time)
	}
	if c == nil || c.Kind != KindContainer || c.CgroupID == 0 {
		return nil
	}
	return c
}

// Text is an identity under d, as reports show it and ParseIdentity reads it:
// "net:4026532567,ipc:4026532568", in the order of the definition, and with
// "cgroup:/path" at the end where the cgroup counts. The second pid namespace
// that has a number is "pid:4026532569#2". It is not cleaned for printing.
func (d *Definition) Text(id Identity) string {
	var b strings.Builder
	for _, n := range d.Namespaces {
		if id.Namespaces[n] == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s%s:%d", comma(&b), n, id.Namespaces[n])
		if n == PIDNS && id.Life > 1 {
			fmt.Fprintf(&b, "#%d", id.Life)
		}
	}
	switch {
	case id.CgroupPath != "":
		b.WriteString(comma(&b) + cgroupText + id.CgroupPath)
	case id.Cgroup != 0:
		fmt.Fprintf(&b, "%s%s#%d", comma(&b), cgroupText, id.Cgroup)
	}
	return b.String()
}

func comma(b *strings.Builder) string {
	if b.Len() == 0 {
		return ""
	}
	return ","
}

// cgroupText begins a cgroup in the text of an identity: in front of a path,
// or of a # and the id. In front of a number it is the cgroup namespace.
const cgroupText = "cgroup:"

// ErrIdentity says that a text is not that of an identity.
var ErrIdentity = errors.New("not an identity, such as net:4026532567,ipc:4026532568")

// ParseIdentity reads the text of an identity, its namespaces in any order. The
// result names no definition.
func ParseIdentity(text string) (Identity, error) {
	var id Identity
	for rest, more := text, true; more; {
		if path, ok := strings.CutPrefix(rest, cgroupText); ok && strings.HasPrefix(path, "/") {
			id.CgroupPath = path // all of it: a path may have commas
			break
		}
		var one string
		one, rest, more = strings.Cut(rest, ",")
		if !id.parse(one) || more && id.Cgroup != 0 {
			return Identity{}, fmt.Errorf("%q: %w", text, ErrIdentity)
		}
	}
	return id, nil
}

// parse takes one part of the text.
func (id *Identity) parse(part string) bool {
	name, number, _ := strings.Cut(part, ":")
	number, isID := strings.CutPrefix(number, "#")
	number, life, hasLife := strings.Cut(number, "#")
	ino, err := strconv.ParseUint(number, 10, 64)
	if err != nil || ino == 0 {
		return false
	}
	n, ok := ParseNamespace(name)
	if hasLife {
		if id.Life, err = strconv.Atoi(life); err != nil || id.Life < 1 || n != PIDNS || isID {
			return false
		}
	}
	switch {
	case isID && n == CgroupNS && ok:
		id.Cgroup = CgroupID(ino)
		return true
	case isID || !ok || id.Namespaces[n] != 0:
		return false
	}
	id.Namespaces[n] = ino
	return true
}

// AnyIdentity selects every container of a definition: "pod:any".
const AnyIdentity = "any"

// Selector chooses containers by their identity.
type Selector struct {
	// Definition is the name of one, or "" for a bare identity, which is a
	// container of whatever definition has those namespaces.
	Definition string
	// Identity is zero for every container of the definition. Its own
	// Definition is empty.
	Identity Identity

	text string
}

// String is the selector as it was read.
func (s *Selector) String() string { return s.text }

// ParseSelector reads "DEFINITION:any", "DEFINITION:IDENTITY" and "IDENTITY".
// It is not ok for anything else, such as the name of a container or an image
// with a tag.
func (s Definitions) ParseSelector(text string) (Selector, bool) {
	if name, rest, _ := strings.Cut(text, ":"); s.Find(name) != nil {
		if rest == AnyIdentity {
			return Selector{Definition: name, text: text}, true
		}
		id, err := ParseIdentity(rest)
		return Selector{Definition: name, Identity: id, text: text}, err == nil
	}
	id, err := ParseIdentity(text)
	return Selector{Identity: id, text: text}, err == nil
}

// Selectors are the containers of a definition that a container of a name is in:
// what the choice DEFINITION:NAME means by what is known of containers now. It
// is at least one, which matches nothing if there is no such container.
func (t *Table) Selectors(c *Choice) []Selector {
	list, err := t.Select(c.Match)
	if err != nil {
		list = nil
	}
	var out []Selector
	seen := make(map[Identity]bool)
	for _, k := range list {
		task := k.Task()
		id, ok := t.Identify(c.Definition, &task)
		if !ok || seen[id] {
			continue
		}
		seen[id] = true
		id.Definition = ""
		out = append(out, Selector{Definition: c.Definition.Name, Identity: id, text: c.Text})
	}
	if out == nil {
		out = []Selector{{Definition: c.Definition.Name, Identity: Identity{Cgroup: noCgroup}, text: c.Text}}
	}
	return out
}

// noCgroup is the id of no cgroup.
const noCgroup = ^CgroupID(0)

// Bare gives a bare identity a definition that has nothing else, for those who
// look at tasks by definition: every task in those namespaces, and in that
// cgroup, matches. It is false for a selector that names a definition, and for
// the number of a cgroup.
func (s *Selector) Bare() (Definition, bool) {
	if s.Definition != "" || s.Identity.Cgroup != 0 {
		return Definition{}, false
	}
	d := s.Identity.Alone()
	d.Name = d.Text(s.Identity) // which no other definition can have
	return *d, true
}

// Matches reports whether the selector chooses an identity that is not zero: of
// its definition, if it names one, and with all that its own identity has. Of a
// number that several pid namespaces had one after the other, it chooses all
// unless it says which.
func (s *Selector) Matches(id *Identity) bool {
	if s.Definition != "" && s.Definition != id.Definition {
		return false
	}
	for n, ino := range s.Identity.Namespaces {
		if ino != 0 && ino != id.Namespaces[n] {
			return false
		}
	}
	if s.Identity.Life != 0 && s.Identity.Life != max(id.Life, 1) {
		return false
	}
	return (s.Identity.Cgroup == 0 || s.Identity.Cgroup == id.Cgroup) &&
		(s.Identity.CgroupPath == "" || s.Identity.CgroupPath == id.CgroupPath)
}
