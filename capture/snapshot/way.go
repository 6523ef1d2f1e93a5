// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// way finds files below the root of a process without asking a program that
// serves a file system (FUSE) for anything: what the kernel has in memory it
// tells by itself, and where it has to ask, way goes step by step and looks
// first whom.
type way struct {
	types *mountTypes
	proc  procfs.Proc
	x     *errand // nil: whoever waits does so for as long as it takes
}

// rootOf is what an errand waits for that opens the root of a process.
type rootOf int

// find finds what has the path below the root of the process, without opening
// it. The caller closes the descriptor.
func (w *way) find(name string) (*sys.FD, error) {
	if err := w.x.waitsFor(rootOf(w.proc.PID()), false); err != nil {
		return nil, err
	}
	root, err := sys.Open(w.proc.RootPath(), sys.OPath|sys.ODirectory)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return w.below(root, name)
}

// below is find with the root opened, which stays the caller's.
func (w *way) below(root *sys.FD, name string) (*sys.FD, error) {
	fd, err := sys.FindCached(root, name)
	if !errors.Is(err, syscall.EAGAIN) {
		return fd, err
	}
	s := steps{way: w, at: []*sys.FD{root}}
	defer s.close()
	if err := s.walk(name); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s.at[len(s.at)-1].Dup()
}

// enter refuses to ask a made-up file system.
func (w *way) enter(fd *sys.FD) error {
	st, err := fd.Stat()
	if err != nil {
		return err
	}
	remote, err := w.types.check(w.proc, &st)
	if err != nil {
		return err
	}
	major, minor := sys.DeviceNumbers(st.Device)
	return w.x.waitsFor(device{major, minor}, remote)
}

const (
	// maxLinks is MAXSYMLINKS of linux/namei.h.
	maxLinks = 40
	// maxSteps bounds the directories that are open at once.
	maxSteps = 128
)

// steps walks as openat2 does with RESOLVE_IN_ROOT.
type steps struct {
	*way
	at    []*sys.FD // the root, and the way from there
	links int
}

func (s *steps) close() { s.up(1) }

// up goes back to the first n.
func (s *steps) up(n int) {
	for _, fd := range s.at[n:] {
		fd.Close()
	}
	s.at = s.at[:n]
}

// walk goes on from where it is, or from the root if name is absolute.
func (s *steps) walk(name string) error {
	if path.IsAbs(name) {
		s.up(1)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			st, err := s.at[len(s.at)-1].Stat()
			if err != nil {
				return err
			}
			if !st.IsDir() {
				return syscall.ENOTDIR
			}
			s.up(max(1, len(s.at)-1))
			continue
		}
		if err := s.step(part); err != nil {
			return err
		}
	}
	return nil
}

// step goes into what is called name where it is. That may be the root of
// another file system, which is not asked for being found.
func (s *steps) step(name string) error {
	here := s.at[len(s.at)-1]
	if err := s.enter(here); err != nil {
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
			if s.links++; s.links > maxLinks {
				return syscall.ELOOP
			}
			return s.walk(text)
		}
	case len(s.at) == maxSteps:
		err = syscall.ENAMETOOLONG
	default:
		s.at = append(s.at, fd)
		return nil
	}
	fd.Close()
	return err
}
