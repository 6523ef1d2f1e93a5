// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"math"
	"strings"

	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/container"
)

// UnknownContainer is the name of the container of a task of which nothing
// tells whether it is in one.
const UnknownContainer = "-"

// ContainerOf is the container of a task: of its cgroup if the sample told
// it, else of its namespaces. It is nil outside of containers, for one that
// has no entry in Containers, and if nothing tells: ContainerName knows more.
func (s *Session) ContainerOf(cgroup uint64, th *timeline.Thread) *container.Container {
	task := s.task(cgroup, th)
	return s.containerOf(&task)
}

func (s *Session) containerOf(task *container.Task) *container.Container {
	c := s.byCgroup(uint64(task.Cgroup))
	if c == nil {
		c = onlyContainer(s.Containers.OfTask(task))
	}
	return c
}

func (s *Session) byCgroup(id uint64) *container.Container {
	if id == 0 {
		return nil
	}
	return onlyContainer(s.Containers.ByCgroupAt(container.CgroupID(id), s.sinceBoot()))
}

// sinceBoot is the time of the record that Next gave last, by the clock of the
// containers' start times.
func (s *Session) sinceBoot() uint64 {
	if s.now == 0 {
		return math.MaxUint64 // the latest
	}
	return s.now + s.Containers.BootOffset
}

// onlyContainer is c if it is a container and not a unit of the host.
func onlyContainer(c *container.Container) *container.Container {
	if c == nil || c.Kind != container.KindContainer {
		return nil
	}
	return c
}

// ContainerName is what to call the container of a task: its name or short
// id; its identity, for one without a name; "" for a task of the host;
// UnknownContainer if nothing tells.
func (s *Session) ContainerName(cgroup uint64, th *timeline.Thread) string {
	id := s.IdentityUnder(container.DefContainer, cgroup, th)
	return id.Text()
}

// PodName is what to call the pod of a task: the runtime's name for it; the
// name or the identity of what is a container under the definition "pod"; ""
// for a task of the host; UnknownContainer if nothing tells.
func (s *Session) PodName(cgroup uint64, th *timeline.Thread) string {
	id := s.IdentityUnder(container.DefPod, cgroup, th)
	return id.Text()
}

// hostCgroup reports whether the path alone tells that its tasks are the host's:
// the root, and the units and slices of systemd.
func hostCgroup(path string) bool {
	if path == "/" || strings.HasSuffix(path, ".slice") {
		return true
	}
	ref, ok := container.FromCgroupPath(path)
	return ok && ref.Kind == container.KindUnit
}

// CgroupPath is the path of a cgroup, "" if the recording does not tell.
func (s *Session) CgroupPath(id uint64) string {
	if id == 0 {
		return ""
	}
	if path, ok := s.Timeline.Cgroup(id); ok {
		return path
	}
	return s.Containers.Path(container.CgroupID(id))
}
