// SPDX-License-Identifier: Apache-2.0

package container

// Names finds what the containers under a definition are called. It follows
// the table as that grows, not where known containers change.
type Names struct {
	table *Table
	def   Definition
	seen  int                       // containers of the table
	named map[Identity][]*Container // by identity without its life
}

// Names is an empty index of t under d. t must not be replaced while it is in
// use.
func (t *Table) Names(d *Definition) *Names {
	return &Names{table: t, def: *d, named: make(map[Identity][]*Container)}
}

// Name is what to call the container with the identity of a task, cleaned for
// printing: the label of the one that is known, or the pod if there are several
// of one pod. It is "" if that is not known.
//
// Containers that had the same numbers before or later do not count, nor those
// deeper in the tree than the cgroup which makes the identity: there may be more
// than them. Under the definition "pod" it is the pod's name in either case.
func (x *Names) Name(id Identity, task *Task) string {
	x.update()
	id.Life = 0
	var first *Container
	others, pod := false, true
	for _, c := range x.named[id] {
		if !c.livedIn(task, x.def.Set()) {
			continue
		}
		if first == nil {
			first = c
		}
		others = others || c.Label() != first.Label()
		pod = pod && c.Pod != "" && c.Pod == first.Pod && c.PodNamespace == first.PodNamespace
	}
	switch {
	case first == nil:
		return ""
	case pod && (others || x.def.Name == DefPod):
		return Printable(first.Pod)
	case others || len(x.def.Cgroups) > 0 && first.CgroupPath != id.CgroupPath:
		return ""
	}
	return first.Label()
}

func (x *Names) update() {
	for _, c := range x.table.list[x.seen:] {
		task := c.Task()
		id, ok := x.table.Identify(&x.def, &task)
		if !ok || c.Name == "" && c.ID == "" || len(x.named[id]) >= maxSame {
			continue
		}
		x.named[id] = append(x.named[id], c)
	}
	x.seen = len(x.table.list)
}

// startExact is how exact StartTime is, which is rounded down: a clock tick of
// /proc/PID/stat, and the difference of two clocks read one after the other.
const startExact = 11_000_000

// livedIn reports whether c may be the container of a task by the namespaces of
// a set, as far as times tell: it was not started before they came to be, and
// not after the task was seen.
func (c *Container) livedIn(task *Task, set NamespaceSet) bool {
	if c.StartTime == 0 {
		return true
	}
	return c.StartTime+startExact > task.Lives.born(set) && (task.Time == 0 || c.StartTime <= task.Time+startExact)
}
