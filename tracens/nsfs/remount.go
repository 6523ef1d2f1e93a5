// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// A server that ends leaves mounts behind which nobody answers: the directory, and what of
// it containers have mounted. The next server puts its own in their places. What tells that
// a mount is of the server before is the number of its device, which is not given again as
// long as one such mount is there: the directory's, which stays until then.

const fsType = "fuse.tracens"

// deadMount is the mount of a server that ended.
type deadMount struct {
	major, minor uint32
	hold         *sys.FD // keeps the number of the device from being given again
}

func (d *deadMount) close() {
	if d != nil {
		_ = d.hold.Close() // of no file
	}
}

// takeOver makes the directory, and takes away what a server that ended has left there: it
// returns that, nil if there is nothing.
func (f *FS) takeOver() (dead *deadMount, err error) {
	// mountinfo has the names that symbolic links lead to.
	if err := os.MkdirAll(filepath.Dir(f.dir), 0o755); err != nil {
		return nil, err
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(f.dir))
	if err != nil {
		return nil, err
	}
	f.dir = filepath.Join(parent, filepath.Base(f.dir))
	for {
		m, err := mountAt(f.dir)
		if m == nil && err == nil {
			err = os.MkdirAll(f.dir, 0o755)
			if err == nil {
				return dead, nil
			}
		}
		if err == nil {
			var next *deadMount
			if next, err = takeAway(f.dir, m); err == nil {
				dead.close()
				dead = next
			}
		}
		if err != nil {
			dead.close()
			return nil, err
		}
	}
}

// takeAway unmounts what nobody answers for.
func takeAway(dir string, m *procfs.Mount) (*deadMount, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); !errors.Is(err, syscall.ENOTCONN) {
		return nil, hint.Wrap(fmt.Errorf("tracing namespaces at %s: %w", dir, syscall.EBUSY),
			"another gantry serves them: end it, or name another directory")
	}
	hold, err := sys.Open(dir, sys.OPath)
	if err != nil {
		return nil, err
	}
	if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
		err = hint.Wrap(fmt.Errorf("unmount %s, whose server ended: %w", dir, err), "umount -l "+dir)
		return nil, errors.Join(err, hold.Close())
	}
	return &deadMount{m.Major, m.Minor, hold}, nil
}

// mountAt is the mount of tracing namespaces on a directory, nil if it has none.
func mountAt(dir string) (*procfs.Mount, error) {
	list, err := procfs.New("").Self().Mounts()
	if err != nil {
		return nil, err
	}
	var top *procfs.Mount
	for i := range list {
		if list[i].Point == dir {
			top = &list[i]
		}
	}
	if top == nil || top.Type != fsType {
		return nil, nil
	}
	return top, nil
}

// use is a mount of the file system elsewhere than at its directory.
type use struct {
	pid int // a process that sees it
	procfs.Mount
}

// copied reports whether it is the directory itself: a mount namespace begins with a copy of
// all mounts, whether somebody needs them there or not.
func (u *use) copied() bool { return u.Root == "/" }

// uses finds the mounts of a device in all mount namespaces, but one at a directory here.
func uses(major, minor uint32, dir string) ([]use, error) {
	fsys := procfs.New("")
	ours, err := fsys.Self().Namespace("mnt")
	if err != nil {
		return nil, err
	}
	pids, err := fsys.PIDs()
	if err != nil {
		return nil, err
	}
	var found []use
	seen := make(map[uint64]bool)
	for _, pid := range pids {
		ns, err := fsys.Proc(pid).Namespace("mnt")
		if err != nil || seen[ns] {
			continue // it has ended
		}
		mounts, err := fsys.Proc(pid).Mounts()
		if err != nil || len(mounts) == 0 {
			continue
		}
		seen[ns] = true
		for _, m := range mounts {
			if m.Major == major && m.Minor == minor && m.Type == fsType && (ns != ours || m.Point != dir) {
				found = append(found, use{pid, m})
			}
		}
	}
	return found, nil
}

// remountTime is how long one mount may take: the path to it may lead through a file system
// of the container's own, which does not answer.
const remountTime = time.Second

// replace puts mounts of this server where dead ones are, and says of which it could not.
func (f *FS) replace(dead *deadMount) error {
	list, err := uses(dead.major, dead.minor, f.dir)
	if err != nil {
		return err
	}
	var wait sync.WaitGroup
	for _, u := range list {
		wait.Go(func() {
			if err := f.replaceOne(&u); err != nil && !u.copied() {
				f.log.Printf("process %d has a mount of the server before at %s: %v; start its container anew",
					u.pid, u.Point, err)
			}
		})
	}
	wait.Wait()
	return nil
}

// errEndedNamespace says that a mount is of a namespace that has been removed.
var errEndedNamespace = errors.New("its namespace was removed")

// source is the directory that a mount is to be of.
func (f *FS) source(root string) (string, error) {
	parts := strings.Split(strings.Trim(path.Clean(root), "/"), "/")
	switch {
	case strings.HasSuffix(root, "//deleted"):
		return "", errEndedNamespace
	case root == "/":
		return f.dir, nil
	case len(parts) > 2 || len(parts) == 2 && parts[1] != rootName:
		return "", fmt.Errorf("%s is neither a namespace nor its %s/: %w", root, rootName, syscall.EINVAL)
	}
	if _, err := f.registry.Find(parts[0]); err != nil {
		return "", errEndedNamespace
	}
	return filepath.Join(append([]string{f.dir}, parts...)...), nil
}

// replaceOne replaces one mount.
func (f *FS) replaceOne(u *use) error {
	dir, err := f.source(u.Root)
	if err != nil {
		return err
	}
	proc := procfs.New("").Proc(u.pid)
	ns, err := sys.Open(proc.Path("ns/mnt"), 0)
	if err != nil {
		return err
	}
	root, err := sys.Open(proc.RootPath(), sys.OPath)
	if err != nil {
		return errors.Join(err, ns.Close())
	}
	with, err := sys.CloneMount(dir)
	if err != nil {
		return errors.Join(err, ns.Close(), root.Close())
	}
	done := make(chan error, 1)
	go func() {
		err := sys.SetMountOptions(with, u.Options)
		if err == nil {
			err = sys.ReplaceMount(ns, root, u.Point, uint64(u.ID), with)
		}
		done <- errors.Join(err, ns.Close(), root.Close(), with.Close())
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(remountTime):
		return fmt.Errorf("%s does not answer: %w", u.Point, syscall.ETIMEDOUT)
	}
}

// forgetRoot tells the kernel that the root/ of a namespace is no more which was removed: a
// mount of it is then marked as deleted, and not taken for one of a namespace of that name.
func forgetRoot(space *fs.Inode) {
	_ = space.NotifyEntry(rootName) // it may know already
}

// Leave ends the service: the directory is unmounted, unless containers have namespaces of
// it mounted and the next server is to find them there. It returns how many mounts those are.
func (f *FS) Leave() (left int, err error) {
	if f.state != "" {
		m, err := mountAt(f.dir)
		if err == nil && m != nil {
			list, err := uses(m.Major, m.Minor, f.dir)
			list = slices.DeleteFunc(list, func(u use) bool { return u.copied() })
			if err == nil && len(list) > 0 {
				for _, ns := range f.registry.List() {
					f.rings.hangUp(ns)
				}
				return len(list), nil
			}
		}
	}
	return 0, f.Unmount()
}
