// SPDX-License-Identifier: Apache-2.0

package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// State is what a container does.
type State string

// States of containers.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"  // its processes are frozen
	StateCreated State = "created" // its first process waits to be started
	StateExited  State = "exited"  // its cgroup has no process, not any more or not yet
)

// Status is how many processes a container has, and what they do.
type Status struct {
	Processes int
	State     State
}

// Status looks what each container does now. What runs and what is frozen the
// kernel tells; what was created and not started, runc and crun do.
func (r *Resolver) Status() map[*Container]Status {
	out := make(map[*Container]Status)
	processes := r.Processes()
	for _, c := range r.table.Containers() {
		out[c] = Status{processes[c], r.state(c, processes[c])}
	}
	return out
}

func (r *Resolver) state(c *Container, processes int) State {
	switch {
	case processes == 0 && c.CgroupID != 0:
		return StateExited
	case r.frozen(c):
		return StatePaused
	case c.Unstarted:
		return StateCreated
	}
	return StateRunning
}

// frozen reports whether the first process of a container, or else any of its
// cgroup, is frozen: by the v2 tree, or by the freezer of v1. Both tell of
// cgroups that are frozen with one above them, too.
func (r *Resolver) frozen(c *Container) bool {
	list, err := r.fs.Proc(c.PID).Cgroups()
	if c.PID == 0 || err != nil {
		if list = r.anyCgroups(c); list == nil {
			return false
		}
	}
	for i := range r.trees.Trees {
		tree := &r.trees.Trees[i]
		name, want := "freezer.state", "FROZEN"
		if tree.Unified {
			name, want = "cgroup.events", "frozen 1"
		} else if !slices.Contains(tree.Controllers, "freezer") {
			continue
		}
		at := tree.Of(list)
		if at == nil {
			continue
		}
		dir, err := tree.Dir(at.Path)
		if err != nil {
			continue
		}
		// The root of a tree has no such file: it cannot be frozen.
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && slices.Contains(strings.Split(string(text), "\n"), want) {
			return true
		}
	}
	return false
}

// anyCgroups are the cgroups of a process in the container's, nil if there is
// none.
func (r *Resolver) anyCgroups(c *Container) []procfs.Cgroup {
	rest, ok := strings.CutPrefix(c.CgroupPath, r.prefix)
	if !ok || r.tree == nil || c.CgroupPath == "" {
		return nil
	}
	pids, err := r.tree.Procs(rest)
	if err != nil {
		return nil
	}
	for _, pid := range pids {
		if list, err := r.fs.Proc(pid).Cgroups(); err == nil {
			return list
		}
	}
	return nil
}
