// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// namespaceKinds are the namespaces of a loader, by their names in /proc.
var namespaceKinds = [...]string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup", "time"}

// A taskReader reads from /proc who a task is.
type taskReader struct {
	fs   procfs.FS
	tree *procfs.CgroupTree // nil: cgroups are not known
	last struct {
		path string
		id   uint64
	}
}

func newTaskReader(fsys procfs.FS) *taskReader {
	t := &taskReader{fs: fsys}
	if trees, err := fsys.CgroupTrees(); err == nil {
		t.tree = trees.Perf()
	}
	return t
}

// read fills in what is known of a task that may be gone.
func (t *taskReader) read(l *perfdata.BPFLoader) {
	if l.PID <= 0 {
		return
	}
	task := t.fs.Proc(int(l.PID))
	if l.TID > 0 {
		task = task.Task(int(l.TID))
	}
	if comm, err := task.Comm(); err == nil {
		l.Comm = comm
	}
	for _, kind := range namespaceKinds {
		if ino, err := task.Namespace(kind); err == nil && ino != 0 {
			if l.Namespaces == nil {
				l.Namespaces = make(map[string]uint64)
			}
			l.Namespaces[kind] = ino
		}
	}
	if t.tree == nil {
		return
	}
	list, err := task.Cgroups()
	if err != nil {
		return
	}
	c := t.tree.Of(list)
	if c == nil {
		return
	}
	if c.Path != t.last.path || t.last.id == 0 {
		id, err := t.tree.ID(c.Path)
		if err != nil {
			return
		}
		t.last.path, t.last.id = c.Path, id
	}
	l.Cgroup = t.last.id
}
