// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// FileState changes when a file is written to. The zero value is none.
type FileState struct {
	dev, size    uint64
	sec, nanosec int64 // ctime, which no one but the kernel sets
}

// Served says whether a program serves the file system (FUSE) of the file that
// proc has mapped. Such a file is not looked at.
func (r *IDReader) Served(proc procfs.Proc, m *perf.Mmap2) bool {
	return r.types.served(proc, device{m.Maj, m.Min}, m.Filename)
}

// State looks at the file that has the mapping's path in the root of proc. It
// is zero if there is none, or another file. The file is not opened, only
// found, and no descriptor is kept: that would keep its file system mounted.
func (r *IDReader) State(proc procfs.Proc, m *perf.Mmap2) FileState {
	if strings.HasSuffix(m.Filename, deletedSuffix) {
		return FileState{}
	}
	fd, err := findAtPath(proc, m.Filename)
	if err != nil {
		return FileState{}
	}
	defer fd.Close()
	st, err := fd.Stat()
	return stateOf(&st, m, err)
}

// OwnState is State in the root of this process, at less cost.
func (r *IDReader) OwnState(m *perf.Mmap2) FileState {
	st, err := sys.Lstat(m.Filename)
	return stateOf(&st, m, err)
}

func stateOf(st *sys.Stat, m *perf.Mmap2, err error) FileState {
	if err != nil || st.Inode != m.Ino {
		return FileState{}
	}
	return FileState{dev: st.Device, size: st.Size, sec: st.CtimeSec, nanosec: st.CtimeNsec}
}

// deletedSuffix is what the kernel puts behind the path of a mapped file that
// has none any more.
const deletedSuffix = " (deleted)"

// findAtPath finds what has the path below the root of proc, without opening
// it. The caller closes the descriptor.
func findAtPath(proc procfs.Proc, path string) (*sys.FD, error) {
	root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return sys.OpenInRoot(root, path, sys.OPath)
}
