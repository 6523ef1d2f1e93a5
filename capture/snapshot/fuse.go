// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// device is a file system as a mapping names it.
type device struct{ major, minor uint32 }

// mountTypes knows which file systems are served by a program: reading from
// one waits for that program, which may be one that never answers.
//
// What it has learned it forgets after keepTypes, because the kernel gives the
// numbers of devices and mounts that are no more to the next ones. It may be used
// by several goroutines.
type mountTypes struct {
	mu      sync.Mutex
	devices map[device]string // the type of the file system
	mounts  map[uint64]string
	own     bool // the mounts that this process sees are known
	since   time.Time
}

const (
	// keepTypes is how long numbers are believed. It costs a reading of mountinfo
	// where files are found out about.
	keepTypes = time.Second
	// maxTypes bounds the mounts that are remembered.
	maxTypes = 1 << 17
)

// served says whether the device, on which proc has mapped the file at path, is
// such a file system. What cannot be found out counts as one: a file system
// that was unmounted since, or is mounted elsewhere only.
func (t *mountTypes) served(proc procfs.Proc, dev device, path string) bool {
	if strings.HasPrefix(path, "/memfd:") {
		return false // memory, mounted nowhere
	}
	fstype, known := t.typeOf(proc, func() (string, bool) {
		fstype, known := t.devices[dev]
		return fstype, known
	})
	return !known || isFUSE(fstype)
}

// check refuses a file on a made-up file system: a program that serves one may
// never answer, and /proc/kcore is a regular file. st is what the kernel says of
// the file, below the root of proc. It is told whether a server elsewhere has the
// file. A mount that nobody sees is none of those: what is
// mapped there was asked about by its device.
func (t *mountTypes) check(proc procfs.Proc, st *sys.Stat) (remote bool, err error) {
	major, minor := sys.DeviceNumbers(st.Device)
	fstype, known := t.typeOf(proc, func() (string, bool) {
		fstype, known := t.mounts[st.Mount]
		if st.Mount == 0 {
			fstype, known = t.devices[device{major, minor}]
		}
		return fstype, known
	})
	if known && madeUp(fstype) {
		return false, fmt.Errorf("%w: %s", ErrMadeUp, fstype)
	}
	return isRemote(fstype), nil
}

// typeOf looks up a type, in the mounts that proc sees and then in those that
// this process does: one in a chroot sees only the mounts below it.
func (t *mountTypes) typeOf(proc procfs.Proc, look func() (string, bool)) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.since) > keepTypes || len(t.mounts) > maxTypes {
		t.devices, t.mounts = make(map[device]string), make(map[uint64]string)
		t.own, t.since = false, now
	}
	fstype, known := look()
	if known {
		return fstype, true
	}
	t.read(proc)
	if fstype, known = look(); !known && !t.own {
		t.own = true
		t.read(proc.FS().Self())
		fstype, known = look()
	}
	return fstype, known
}

// read learns the mounts that proc sees.
func (t *mountTypes) read(proc procfs.Proc) {
	mounts, err := proc.Mounts()
	if err != nil {
		return
	}
	for _, m := range mounts {
		t.devices[device{m.Major, m.Minor}] = m.Type
		t.mounts[uint64(m.ID)] = m.Type
	}
}

func isFUSE(fstype string) bool {
	return fstype == "fuse" || fstype == "fuseblk" || strings.HasPrefix(fstype, "fuse.")
}

// isRemote says whether a server elsewhere has the files, which may be slow, or
// gone.
func isRemote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "afs", "coda", "lustre", "orangefs", "gfs2", "ocfs2":
		return true
	}
	return false
}
