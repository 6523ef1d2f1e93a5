// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	"slices"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
)

// labelCache knows the containers that tasks are in.
type labelCache struct {
	s       *analysis.Session
	columns []string // definitions that have a column
	all     []string // and those that the filter looks at
	tasks   map[taskID]*profile.Labels
	namesID uint64
}

// taskID is all that a task's containers hang on, while Session.NamesID stays.
type taskID struct {
	thread, process uint32 // serials
	cgroup          uint64
}

// maxTasks bounds what is remembered.
const maxTasks = 1 << 14

func (c *labelCache) init(s *analysis.Session, o *Options) {
	c.s, c.columns = s, o.Columns.defs
	c.all = slices.Concat(c.columns, o.Filter.Definitions())
	slices.Sort(c.all)
	c.all = slices.Compact(c.all)
}

// of gives the container's labels for a sample.
func (c *labelCache) of(it *analysis.Item) *profile.Labels {
	if id := c.s.NamesID(); c.tasks == nil || c.namesID != id || len(c.tasks) == maxTasks {
		c.tasks, c.namesID = make(map[taskID]*profile.Labels), id
	}
	id := taskID{cgroup: it.Sample.Cgroup}
	if th := it.Thread; th != nil {
		id.thread, id.process = th.Serial, th.Process.Serial
	}
	l := c.tasks[id]
	if l == nil {
		l = c.find(it)
		c.tasks[id] = l
	}
	return l
}

func (c *labelCache) find(it *analysis.Item) *profile.Labels {
	cgroup := it.Sample.Cgroup
	l := &profile.Labels{
		Container: c.s.ContainerName(cgroup, it.Thread), Pod: c.s.PodName(cgroup, it.Thread),
		Cgroup: c.s.CgroupPath(cgroup), Identities: c.s.IdentitiesUnder(c.all, cgroup, it.Thread),
	}
	if k := c.s.ContainerOf(cgroup, it.Thread); k != nil {
		l.ContainerID, l.Namespace, l.Image = k.ID, k.PodNamespace, k.Image
	}
	return l
}

// fill copies the container's labels of a sample.
func (c *labelCache) fill(l *profile.Labels, it *analysis.Item) {
	from := c.of(it)
	l.Container, l.ContainerID, l.Pod, l.Namespace, l.Image, l.Cgroup, l.Identities =
		from.Container, from.ContainerID, from.Pod, from.Namespace, from.Image, from.Cgroup, from.Identities
}

// host is what runs outside of any container.
const host = "[host]"

// append prints the labels as key=value; - is one that there is not.
func (c *labelCache) append(dst []byte, f Field, it *analysis.Item) []byte {
	l := c.of(it)
	for _, e := range [...]struct {
		field      Field
		key, value string
	}{
		{Container, container.DefContainer, cmp.Or(l.Container, host)}, {Pod, container.DefPod, cmp.Or(l.Pod, host)},
		{Namespace, "namespace", l.Namespace}, {Image, "image", l.Image}, {Cgroup, "cgroup", l.Cgroup},
	} {
		if f&e.field != 0 {
			dst = appendLabel(dst, e.key, e.value)
		}
	}
	for i, name := range c.columns {
		if f&(definition<<i) != 0 {
			id := l.Identities.Under(name)
			dst = appendLabel(dst, name, cmp.Or(id.Text(), host))
		}
	}
	return dst
}

func appendLabel(dst []byte, key, value string) []byte {
	dst = append(append(dst, key...), '=')
	return append(appendText(dst, cmp.Or(value, "-"), 0), ' ')
}
