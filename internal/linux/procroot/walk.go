// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// rootTarget is what an operation waits for that opens the root of a process.
type rootTarget int

// Find finds the file at a path below the root of the process, without opening
// it and without asking a program that serves a file system: what the kernel has
// in memory is found at once, else the path is walked component by component. The
// caller closes the descriptor, which is an O_PATH one.
func (r *Root) Find(name string) (*sys.FD, error) {
	if err := r.op.WaitFor(rootTarget(r.proc.PID()), false); err != nil {
		return nil, err
	}
	root, err := sys.Open(r.proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return r.findBelow(root, name)
}

// findBelow is Find with the root opened, which stays the caller's.
func (r *Root) findBelow(root *sys.FD, name string) (*sys.FD, error) {
	fd, err := sys.FindCached(root, name)
	if !errors.Is(err, syscall.EAGAIN) {
		return fd, err
	}
	w := pathWalk{Root: r, dirs: []*sys.FD{root}}
	defer w.close()
	if err := w.walk(name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w.last().Dup()
}

// checkFile refuses a file on a pseudo file system, and notes what the operation
// may wait for.
func (r *Root) checkFile(fd *sys.FD) error {
	st, err := fd.Stat()
	if err != nil {
		return err
	}
	remote, err := r.mounts.check(r.proc, &st)
	if err != nil {
		return err
	}
	major, minor := sys.DeviceNumbers(st.Device)
	return r.op.WaitFor(device{major, minor}, remote)
}

const (
	// maxLinks is MAXSYMLINKS of linux/namei.h.
	maxLinks = 40
	// maxDepth bounds the directories that are open at once.
	maxDepth = 128
)

// pathWalk resolves a path as openat2 does with RESOLVE_IN_ROOT, one component
// after the other, and checks each file system before it is asked.
type pathWalk struct {
	*Root
	dirs  []*sys.FD // the root, and the files on the path from there
	links int
}

func (w *pathWalk) close() { w.truncate(1) }

func (w *pathWalk) last() *sys.FD { return w.dirs[len(w.dirs)-1] }

// truncate goes back to the first n files of the path.
func (w *pathWalk) truncate(n int) {
	for _, fd := range w.dirs[n:] {
		fd.Close()
	}
	w.dirs = w.dirs[:n]
}

// walk goes on from where it is, or from the root if name is absolute.
func (w *pathWalk) walk(name string) error {
	if path.IsAbs(name) {
		w.truncate(1)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			st, err := w.last().Stat()
			if err != nil {
				return err
			}
			if !st.IsDir() {
				return syscall.ENOTDIR
			}
			w.truncate(max(1, len(w.dirs)-1))
			continue
		}
		if err := w.step(part); err != nil {
			return err
		}
	}
	return nil
}

// step goes into the entry of the current directory. That may be the root of
// another file system, which is not asked for being found.
func (w *pathWalk) step(name string) error {
	here := w.last()
	if err := w.checkFile(here); err != nil {
		return err
	}
	fd, err := sys.OpenInRoot(here, name, sys.OPath|sys.ONofollow)
	if err != nil {
		return err
	}
	st, err := fd.Stat()
	switch {
	case err != nil:
	case st.IsLink():
		text := ""
		if text, err = fd.Readlink(); err == nil {
			fd.Close()
			if w.links++; w.links > maxLinks {
				return syscall.ELOOP
			}
			return w.walk(text)
		}
	case len(w.dirs) == maxDepth:
		err = syscall.ENAMETOOLONG
	default:
		w.dirs = append(w.dirs, fd)
		return nil
	}
	fd.Close()
	return err
}
