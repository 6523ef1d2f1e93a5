// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Proc is a process or a thread, by number; nothing is held open, so that
// the number may come to mean another task between two calls. Compare
// Stat.StartTime where that matters.
type Proc struct {
	dir string
	fs  FS
	pid int
}

// Proc is the process (or thread) pid.
func (f FS) Proc(pid int) Proc {
	return Proc{dir: f.Path("proc", strconv.Itoa(pid)), fs: f, pid: pid}
}

// Self is the calling process.
func (f FS) Self() Proc {
	return Proc{dir: f.Path("proc/self"), fs: f, pid: os.Getpid()}
}

// Task is the thread tid of p.
func (p Proc) Task(tid int) Proc {
	return Proc{dir: p.dir + "/task/" + strconv.Itoa(tid), fs: p.fs, pid: tid}
}

// PID is the number p was made with.
func (p Proc) PID() int { return p.pid }

// FS is the root that p is below.
func (p Proc) FS() FS { return p.fs }

// Path is a file in the task's directory.
func (p Proc) Path(name string) string { return p.dir + "/" + name }

// RootPath is the directory through which the task's own file tree is seen.
func (p Proc) RootPath() string { return p.Path("root") }

// Tasks lists the threads of p.
func (p Proc) Tasks() ([]int, error) { return numbers(p.Path("task")) }

// Comm is the thread's name, as raw bytes: it may hold anything but NUL.
func (p Proc) Comm() (string, error) {
	b, err := readSmall(p.Path("comm"))
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b, []byte("\n"))), nil
}

// RootLink is where the task's root directory is, "/" unless chrooted.
func (p Proc) RootLink() (string, error) { return os.Readlink(p.Path("root")) }

// Stat reads the task's stat file.
func (p Proc) Stat() (Stat, error) { return parseFile(p.Path("stat"), ParseStat) }

// Status reads the task's status file.
func (p Proc) Status() (Status, error) { return parseFile(p.Path("status"), ParseStatus) }

// Cgroups reads the task's cgroup in each hierarchy.
func (p Proc) Cgroups() ([]Cgroup, error) { return parseFile(p.Path("cgroup"), ParseCgroups) }

// CgroupText is the text that Cgroups is read from: the same for tasks that are
// in the same cgroups.
func (p Proc) CgroupText() (string, error) {
	b, err := readSmall(p.Path("cgroup"))
	return string(b), err
}

// Mounts reads the mounts of the task's mount namespace.
func (p Proc) Mounts() ([]Mount, error) { return parseFile(p.Path("mountinfo"), ParseMountinfo) }

var errNSLink = errors.New("not a namespace link")

// Namespace is the inode number of a namespace of the task; kind is the name
// of the link in /proc/PID/ns, such as "mnt".
func (p Proc) Namespace(kind string) (uint64, error) {
	link, err := os.Readlink(p.Path("ns/" + kind))
	if err != nil {
		return 0, err
	}
	ino, err := parseNSLink(link)
	if err != nil {
		return 0, fmt.Errorf("parse %s: %w", p.Path("ns/"+kind), err)
	}
	return ino, nil
}

// parseNSLink takes the number out of "mnt:[4026531841]".
func parseNSLink(link string) (uint64, error) {
	_, num, ok := strings.Cut(link, ":[")
	if !ok || !strings.HasSuffix(num, "]") {
		return 0, fmt.Errorf("%q: %w", link, errNSLink)
	}
	ino, err := strconv.ParseUint(num[:len(num)-1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", link, errNSLink)
	}
	return ino, nil
}
