// SPDX-License-Identifier: Apache-2.0

// Package binfile opens the binaries that package symbol asks for: below a
// directory that stands for "/" ([Root]), in the root of a running process
// ([Processes]), or in the build-id store ([Store]). A command chooses which of
// them a symbol.Resolver gets, and in which order. They also find the symbols
// that were stripped from a binary, where packages install them.
//
// Paths come from recordings and from containers, and lead to whatever their
// author likes. No opener here leaves its root, through ".." or a symbolic
// link; waits for a FIFO; or opens what is not a regular file. A file that
// cannot be told by its build-id must at least be the one that was mapped: it
// must be in the right mount namespace, and have the recorded inode number.
package binfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
)

var (
	_ symbol.DebugOpener = (*Root)(nil)
	_ symbol.DebugOpener = (*Processes)(nil)
	_ symbol.DebugOpener = (*Store)(nil)
)

// ErrNotRegular is returned for directories, devices, FIFOs and sockets.
var ErrNotRegular = errors.New("not a regular file")

const maxLinks = 40 // as the kernel

// Root opens files by their path below a directory.
type Root struct {
	root    *os.Root
	mountNS uint64
}

// OpenRoot makes a Root of a directory, "/" for the host's. Its paths are those
// of the mount namespace with the given inode number, 0 for the host's. The
// caller closes it.
func OpenRoot(dir string, mountNS uint64) (*Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open root of binaries: %w", err)
	}
	return &Root{root: root, mountNS: mountNS}, nil
}

// Close releases the directory. Open files stay open.
func (r *Root) Close() error { return r.root.Close() }

// Place is what reports call the files that Open finds.
func (r *Root) Place() string { return "path" }

// Open opens the file at the path of ref. Without a build-id to check, it must
// be of this mount namespace.
func (r *Root) Open(ref symbol.Ref) (symbol.File, int64, error) {
	if ref.BuildID.IsZero() && ref.MountNS != r.mountNS {
		return nil, 0, fmt.Errorf("open %s of another mount namespace: %w", ref.Path, fs.ErrNotExist)
	}
	return open(r.root, ref)
}

// OpenDebug opens the separate symbols that a package of this root has
// installed.
func (r *Root) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	return openDebug(r.root, ref.BuildID)
}

// Processes opens files by their path below the root directory of the process
// that had them mapped, while it runs.
type Processes struct {
	// Proc is where procfs is mounted; empty for /proc.
	Proc string
}

// Place is what reports call the files that Open finds.
func (p *Processes) Place() string { return "process" }

// Open opens the file at the path of ref, as its process sees it. As another
// process may have the number by now, there must be a build-id to check; else an
// inode number, and the mount namespace must be that of ref, if it is known.
func (p *Processes) Open(ref symbol.Ref) (symbol.File, int64, error) {
	if ref.BuildID.IsZero() && ref.Inode == 0 {
		return nil, 0, fmt.Errorf("open %s of process %d: %w", ref.Path, ref.PID, fs.ErrNotExist)
	}
	root, err := p.root(ref.PID)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	if ref.BuildID.IsZero() {
		if err := p.checkMountNS(ref); err != nil {
			return nil, 0, fmt.Errorf("open %s: %w", ref.Path, err)
		}
	}
	return open(root, ref)
}

// checkMountNS refuses a process that is in another mount namespace than that
// of ref, which tells that it is another process. Inode numbers do not: each
// file system has its own.
func (p *Processes) checkMountNS(ref symbol.Ref) error {
	if ref.MountNS == 0 {
		return nil
	}
	link, err := os.Readlink(filepath.Join(p.proc(), strconv.Itoa(int(ref.PID)), "ns/mnt"))
	if err != nil || link != fmt.Sprintf("mnt:[%d]", ref.MountNS) {
		return fmt.Errorf("process %d is in another mount namespace: %w", ref.PID, fs.ErrNotExist)
	}
	return nil
}

// OpenDebug opens the separate symbols that a package has installed in the root
// of the process.
func (p *Processes) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	root, err := p.root(ref.PID)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	return openDebug(root, ref.BuildID)
}

func (p *Processes) proc() string {
	if p.Proc == "" {
		return "/proc"
	}
	return p.Proc
}

