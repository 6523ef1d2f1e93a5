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
// is zero if there is none, or another file, or none is found in time. The file is
// not opened, only found, and no descriptor is kept: that would keep its file
// system mounted.
func (r *IDReader) State(proc procfs.Proc, m *perf.Mmap2) FileState {
	if strings.HasSuffix(m.Filename, deletedSuffix) {
		return FileState{}
	}
	var state FileState
	asked := *m
	if !r.errands.run(proc, func(x *errand) {
		fd, err := (&way{r.types, proc, x}).find(asked.Filename)
		state = stateOf(fd, &asked, err)
	}) {
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
