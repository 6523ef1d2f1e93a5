// SPDX-License-Identifier: Apache-2.0

package container

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Table is all containers that are known, with the cgroups they were found
// by. The zero value is empty and ready. It is not safe for concurrent use
// while it is changed.
//
// A cgroup's path is kept as it was first told: an id is not used again
// while the machine runs, but a container's may be, for one that started
// later in the same cgroup.
type Table struct {
	// Host is the namespaces of the host itself.
	Host Namespaces
	// Definitions are those that a recording was made with. Built-in ones
	// may be among them, and are not written to a file.
	Definitions Definitions
	// BootOffset is how much CLOCK_BOOTTIME, which StartTime is by, was ahead
	// of the recording's clock, in nanoseconds.
	BootOffset uint64
	// Lost is what the recording lost.
	Lost Lost
	// Full: there were more containers or cgroups than the table takes, which
	// are as many as a file may have.
	Full bool

	list     []*Container
	byCgroup index[CgroupID] // the container's own cgroup
	byPath   index[string]   // the same by path
	byID     index[string]
	byNS     index[Namespaces] // pid and mnt
	paths    map[CgroupID]string
	ids      map[string]CgroupID // of paths, the latest
	reused   map[string]bool     // paths that several cgroups had
}

// index finds containers by a key, in the order of StartTime. The key's zero
// value is no key.
type index[K comparable] map[K][]*Container

func (x *index[K]) add(k K, c *Container) {
	var none K
	if k == none {
		return
	}
	if *x == nil {
		*x = make(index[K])
	}
	list := (*x)[k]
	i := len(list)
	for i > 0 && list[i-1].StartTime > c.StartTime {
		i--
	}
	(*x)[k] = slices.Insert(list, i, c)
}

func (x index[K]) remove(k K, c *Container) {
	list := slices.DeleteFunc(x[k], func(o *Container) bool { return o == c })
	if len(list) == 0 {
		delete(x, k)
		return
	}
	x[k] = list
}

// maxSame is how many containers with one key are compared to find the one
// that a description means. A hostile file may have any number.
const maxSame = 64

// find is the latest container with the key that u describes.
func (x index[K]) find(k K, u *Container) *Container {
	list := x[k]
	for _, c := range slices.Backward(list[max(0, len(list)-maxSame):]) {
		if c.same(u) {
			return c
		}
	}
	return nil
}

// Lost is the ledger of lost records.
type Lost struct {
	CPUs    map[int]LostCount      `json:"cpus,omitempty"`
	Cgroups map[CgroupID]LostCount `json:"cgroups,omitempty"`
}

// LostCount is how many records were lost, and how many of them are known to
// have been samples.
type LostCount struct {
	Records uint64 `json:"records"`
	Samples uint64 `json:"samples,omitempty"`
}

// Cgroup is a cgroup's id and path.
type Cgroup struct {
	ID   CgroupID `json:"id"`
	Path string   `json:"path"`
}

// Containers are all containers and units, in the order they became known.
// The slice and what it points to belong to the table.
func (t *Table) Containers() []*Container { return t.list }

