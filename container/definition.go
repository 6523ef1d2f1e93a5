// SPDX-License-Identifier: Apache-2.0

package container

// Definition is a named rule that says what a container is.
type Definition struct {
	Name string
	// Namespaces must all differ from the host's.
	Namespaces NamespaceSet
	// Runtime makes a cgroup that a container runtime named sufficient: the
	// cgroup is then the identity, and Namespaces decide about other tasks.
	Runtime bool
}

// Default is the built-in definition "container": a cgroup that a runtime
// named, or a pid and a mount namespace that are both not the host's.
func Default() Definition {
	return Definition{Name: "container", Namespaces: NamespacesOf(PIDNS, MntNS), Runtime: true}
}

// Task is what a definition looks at: where a task is at a time.
type Task struct {
	Cgroup     CgroupID
	CgroupPath string // "" if only the id is known
	Namespaces Namespaces
}

// Identity is what the tasks of one container share under a definition. It is
// comparable, and the zero value means no container.
type Identity struct {
	Definition string
	Cgroup     CgroupID   // of the container's own cgroup, 0 if it does not count
	Namespaces Namespaces // only those that count
}

// Identify finds the identity of a task under d. It is not ok for a task that
// is in no container under d.
func (t *Table) Identify(d *Definition, task *Task) (Identity, bool) {
	if d.Runtime {
		if id := t.runtimeCgroup(task); id != 0 {
			return Identity{Definition: d.Name, Cgroup: id}, true
		}
	}
	if !task.Namespaces.Differ(&t.Host, d.Namespaces) {
		return Identity{}, false
	}
	return Identity{Definition: d.Name, Namespaces: task.Namespaces.Only(d.Namespaces)}, true
}

// runtimeCgroup is the id of the cgroup that makes the task's container.
func (t *Table) runtimeCgroup(task *Task) CgroupID {
	c := t.ByCgroup(task.Cgroup)
	if c == nil && task.CgroupPath != "" {
		c = t.byPathUp(task.CgroupPath)
	}
	if c == nil || c.Kind != KindContainer {
		return 0
	}
	return c.CgroupID
}