// root opens the root directory of a process.
func (p *Processes) root(pid int32) (*os.Root, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("open root of process %d: %w", pid, fs.ErrNotExist)
	}
	root, err := os.OpenRoot(filepath.Join(p.proc(), strconv.Itoa(int(pid)), "root"))
	if err != nil {
		return nil, fmt.Errorf("open root of process %d: %w", pid, err)
	}
	return root, nil
}

// Store opens files by their build-id.
type Store struct {
	*buildid.Store
}

// Place is what reports call the files that Open finds.
func (s *Store) Place() string { return "store" }

// Open opens the file with the build-id of ref.
func (s *Store) Open(ref symbol.Ref) (symbol.File, int64, error) {
	return opened(s.Lookup(ref.BuildID))
}

// OpenDebug opens the separate symbols of the binary with the build-id of ref.
func (s *Store) OpenDebug(ref symbol.Ref) (symbol.File, int64, error) {
	return opened(s.LookupDebug(ref.BuildID))
}

func opened(f *os.File, size int64, err error) (symbol.File, int64, error) {
	if err != nil {
		if errors.Is(err, buildid.ErrMismatch) {
			err = fmt.Errorf("%w: %w", symbol.ErrMismatch, err)
		}
		return nil, 0, err
	}
	return f, size, nil
}

// debugDir is where packages of separate symbols install them.
const debugDir = "/usr/lib/debug/.build-id"

// openDebug opens the separate symbols below root of the binary with a build-id.
func openDebug(root *os.Root, id buildid.ID) (symbol.File, int64, error) {
	if id.Len() < 2 {
		return nil, 0, fmt.Errorf("open symbols of build-id %q: %w", id, fs.ErrNotExist)
	}
	text := id.String()
	return open(root, symbol.Ref{Path: path.Join(debugDir, text[:2], text[2:]+".debug"), BuildID: id})
}

// open opens the file of ref below root, following links as a process does
// whose root directory it is.
func open(root *os.Root, ref symbol.Ref) (symbol.File, int64, error) {
	if !strings.HasPrefix(ref.Path, "/") { // [vdso], [heap], anon_inode:x
		return nil, 0, fmt.Errorf("open %q: %w", ref.Path, fs.ErrNotExist)
	}
	name := "." + path.Clean(ref.Path)
	f, info, err := openRegular(root, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrNotRegular) {
		// A link to an absolute path leads out of root as os.Root sees it.
		if resolved, e := resolve(root, name); e == nil && resolved != name {
			f, info, err = openRegular(root, resolved)
		} else if e != nil {
			err = e
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", ref.Path, err)
	}
	if err := checkInode(ref, info); err != nil {
		f.Close()
		return nil, 0, fmt.Errorf("open %s: %w", ref.Path, err)
	}
	return f, info.Size(), nil
}

// openRegular opens a regular file. What it is is found out first, as opening a
// device can have effects; it is checked again, as it may have been replaced.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: %v", ErrNotRegular, info.Mode())
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err = f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %v", ErrNotRegular, info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// resolve returns the path that name has after following all links in it, as if
// root were "/".
func resolve(root *os.Root, name string) (string, error) {
	todo := strings.Split(name, "/")
	var done []string
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = done[:max(len(done)-1, 0)]
			continue
		}
		at := path.Join(path.Join(done...), part)
		info, err := root.Lstat(at)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = append(done, part)
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: name, Err: syscall.ELOOP}
		}
		target, err := root.Readlink(at)
		if err != nil {
			return "", err
		}
		if path.IsAbs(target) {
			done = nil
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return path.Join(".", path.Join(done...)), nil
}

// checkInode refuses a file that took the place of the recorded one. With a
// build-id, the content is checked instead.
func checkInode(ref symbol.Ref, info fs.FileInfo) error {
	if !ref.BuildID.IsZero() || ref.Inode == 0 {
		return nil
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Ino != ref.Inode {
		return fmt.Errorf("%w: its inode number is not %d", symbol.ErrMismatch, ref.Inode)
	}
	// Written to in place, or removed, and the inode's number is another file's.
	if changed := changeTime(st); ref.Unchanged != 0 && changed > ref.Unchanged {
		return fmt.Errorf("%w: it was changed after it was mapped", symbol.ErrMismatch)
	}
	return nil
}