// Cgroups are all cgroups that are known, by id.
func (t *Table) Cgroups() []Cgroup {
	out := make([]Cgroup, 0, len(t.paths))
	for id, path := range t.paths {
		out = append(out, Cgroup{id, path})
	}
	slices.SortFunc(out, func(a, b Cgroup) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// AddCgroup tells the table of a cgroup, from PERF_RECORD_CGROUP or from the
// cgroup tree. If the path's text names a container or unit, that becomes
// known by it.
func (t *Table) AddCgroup(id CgroupID, path string) {
	if id == 0 || t.paths[id] != "" || path == "" {
		return
	}
	if len(t.paths) >= maxCgroups || len(path) > maxText {
		t.Full = true
		return
	}
	t.setPath(id, path)
	for _, c := range t.byPath[path] {
		if c.CgroupID == 0 {
			c.CgroupID = id
			t.byCgroup.add(id, c)
		}
	}
	ref, ok := FromCgroupPath(path)
	if !ok || !t.hasCapacity() {
		return
	}
	c := Container{Kind: ref.Kind, ID: ref.ID, Runtime: ref.Runtime, PodUID: ref.PodUID, CgroupPath: ref.Path}
	switch {
	case ref.Kind == KindUnit:
		c.Name = ref.ID
	case ref.Runtime == RuntimeNspawn, ref.Runtime == RuntimeLibvirt, ref.Runtime == RuntimeLXC:
		c.Name = unescapeUnit(ref.ID)
	}
	if ref.Path == path {
		c.CgroupID = id
	}
	t.Add(c)
}

func (t *Table) setPath(id CgroupID, path string) {
	if t.paths == nil {
		t.paths = make(map[CgroupID]string)
		t.ids = make(map[string]CgroupID)
	}
	if old, ok := t.ids[path]; ok && old != id {
		if t.reused == nil {
			t.reused = make(map[string]bool)
		}
		t.reused[path] = true
	}
	t.paths[id] = path
	t.ids[path] = id
}

// unescapeUnit undoes systemd's \x2d in unit names.
func unescapeUnit(s string) string { return strings.ReplaceAll(s, `\x2d`, "-") }

// Add merges c into the container that it describes, or adds it as a new
// one. Of two different names the later one counts. An id alone describes
// every container that had it, one after the other. The result belongs to
// the table.
func (t *Table) Add(c Container) *Container {
	c.CgroupPath = cmp.Or(c.CgroupPath, t.paths[c.CgroupID])
	if c.CgroupID == 0 && c.CgroupPath != "" {
		c.CgroupID = t.ids[c.CgroupPath]
	}
	known := t.find(&c)
	if known == nil {
		c.Labels = maps.Clone(c.Labels)
		return t.insert(&c)
	}
	if c.onlyDescribes() {
		list := t.byID[c.ID]
		for _, other := range list[max(0, len(list)-maxSame):] {
			if other.Kind == c.Kind {
				other.update(&c)
			}
		}
		return known
	}
	t.unindex(known)
	known.update(&c)
	t.index(known)
	return known
}

// hasCapacity reports whether there is room for one more container.
func (t *Table) hasCapacity() bool {
	if len(t.list) < maxContainers {
		return true
	}
	t.Full = true
	return false
}

// insert adds a container as it is.
func (t *Table) insert(c *Container) *Container {
	t.list = append(t.list, c)
	t.index(c)
	return c
}

// find is the latest container that c describes.
func (t *Table) find(c *Container) *Container {
	return cmp.Or(t.byCgroup.find(c.CgroupID, c), t.byID.find(c.ID, c), t.byNS.find(c.nsKey(), c))
}

func (t *Table) index(c *Container) {
	t.byCgroup.add(c.CgroupID, c)
	t.byPath.add(c.CgroupPath, c)
	t.byID.add(c.ID, c)
	t.byNS.add(c.nsKey(), c)
}

func (t *Table) unindex(c *Container) {
	t.byCgroup.remove(c.CgroupID, c)
	t.byPath.remove(c.CgroupPath, c)
	t.byID.remove(c.ID, c)
	t.byNS.remove(c.nsKey(), c)
}

// Path is the path of a cgroup, "" if it is not known.
func (t *Table) Path(id CgroupID) string { return t.paths[id] }

// ByCgroup is the container or unit that the cgroup belongs to: its own
// cgroup, or one below it. It is nil if there is none. Of several with the
// same cgroup it is the one that started last.
func (t *Table) ByCgroup(id CgroupID) *Container {
	return t.ByCgroupAt(id, ^uint64(0))
}

// ByCgroupAt is like ByCgroup at a time, in nanoseconds since boot: of
// several containers that had the cgroup one after the other it is the one
// that ran then.
func (t *Table) ByCgroupAt(id CgroupID, time uint64) *Container {
	if list := t.byCgroup[id]; len(list) > 0 {
		return at(list, time)
	}
	path, ok := t.paths[id]
	if !ok {
		return nil
	}
	return t.pathUpAt(path, time)
}

// at is the last of list that started before time, or the first.
func at(list []*Container, time uint64) *Container {
	for _, c := range slices.Backward(list) {
		if c.StartTime <= time {
			return c
		}
	}
	return list[0]
}

// pathUpAt finds the container of the path or the nearest of its parents.
func (t *Table) pathUpAt(path string, time uint64) *Container {
	for path != "" {
		if list := t.byPath[path]; len(list) > 0 {
			return at(list, time)
		}
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	return nil
}

// ByNamespaces is the container whose first process has these pid and mount
// namespaces now, or nil. Of several it is the one that started last.
func (t *Table) ByNamespaces(ns Namespaces) *Container {
	return t.OfTask(&Task{Namespaces: ns})
}

// OfTask is the container that a task is in by its pid and mount namespaces, at
// the task's time, or nil. Of several that had these numbers it is the one that
// started last before. A container with a cgroup of its own is not that of a task
// in another cgroup.
func (t *Table) OfTask(task *Task) *Container {
	for _, c := range slices.Backward(t.byNS[nsKey(task.Namespaces)]) {
		if c.livedIn(task, NamespacesOf(PIDNS, MntNS)) && (task.CgroupPath == "" || c.CgroupPath == "" ||
			MatchesCgroup(c.CgroupPath, task.CgroupPath)) {
			return c
		}
	}
	return nil
}

// Label is what to call a cgroup in a report, cleaned for printing: the label
// of its container, else its path, else its number.
func (t *Table) Label(id CgroupID) string {
	if c := t.ByCgroup(id); c != nil {
		return c.Label()
	}
	if path := t.paths[id]; path != "" {
		return Printable(path)
	}
	return fmt.Sprintf("cgroup:%d", id)
}
