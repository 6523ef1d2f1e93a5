// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"path"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// cgroupName is the name that the cgroup of a container without a known runtime
// gives it: the last part of the path that is not systemd's, which may run in the
// container as well. It is "" if there is none.
func cgroupName(name string) string {
	for name != "" {
		if !hostCgroup(name) {
			return path.Base(name)
		}
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
	}
	return ""
}

// Definitions are what a container is in this session: the built-in
// definitions, those of the recording, and those of Options, which win. In a
// stream, the recording's may come late.
func (s *Session) Definitions() container.Definitions {
	if s.defs == nil {
		s.defs = container.BuiltIn().With(s.Containers.Definitions).With(s.opts.Definitions)
	}
	return s.defs
}

// Define adds definitions to those of Options.
func (s *Session) Define(defs ...container.Definition) {
	s.opts.Definitions = s.opts.Definitions.With(defs)
	s.defs, s.names = nil, nil
	s.rename()
}

// Identities lists the containers that a task is in, one for each definition
// that holds for it, as of the record that Next gave last.
func (s *Session) Identities(cgroup uint64, th *timeline.Thread) []container.Identity {
	task := s.task(cgroup, th)
	return s.Containers.IdentifyAll(s.Definitions(), &task)
}

// IdentityUnder is what a task is under the definition of that name. For one
// that is not known, it is as for a task of which nothing tells.
//
// Under "container" and "pod" the runtime's word counts, too: a pod may use
// the host's network.
func (s *Session) IdentityUnder(name string, cgroup uint64, th *timeline.Thread) profile.Identity {
	out := profile.Identity{Definition: name}
	d := s.Definitions().Find(name)
	if d == nil {
		out.Name = UnknownContainer
		return out
	}
	task := s.task(cgroup, th)
	id, m := s.Containers.Judge(d, &task)
	if m == container.Inside {
		out.ID = d.Text(id)
		out.Name = s.namesUnder(d).Name(id, &task)
	}
	switch c := s.containerOf(&task); {
	case name == container.DefContainer:
		out.Name = s.containerName(c, m, task.CgroupPath, out.ID)
	case name == container.DefPod && c != nil && c.Pod != "":
		out.Name = container.Printable(c.Pod)
	case m == container.Unknown:
		out.Name = UnknownContainer
	}
	return out
}

// IdentitiesUnder are those of a task under the definitions of these names.
func (s *Session) IdentitiesUnder(names []string, cgroup uint64, th *timeline.Thread) profile.Identities {
	list := make([]profile.Identity, len(names))
	for i, name := range names {
		list[i] = s.IdentityUnder(name, cgroup, th)
	}
	return profile.MakeIdentities(list...)
}

// containerName is the name under the built-in definition "container". Where
// the recording tells no namespaces, the path of the cgroup has to do.
func (s *Session) containerName(c *container.Container, m container.Membership, cgroup, id string) string {
	switch {
	case c != nil && (c.Name != "" || c.ID != "" || m != container.Inside):
		return c.Label()
	case m == container.Inside && !hostCgroup(cgroup):
		return container.Printable(cmp.Or(cgroupName(cgroup), id))
	case m == container.Inside:
		return container.Printable(id)
	case m == container.Outside:
		return ""
	case cgroup == "":
		return UnknownContainer
	case hostCgroup(cgroup):
		return ""
	}
	return container.Printable(cgroup)
}

func (s *Session) namesUnder(d *container.Definition) *container.Names {
	n := s.names[d.Name]
	if n == nil {
		n = s.Containers.Names(d)
		if s.names == nil {
			s.names = make(map[string]*container.Names)
		}
		s.names[d.Name] = n
	}
	return n
}

// task is what definitions look at.
func (s *Session) task(cgroup uint64, th *timeline.Thread) container.Task {
	s.findHost()
	t := container.Task{Cgroup: container.CgroupID(cgroup), CgroupPath: s.CgroupPath(cgroup), Time: s.sinceBoot()}
	switch {
	case th == nil:
	case th.Process.PID == 0 && s.fromHost():
		t.Namespaces = s.Containers.Host // the idle task
	default:
		t.Namespaces = namespaces(th.Namespaces())
		t.Lives = s.lives(th)
	}
	if ns := &t.Namespaces; ns[container.TimeNS] == 0 {
		// The kernel's records do not tell it, the first process's entry does.
		if c := s.Containers.OfTask(&t); c != nil {
			ns[container.TimeNS] = c.Namespaces[container.TimeNS]
		}
	}
	return t
}

// lives are those of a thread's namespaces, as far as they are its process's.
func (s *Session) lives(th *timeline.Thread) (out container.Lives) {
	for n, l := range th.Namespaces() {
		life := th.Process.Life(n)
		if life == nil || l.Ino != th.Process.Namespace(n) {
			continue
		}
		out[n].Number = life.Number
		if life.Born != 0 {
			out[n].Born = life.Born + s.Containers.BootOffset
		}
	}
	return out
}

// Inode numbers of the first namespaces of each kind (linux/proc_ns.h,
// PROC_*_INIT_INO), which have been the same since Linux 3.8; those of
// networks and mounts vary.
func firstNamespaces() container.Namespaces {
	return container.Namespaces{
		container.IPCNS: 0xEFFFFFFF, container.UTSNS: 0xEFFFFFFE, container.UserNS: 0xEFFFFFFD,
		container.PIDNS: 0xEFFFFFFC, container.CgroupNS: 0xEFFFFFFB, container.TimeNS: 0xEFFFFFFA,
	}
}

// fromHost: the recording's numbers of tasks are those of the host, where 0 is
// the idle task and nothing else.
func (s *Session) fromHost() bool {
	return s.Containers.Host[container.PIDNS] == firstNamespaces()[container.PIDNS]
}

// findHost completes the host's namespaces, which perf does not record: they
// are those of the first process or of the kernel's threads, and, if neither
// was recorded, the numbers that the kernel always gives them.
func (s *Session) findHost() {
	if s.hostNS {
		return
	}
	host := &s.Containers.Host
	s.hostGuessed = s.hostGuessed || *host == container.Namespaces{}
	if !s.hostGuessed {
		s.hostNS = true
		return
	}
	old := *host
	if *host, s.hostNS = s.guessHost(); *host != old {
		s.names = nil
		s.rename()
	}
}

// guessHost is done when it has seen a task of the host. perf, too, may not be
// permitted to look at the first process, and then records zeros for it.
func (s *Session) guessHost() (host container.Namespaces, done bool) {
	for _, pid := range []int32{1, 2} {
		if p := s.Timeline.Process(pid); p != nil {
			host = host.Or(namespaces(p.Namespaces))
		}
	}
	done = host != container.Namespaces{}
	return host.Or(firstNamespaces()), done
}

func namespaces(links []perf.NSLink) (ns container.Namespaces) {
	for i, l := range links {
		if i < len(ns) {
			ns[i] = l.Ino
		}
	}
	return ns
}

// hostMountNS is the host's mount namespace, 0 if not known.
func (s *Session) hostMountNS() uint64 {
	s.findHost()
	return s.Containers.Host[container.MntNS]
}
