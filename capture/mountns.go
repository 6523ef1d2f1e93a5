// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

// mountNS is a mount namespace. The kernel gives the inode number of one that is
// gone to the next one, and the device of its overlay, on which files have the
// inode of the one before if that was removed: nothing but time tells them apart.
type mountNS struct {
	ino        uint64
	generation uint32 // which of those with the number, 0 the first that was seen
}

// generationShift is where the life of the mount namespace is in the generation of an
// inode: above the 32 bits that the kernel has for it. Readers, of which perf is
// one, compare it as it is.
const generationShift = 32

// inodeGeneration is the generation of an inode that was mapped in s.
func (s mountNS) inodeGeneration(inode uint64) uint64 {
	return inode&(1<<generationShift-1) | uint64(s.generation)<<generationShift
}

// mountNSState is what is known of the mount namespace that has a number now.
type mountNSState struct {
	generation uint32
	member     int32 // a process that was in it
}

// maxMountNS bounds the mount namespaces that are remembered.
const maxMountNS = 1 << 16

// nsChange is what a NAMESPACES record says: in which mount and pid namespace a
// process is.
type nsChange struct {
	pid, parent int32 // parent is set if the process has begun just now
	mnt, pidNS  uint64
	live        bool // no status record
}

// namespaces learns where a process is.
func (w *sidebandWalker) namespaces(e nsChange) {
	w.namespaced.setNamespaces(e.pid, e.pidNS, e.mnt)
	old, known := w.mounts[e.pid]
	if !known && len(w.mounts) >= maxProcesses {
		w.untracked++
		return
	}
	if e.parent != 0 {
		old = w.mounts[e.parent] // from whom it has its own
	}
	if old.ino != e.mnt || old.ino == 0 {
		old = mountNS{e.mnt, w.enter(&e)}
	}
	w.mounts[e.pid] = old
}

// enter is the life of a mount namespace that a process comes into from
// another one. It is a new one if nobody is there who was before: also where he
// has left just now, which costs looking at files once more.
func (w *sidebandWalker) enter(e *nsChange) uint32 {
	l := w.mountNSStates[e.mnt]
	switch {
	case l == nil:
		if len(w.mountNSStates) >= maxMountNS {
			clear(w.mountNSStates)
			w.lastGeneration++
			w.firstGeneration = w.lastGeneration
		}
		l = &mountNSState{generation: w.firstGeneration}
		w.mountNSStates[e.mnt] = l
	case !e.live || e.mnt == w.buildIDs.hostMnt || w.inMountNS(l.member, e.mnt):
		return l.generation
	default:
		w.lastGeneration++
		l.generation = w.lastGeneration
	}
	l.member = e.pid
	w.newMountNS++
	return l.generation
}

// inMountNS: the process is there, and in the mount namespace.
func (w *sidebandWalker) inMountNS(pid int32, mnt uint64) bool {
	now, err := w.buildIDs.fs.Proc(int(pid)).Namespace("mnt")
	return err == nil && now == mnt
}
