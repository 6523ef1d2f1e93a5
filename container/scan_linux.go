// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// errStop ends a walk.
var errStop = errors.New("found")

// fromNSRoot resolves a path that is relative to the own cgroup namespace in
// a tree that shows more: the host's tree mounted in a container. The
// namespace's root is found by looking for this process in the tree.
func (r *Resolver) fromNSRoot(p string) (string, error) {
	if r.nsRoot == "" {
		if err := r.findNSRoot(); err != nil {
			return "", err
		}
	}
	return path.Join(r.nsRoot, p), nil
}

func (r *Resolver) findNSRoot() error {
	list, err := procfs.New("").Self().Cgroups()
	if err != nil {
		return err
	}
	self := r.tree.Of(list)
	if self == nil {
		return procfs.ErrOutside
	}
	err = r.tree.Walk(func(_ uint64, at string) error {
		pids, err := r.tree.Procs(at)
		if err != nil || !slices.Contains(pids, os.Getpid()) {
			return nil
		}
		r.nsRoot = "/" + strings.Trim(strings.TrimSuffix(at, strings.TrimSuffix(self.Path, "/")), "/")
		return errStop
	})
	if errors.Is(err, errStop) {
		return nil
	}
	if err == nil {
		err = procfs.ErrOutside
	}
	return fmt.Errorf("find the own cgroup: %w", err)
}

// scan looks at all processes for containers that no cgroup tells of: a pid
// and a mount namespace that are not the host's.
func (r *Resolver) scan(ctx context.Context) error {
	pids, err := r.candidates(ctx)
	if err != nil {
		return err
	}
	denied := 0
	r.alone = make(map[*Container]int)
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The first process is the host itself, readable or not.
		if err := r.look(pid); pid != 1 && errors.Is(err, fs.ErrPermission) {
			denied++
		}
	}
	if denied > 0 {
		return fmt.Errorf("namespaces of %d of %d processes: %w", denied, len(pids), fs.ErrPermission)
	}
	return nil
}

// candidates are the processes to look at.
func (r *Resolver) candidates(ctx context.Context) ([]int, error) {
	if r.among != nil {
		if pids, ok := r.among(ctx); ok {
			slices.Sort(pids)
			return pids, nil
		}
	}
	return r.fs.PIDs()
}

// look adds the container that one process is in.
func (r *Resolver) look(pid int) error {
	p := r.fs.Proc(pid)
	for _, n := range []Namespace{PIDNS, MntNS} {
		ino, err := p.Namespace(n.String())
		if err != nil || ino == r.table.Host[n] {
			return err
		}
	}
	task, list, err := r.task(pid)
	if err != nil {
		return err
	}
	st, err := p.Status()
	if err != nil {
		return err
	}
	first := st.InnerPID() == 1
	c := r.table.ByCgroup(task.Cgroup)
	if c != nil && c.Kind == KindContainer {
		if first && c.PID == 0 {
			r.first(c, p, &task)
		}
		return nil
	}
	if !r.table.hasCapacity() {
		return nil
	}
	c = r.table.Add(byHierarchies(list, task.Namespaces))
	r.alone[c]++
	if first && c.PID == 0 {
		r.first(c, p, &task)
	}
	return nil
}

// byHierarchies is the container of a task whose cgroup in the tree tells
// none: on a hybrid machine a runtime may use v1 hierarchies only, and one of
// them may name it.
func byHierarchies(list []procfs.Cgroup, ns Namespaces) Container {
	for i := range list {
		if ref, ok := FromCgroupPath(list[i].Path); ok && ref.Kind == KindContainer {
			return Container{ID: ref.ID, Runtime: ref.Runtime, PodUID: ref.PodUID, Namespaces: ns}
		}
	}
	return Container{Namespaces: ns}
}

// first completes a container by its first process.
func (r *Resolver) first(c *Container, p procfs.Proc, task *Task) {
	st, err := p.Stat()
	if err != nil {
		return
	}
	r.table.unindex(c)
	c.PID, c.StartTime = p.PID(), st.Start()
	for n, ino := range task.Namespaces {
		if ino != 0 {
			c.Namespaces[n] = ino
		}
	}
	r.table.index(c)
}

// Processes counts the processes of each container now.
func (r *Resolver) Processes() map[*Container]int {
	out := make(map[*Container]int)
	for _, cg := range r.table.Cgroups() {
		c := r.table.ByCgroup(cg.ID)
		rest, ok := strings.CutPrefix(cg.Path, r.prefix)
		if c == nil || r.tree == nil || !ok {
			continue
		}
		// A cgroup that is gone or not readable counts nothing.
		if pids, err := r.tree.Procs(rest); err == nil {
			out[c] += len(pids)
		}
	}
	for c, n := range r.alone {
		out[c] += n
	}
	return out
}
