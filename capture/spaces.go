// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

// space is a mount namespace. The kernel gives the inode number of one that is
// gone to the next one, and the device of its overlay, on which files have the
// inode of the one before if that was removed: nothing but time tells them apart.
type space struct {
	mnt  uint64
	life uint32 // which of those with the number, 0 the first that was seen
}

// lifeShift is where the life of the mount namespace is in the generation of an
// inode: above the 32 bits that the kernel has for it. Readers, of which perf is
// one, compare it as it is.
const lifeShift = 32

// gen is the generation of an inode that was mapped in s.
func (s space) gen(inode uint64) uint64 { return inode&(1<<lifeShift-1) | uint64(s.life)<<lifeShift }

// life is what is known of the mount namespace that has a number now.
type life struct {
	n      uint32
	anchor int32 // a process that was in it
}

// maxSpaces bounds the mount namespaces that are remembered.
const maxSpaces = 1 << 16

// entry is what a NAMESPACES record says: in which mount and pid namespace a
// process is.
type entry struct {
	pid, parent int32 // parent is set if the process has begun just now
	mnt, pidNS  uint64
	live        bool // no status record
}

// namespaces learns where a process is.
func (w *sidebandWalker) namespaces(e entry) {
	w.strangers.saw(e.pid, e.pidNS, e.mnt)
	old, known := w.mounts[e.pid]
	if !known && len(w.mounts) >= maxProcesses {
		w.forgotten++
		return
	}
	if e.parent != 0 {
		old = w.mounts[e.parent] // from whom it has its own
	}
	if old.mnt != e.mnt || old.mnt == 0 {
		old = space{e.mnt, w.entered(&e)}
	}
	w.mounts[e.pid] = old
}

// entered is the life of a mount namespace that a process comes into from
// another one. It is a new one if nobody is there who was before: also where he
// has left just now, which costs looking at files once more.
func (w *sidebandWalker) entered(e *entry) uint32 {
	l := w.lives[e.mnt]
	switch {
	case l == nil:
		if len(w.lives) >= maxSpaces {
			clear(w.lives)
			w.newest++
			w.first = w.newest
		}
		l = &life{n: w.first}
		w.lives[e.mnt] = l
	case !e.live || e.mnt == w.ids.hostMnt || w.isIn(l.anchor, e.mnt):
		return l.n
	default:
		w.newest++
		l.n = w.newest
	}
	l.anchor = e.pid
	w.found++
	return l.n
}

// isIn: the process is there, and in the mount namespace.
func (w *sidebandWalker) isIn(pid int32, mnt uint64) bool {
	now, err := w.ids.fs.Proc(int(pid)).Namespace("mnt")
	return err == nil && now == mnt
}
