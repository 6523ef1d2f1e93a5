// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrPseudoFile is a file on a file system that has no files of its own, or whose
// reader would wait for a program.
var ErrPseudoFile = errors.New("on a file system that the kernel or a program makes up")

// device is the device number of a file system, as a mapping has it.
type device struct{ major, minor uint32 }

// mountTable knows the type of each mounted file system, by device and by mount.
//
// It forgets everything after mountTableAge, because the kernel reuses the
// numbers of devices and mounts. It may be used by several goroutines.
type mountTable struct {
	mu      sync.Mutex
	devices map[device]string // the type of the file system
	mounts  map[uint64]string
	own     bool // the mounts that this process sees have been read
	since   time.Time
}

const (
	// mountTableAge is how long entries are believed. It costs reading
	// mountinfo once where files are looked up.
	mountTableAge = time.Second
	// maxMounts bounds the mounts that are remembered.
	maxMounts = 1 << 17
)

// onFUSE reports whether a program serves the device from which proc has mapped
// the file at path. A device that is not found counts as such: its file system
// was unmounted, or is mounted elsewhere only.
func (t *mountTable) onFUSE(proc procfs.Proc, dev device, path string) bool {
	if strings.HasPrefix(path, "/memfd:") {
		return false // memory, mounted nowhere
	}
	fstype, known := t.typeOf(proc, func() (string, bool) {
		fstype, known := t.devices[dev]
		return fstype, known
	})
	return !known || isFUSE(fstype)
}

// check refuses a file on a pseudo file system: a program that serves one may
// never answer, and /proc/kcore is a regular file. st is the file's, which is
// below the root of proc. remote tells that a server elsewhere has the file. A
// mount that is not found is taken for an ordinary one: mapped files were asked
// about by their device before.
func (t *mountTable) check(proc procfs.Proc, st *sys.Stat) (remote bool, err error) {
	major, minor := sys.DeviceNumbers(st.Device)
	fstype, known := t.typeOf(proc, func() (string, bool) {
		fstype, known := t.mounts[st.Mount]
		if st.Mount == 0 {
			fstype, known = t.devices[device{major, minor}]
		}
		return fstype, known
	})
	if known && isPseudo(fstype) {
		return false, fmt.Errorf("%w: %s", ErrPseudoFile, fstype)
	}
	return isRemote(fstype), nil
}

// typeOf looks up a type in the mounts that proc sees and then in those that
// this process does: a process in a chroot sees only the mounts below it.
func (t *mountTable) typeOf(proc procfs.Proc, look func() (string, bool)) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); now.Sub(t.since) > mountTableAge || len(t.mounts) > maxMounts {
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

// read adds the mounts that proc sees.
func (t *mountTable) read(proc procfs.Proc) {
	mounts, err := proc.Mounts()
	if err != nil {
		return
	}
	for _, m := range mounts {
		t.devices[device{m.Major, m.Minor}] = m.Type
		t.mounts[uint64(m.ID)] = m.Type
	}
}

// visibleMounts are the mounts that a process sees, and those that this one
// does: a process that was only chrooted does not see the mount it is in. Both
// are read when they are needed.
type visibleMounts struct {
	proc   procfs.Proc
	lists  [2][]procfs.Mount
	loaded [2]bool
}

// check refuses what is on a pseudo file system or an unknown mount. It asks the
// kernel for the mount, not the file system for its type, which FUSE would pass
// on to its program.
func (v *visibleMounts) check(fd *sys.FD) error {
	id, err := mountID(fd)
	if err != nil {
		return err
	}
	for i, proc := range []procfs.Proc{v.proc, procfs.FS{}.Self()} {
		if !v.loaded[i] {
			if v.lists[i], err = proc.Mounts(); err != nil {
				return fmt.Errorf("mounts of process %d: %w", proc.PID(), err)
			}
			v.loaded[i] = true
		}
		for j := range v.lists[i] {
			switch mount := &v.lists[i][j]; {
			case mount.ID != id:
			case isPseudo(mount.Type):
				return fmt.Errorf("%w: %s", ErrPseudoFile, mount.Type)
			default:
				return nil
			}
		}
	}
	return fmt.Errorf("%w: an unknown one", ErrPseudoFile)
}

// mountID returns the mount that an open file is on (proc_pid_fdinfo(5)).
func mountID(fd *sys.FD) (int, error) {
	info, err := os.ReadFile("/proc/self/fdinfo/" + fd.String())
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(text))
		}
	}
	return 0, errors.New("the kernel does not tell the mount of a file")
}

// isPseudo reports whether the files of such a file system are made while they
// are read.
func isPseudo(fstype string) bool {
	switch fstype {
	case "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "selinuxfs", "smackfs", "bpf",
		"pstore", "configfs", "efivarfs", "binfmt_misc", "nsfs", "autofs", "resctrl":
		return true
	}
	return isFUSE(fstype)
}

func isFUSE(fstype string) bool {
	return fstype == "fuse" || fstype == "fuseblk" || strings.HasPrefix(fstype, "fuse.")
}

// isRemote reports whether a server elsewhere has the files, which may be slow or
// gone.
func isRemote(fstype string) bool {
	switch fstype {
	case "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "afs", "coda", "lustre", "orangefs", "gfs2", "ocfs2":
		return true
	}
	return false
}
