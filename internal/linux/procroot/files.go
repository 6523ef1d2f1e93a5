// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Files finds and opens files below the roots of processes. It remembers what is
// mounted, for a moment. Its zero value is ready; it may be used by several
// goroutines.
type Files struct{ mounts mountTable }

// Root returns the root directory of a process as seen by one operation of an
// Access; a nil op waits for as long as it takes.
func (f *Files) Root(proc procfs.Proc, op *Op) *Root {
	return &Root{mounts: &f.mounts, proc: proc, op: op}
}

// OnFUSE reports whether a program serves the file system of a file that proc has
// mapped, by its device and path. What cannot be found out counts as such.
func (f *Files) OnFUSE(proc procfs.Proc, major, minor uint32, path string) bool {
	return f.mounts.onFUSE(proc, device{major, minor}, path)
}

// Root is the root directory of a process.
type Root struct {
	mounts *mountTable
	proc   procfs.Proc
	op     *Op
}

// OpenMapped opens the regular file that the process has mapped from start to end:
// by map_files, which needs CAP_CHECKPOINT_RESTORE, or else by its path. The file
// at the path need not be what is mapped: look before use. The caller closes it.
func (r *Root) OpenMapped(start, end uint64, path string) (*os.File, error) {
	fd, err := sys.Open(r.proc.Path(fmt.Sprintf("map_files/%x-%x", start, end)), sys.OPath)
	if err == nil {
		return r.openFD(fd, path)
	}
	return r.Open(path)
}

// Open opens the regular file at a path. The caller closes it.
func (r *Root) Open(path string) (*os.File, error) {
	fd, err := r.Find(path)
	if err != nil {
		return nil, err
	}
	return r.openFD(fd, path)
}

// WaitForDevice says that the operation may wait for a file system.
func (r *Root) WaitForDevice(major, minor uint32) error {
	return r.op.WaitFor(device{major, minor}, false)
}

// openFD opens what fd stands for, unless it is on a pseudo file system, and
// closes fd.
func (r *Root) openFD(fd *sys.FD, path string) (*os.File, error) {
	if err := r.checkFile(fd); err != nil {
		fd.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return openRegular(fd, path)
}

// openRegular opens the regular file that fd stands for, and closes fd.
func openRegular(fd *sys.FD, path string) (*os.File, error) {
	defer fd.Close()
	file, err := sys.OpenRegular(fd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file.File(path), nil
}

// OpenBelow opens the regular file at a path below root, the root directory of
// proc, whose mounts count. The caller closes it.
func OpenBelow(proc procfs.Proc, root *sys.FD, path string) (*os.File, error) {
	r := new(Files).Root(proc, nil)
	fd, err := r.findBelow(root, path)
	if err != nil {
		return nil, err
	}
	return r.openFD(fd, path)
}

// OpenOnRootMount opens the regular file at a path on the very mount that is the
// root of proc. It waits for no program. The caller closes it.
func OpenOnRootMount(proc procfs.Proc, path string) (*os.File, error) {
	root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mounts := visibleMounts{proc: proc}
	if err := mounts.check(root); err != nil {
		return nil, fmt.Errorf("root of process %d: %w", proc.PID(), err)
	}
	fd, err := sys.OpenInMount(root, path, sys.OPath)
	if err != nil {
		return nil, err
	}
	return openRegular(fd, path)
}

// FindDir finds a directory in the root directory of proc. Another file system may
// be mounted there, but no pseudo one, and no link is followed, so that it waits
// for no program. The result is nil if there is none; it may also stand for
// something else than a directory, in which OpenIn finds nothing. The caller
// closes it.
func FindDir(proc procfs.Proc, name string) (*sys.FD, error) {
	root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	mounts := visibleMounts{proc: proc}
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
// followed, and nothing that is mounted in its place is opened. The caller closes
// it.
func OpenIn(dir *sys.FD, name string) (*os.File, error) {
	fd, err := sys.OpenInMount(dir, name, sys.OPath|sys.ONofollow)
	if err != nil {
		return nil, err
	}
	return openRegular(fd, name)
}
