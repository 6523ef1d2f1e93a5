// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"iter"

	"github.com/gantry-tools/gantry/perf"
)

// MountNS is a mount namespace. The kernel gives the inode number of one that is
// gone to the next one, and the device of its overlay too, on which files have the
// inode of the one before if that was removed. Generation counts the namespaces
// that had the number; 0 is the first that was seen. The zero value is one that is
// not known.
type MountNS struct {
	Ino        uint64
	Generation uint32
}

// GenerationShift is where the generation of the mount namespace is in the
// generation of an inode: above the 32 bits that the kernel has for it. Readers,
// perf among them, compare it as it is.
const GenerationShift = 32

// InodeGen returns the generation of an inode that was mapped in the namespace.
func (m MountNS) InodeGen(inode uint64) uint64 {
	return inode&(1<<GenerationShift-1) | uint64(m.Generation)<<GenerationShift
}

// mountNSState is what is known of the namespace that has an inode number now.
type mountNSState struct {
	generation uint32
	member     int32 // a process that was in it
}

// maxMountNS bounds the mount namespaces that are remembered.
const maxMountNS = 1 << 16

// change says in which mount namespace a process is.
type change struct {
	pid, parent int32 // parent is set if the process has begun just now
	ino         uint64
	live        bool // no status record
}

// MountNS returns the mount namespace of a process, zero if it is not known.
func (t *Table) MountNS(pid int32) MountNS { return t.mounts[pid] }

// Members yields the processes that are known to be in a mount namespace.
func (t *Table) Members(ns MountNS) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for pid, in := range t.mounts {
			if in == ns && !yield(pid) {
				return
			}
		}
	}
}

// Learner learns the mount namespaces of the processes from the records of one
// ring.
type Learner struct {
	t             *Table
	child, parent int32
}

// Learn returns a Learner for one ring. All rings are learned from before any
// mapping is looked at: a process is forked on one CPU and maps files on another.
func (t *Table) Learn() Learner { return Learner{t: t} }

// Record takes a record of the ring. There is a NAMESPACES record for each new
// thread, right behind its FORK.
func (l *Learner) Record(raw perf.Raw) {
	switch raw.Type() {
	case perf.RecordFork:
		if task, ok := raw.Task(); ok {
			l.child, l.parent = task.PID, task.PPID
		}
	case perf.RecordNamespaces:
		n, ok := raw.Namespaces()
		if !ok || n.PID != n.TID || n.Len() <= perf.NSMnt {
			return
		}
		c := change{pid: n.PID, ino: n.Inode(perf.NSMnt), live: true}
		if n.PID == l.child && n.PID != l.parent {
			c.parent = l.parent
		}
		l.child = 0
		l.t.setMountNS(c)
	}
}

// setMountNS notes where a process is.
func (t *Table) setMountNS(c change) {
	old, known := t.mounts[c.pid]
	if !known && len(t.mounts) >= MaxProcesses {
		t.Untracked++
		return
	}
	if c.parent != 0 {
		old = t.mounts[c.parent] // from which it has its own
	}
	if old.Ino != c.ino || old.Ino == 0 {
		old = MountNS{c.ino, t.enter(&c)}
	}
	t.mounts[c.pid] = old
}

// enter returns the generation of the mount namespace that a process enters.
// Inode numbers are reused, so a namespace whose last known member is gone counts
// as new; a false positive costs looking at its files once more.
func (t *Table) enter(c *change) uint32 {
	s := t.states[c.ino]
	switch {
	case s == nil:
		if len(t.states) >= maxMountNS {
			clear(t.states)
			t.lastGeneration++
			t.firstGeneration = t.lastGeneration
		}
		s = &mountNSState{generation: t.firstGeneration}
		t.states[c.ino] = s
	case !c.live || c.ino == t.hostMnt || t.isIn(s.member, c.ino):
		return s.generation
	default:
		t.lastGeneration++
		s.generation = t.lastGeneration
	}
	s.member = c.pid
	t.NewMountNS++
	return s.generation
}

// isIn reports whether a process runs in the mount namespace.
func (t *Table) isIn(pid int32, ino uint64) bool {
	now, err := t.fs.Proc(int(pid)).Namespace("mnt")
	return err == nil && now == ino
}
