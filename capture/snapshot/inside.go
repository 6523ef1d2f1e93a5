// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrMadeUp is a file on a file system that has no files of its own, or whose
// reader would wait for a program.
var ErrMadeUp = errors.New("on a file system that the kernel or a program makes up")

// OpenInside opens the regular file at path below root, the root directory of
// proc, of whose mounts none that is made up is read, nor asked for what is in
// a directory on the way. Nothing but a regular file is opened, for opening a
// device acts and a FIFO waits.
func OpenInside(proc procfs.Proc, root *sys.FD, path string) (*os.File, error) {
	w := &way{types: new(mountTypes), proc: proc}
	fd, err := w.below(root, path)
	if err != nil {
		return nil, err
	}
	return w.regular(fd, path)
}

// OpenOnRoot opens the regular file at path on the very mount that is the root
// of proc. It waits for no program.
func OpenOnRoot(proc procfs.Proc, path string) (*os.File, error) {
	root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := checkMount(proc, root); err != nil {
		return nil, fmt.Errorf("root of process %d: %w", proc.PID(), err)
	}
	fd, err := sys.OpenInMount(root, path, sys.OPath)
	if err != nil {
		return nil, err
	}
	return regular(fd, path)
}

// FindDir finds the directory name in the root directory of proc. Another file
// system may be mounted there, but none that is made up, and no link is
// followed, so that it waits for no program. The result is nil if there is none;
// it may also stand for something else than a directory, in which OpenIn finds
// nothing. The caller closes it.
func FindDir(proc procfs.Proc, name string) (*sys.FD, error) {
	root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mounts := mountsOf{proc: proc}
	if err := mounts.check(root); err != nil {
		return nil, fmt.Errorf("root of process %d: %w", proc.PID(), err)
	}
	dir, err := sys.OpenInRoot(root, name, sys.OPath|sys.ONofollow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := mounts.check(dir); err != nil {
		dir.Close()
		return nil, fmt.Errorf("/%s of process %d: %w", name, proc.PID(), err)
	}
	return dir, nil
}

// OpenIn opens the regular file name in dir, which FindDir found. A link is not
// followed, and nothing that is mounted in its place is opened.
func OpenIn(dir *sys.FD, name string) (*os.File, error) {
	fd, err := sys.OpenInMount(dir, name, sys.OPath|sys.ONofollow)
	if err != nil {
		return nil, err
	}
	return regular(fd, name)
}

// checkMount refuses what is on a made-up file system: a program that serves
// one may never answer, and /proc/kcore is a regular file. It asks the kernel
// for the mount, not the file system for its type, which FUSE would pass on.
func checkMount(proc procfs.Proc, fd *sys.FD) error { return (&mountsOf{proc: proc}).check(fd) }

// mountsOf are the mounts that a process sees, and those that this one does: a
// process that was only chrooted does not see the mount it is in. Both are read
// when they are needed.
type mountsOf struct {
	proc   procfs.Proc
	lists  [2][]procfs.Mount
	loaded [2]bool
}

// check is checkMount.
func (m *mountsOf) check(fd *sys.FD) error {
	id, err := mountID(fd)
	if err != nil {
		return err
	}
	for i, proc := range []procfs.Proc{m.proc, procfs.FS{}.Self()} {
		if !m.loaded[i] {
			if m.lists[i], err = proc.Mounts(); err != nil {
				return fmt.Errorf("mounts of process %d: %w", proc.PID(), err)
			}
			m.loaded[i] = true
		}
		for j := range m.lists[i] {
			switch mount := &m.lists[i][j]; {
			case mount.ID != id:
			case madeUp(mount.Type):
				return fmt.Errorf("%w: %s", ErrMadeUp, mount.Type)
			default:
				return nil
			}
		}
	}
	return fmt.Errorf("%w: an unknown one", ErrMadeUp)
}

// mountID is the mount that an open file is on (proc_pid_fdinfo(5)).
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

// madeUp says whether files of such a file system are made up while they are
// read.
func madeUp(fstype string) bool {
	switch fstype {
	case "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "selinuxfs", "smackfs", "bpf",
		"pstore", "configfs", "efivarfs", "binfmt_misc", "nsfs", "autofs", "resctrl":
		return true
	}
	return isFUSE(fstype)
}
