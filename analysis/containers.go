// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// UnknownContainer is the name of the container of a task of which nothing
// tells whether it is in one.
const UnknownContainer = "-"

// ContainerOf is the container of a task: of its cgroup if the sample told
// it, else of its namespaces. It is nil outside of containers, for one that
// has no entry in Containers, and if nothing tells: ContainerName knows more.
func (s *Session) ContainerOf(cgroup uint64, th *timeline.Thread) *container.Container {
	c := s.byCgroup(cgroup)
	if c == nil && th != nil {
		c = s.byNamespaces(th)
	}
	return c
}

func (s *Session) byCgroup(id uint64) *container.Container {
	if id == 0 {
		return nil
	}
	return onlyContainer(s.Containers.ByCgroup(container.CgroupID(id)))
}

func (s *Session) byNamespaces(th *timeline.Thread) *container.Container {
	if ns := namespaces(th.Process); ns != (container.Namespaces{}) {
		return onlyContainer(s.Containers.ByNamespaces(ns))
	}
	return nil
}

// onlyContainer is c if it is a container and not a unit of the host.
func onlyContainer(c *container.Container) *container.Container {
	if c == nil || c.Kind != container.KindContainer {
		return nil
	}
	return c
}

// ContainerName is what to call the container of a task: its name or short
// id; the path of the cgroup, or the mount namespace, for one that nobody
// named; "" for a task of the host; UnknownContainer if nothing tells.
func (s *Session) ContainerName(cgroup uint64, th *timeline.Thread) string {
	if c := s.ContainerOf(cgroup, th); c != nil {
		return c.Label()
	}
	path := s.CgroupPath(cgroup)
	if th != nil {
		if in, known := s.inOwnNamespaces(th); known {
			switch {
			case !in:
				return ""
			case path != "" && path != "/":
				return container.Printable(path)
			}
			return fmt.Sprintf("mnt:%d", th.Process.Namespace(perf.NSMnt))
		}
	}
	switch {
	case path == "":
		return UnknownContainer
	case hostCgroup(path):
		return ""
	}
	return container.Printable(path)
}

// inOwnNamespaces says whether both the pid and the mount namespace of a task
// are not the host's, which makes a container by the built-in definition; not
// known if the recording does not tell.
func (s *Session) inOwnNamespaces(th *timeline.Thread) (in, known bool) {
	ns, host := namespaces(th.Process), s.hostNamespaces()
	for _, kind := range []container.Namespace{container.PIDNS, container.MntNS} {
		if ns[kind] == 0 || host[kind] == 0 {
			return false, false
		}
	}
	d := container.Default()
	return ns.Differ(&host, d.Set()), true
}

// hostCgroup says whether the path alone tells that its tasks are the host's:
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

func namespaces(p *timeline.Process) (ns container.Namespaces) {
	for i, l := range p.Namespaces {
		if i < len(ns) {
			ns[i] = l.Ino
		}
	}
	return ns
}

// hostNamespaces are those of the host: as the recorder found them, else
// those of its first process or of the kernel's threads. Zero is not known.
func (s *Session) hostNamespaces() container.Namespaces {
	if s.Containers.Host != (container.Namespaces{}) {
		return s.Containers.Host
	}
	for _, pid := range []int32{1, 2} {
		if p := s.Timeline.Process(pid); p != nil && len(p.Namespaces) > 0 {
			return namespaces(p)
		}
	}
	return container.Namespaces{}
}

// hostMountNS is the host's mount namespace, 0 if not known.
func (s *Session) hostMountNS() uint64 { return s.hostNamespaces()[container.MntNS] }
