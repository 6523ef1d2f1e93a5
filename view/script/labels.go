// SPDX-License-Identifier: Apache-2.0

package script

import (
	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
)

// labelCache knows the labels of cgroups. What a cgroup is called may be told
// late, so it is emptied with each CGROUP record.
type labelCache struct {
	s       *analysis.Session
	cgroups map[uint64]*profile.Labels
}

func (c *labelCache) init(s *analysis.Session) {
	c.s = s
	c.clear()
}

func (c *labelCache) clear() { c.cgroups = make(map[uint64]*profile.Labels) }

// of gives the container's labels for a sample.
func (c *labelCache) of(it *analysis.Item) *profile.Labels {
	id := it.Sample.Cgroup
	if l := c.cgroups[id]; l != nil && id != 0 {
		return l
	}
	l := new(profile.Labels)
	if id != 0 {
		l.Cgroup = c.s.CgroupPath(id)
		c.cgroups[id] = l
	}
	if k := c.s.ContainerOf(id, it.Thread); k != nil {
		l.Container, l.ContainerID, l.Pod, l.Namespace, l.Image = k.Label(), k.ID, k.Pod, k.PodNamespace, k.Image
	}
	return l
}

// fill copies the container's labels of a sample.
func (c *labelCache) fill(l *profile.Labels, it *analysis.Item) {
	from := c.of(it)
	l.Container, l.ContainerID, l.Pod, l.Namespace, l.Image, l.Cgroup =
		from.Container, from.ContainerID, from.Pod, from.Namespace, from.Image, from.Cgroup
}

// append prints the labels as key=value; - is one that there is not.
func (c *labelCache) append(dst []byte, f Field, it *analysis.Item) []byte {
	l := c.of(it)
	for _, e := range [...]struct {
		field      Field
		key, value string
	}{
		{Container, "container=", l.Container}, {Pod, "pod=", l.Pod}, {Namespace, "namespace=", l.Namespace},
		{Image, "image=", l.Image}, {Cgroup, "cgroup=", l.Cgroup},
	} {
		if f&e.field == 0 {
			continue
		}
		if e.value == "" {
			e.value = "-"
		}
		dst = append(appendText(append(dst, e.key...), e.value, 0), ' ')
	}
	return dst
}
