// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// FileKey tells files apart. Device and inode alone do not: the subvolumes of
// a btrfs, one per container, show one device and the same inode numbers.
type FileKey struct {
	Major, Minor uint32
	Inode        uint64
	// Gen tells files apart that had the same inode one after the other; 0
	// where it is not known.
	Gen uint64
	// Mnt is the mount namespace of the process, 0: not known.
	Mnt  uint64
	Path string
}

// FileState changes when a file is written to. The zero value is none.
type FileState struct {
	dev, size    uint64
	sec, nanosec int64 // ctime, which no one but the kernel sets
}

// State looks at the file that has the mapping's path in the root of proc. It
// is zero if there is none, or another file, or none is found in time. The file is
// not opened, only found, and no descriptor is kept: that would keep its file
// system mounted.
func (r *IDReader) State(proc procfs.Proc, m *perf.Mmap2) FileState {
	if strings.HasSuffix(m.Filename, deletedSuffix) {
		return FileState{}
	}
	var state FileState
	asked := *m
	if r.access.Do(proc, func(op *procroot.Op) {
		fd, err := r.files.Root(proc, op).Find(asked.Filename)
		state = stateOf(fd, &asked, err)
	}) != nil {
		return FileState{}
	}
	return state
}

// OwnState is State in the root of this process, at less cost.
func (r *IDReader) OwnState(m *perf.Mmap2) FileState {
	if r.root == nil {
		root, err := sys.Open("/", sys.OPath|sys.ODirectory)
		if err != nil {
			return FileState{}
		}
		r.root = root
	}
	fd, err := sys.FindCached(r.root, m.Filename)
	if err != nil {
		return r.State(procfs.FS{}.Self(), m)
	}
	return stateOf(fd, m, nil)
}

// stateOf is the state of what was found, which it closes.
func stateOf(fd *sys.FD, m *perf.Mmap2, err error) FileState {
	if err != nil {
		return FileState{}
	}
	defer fd.Close()
	st, err := fd.Stat()
	if err != nil || st.Inode != m.Ino {
		return FileState{}
	}
	return FileState{dev: st.Device, size: st.Size, sec: st.CtimeSec, nanosec: st.CtimeNsec}
}

// deletedSuffix is what the kernel puts behind the path of a mapped file that
// has none any more.
const deletedSuffix = " (deleted)"
