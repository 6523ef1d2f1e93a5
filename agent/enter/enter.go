// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package enter runs a program in a running container as the container's runtime
// would, with the broker behind its perf_event_open.
//
// Start with Open, which looks at a process of the container, and Container.Start.
// The program gets the container's namespaces, cgroups, root, environment, and no
// capability that the container does not have. What it does not get is the seccomp
// filter of the container, which nobody can copy: one like the runtimes' default
// profile stands in its place.
package enter

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/agent/tracing"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/helper/join"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Container is a container that runs, seen through one of its processes.
type Container struct {
	pid     int
	proc    procfs.Proc
	pidfd   *sys.FD
	root    *sys.FD
	status  procfs.Status
	cgroups []procfs.Cgroup
	// namespaces are the flags of those that differ from ours.
	namespaces int
	userns     bool
}

// namespaceFlags are CLONE_NEW* by the names of /proc/PID/ns.
var namespaceFlags = map[string]int{
	"mnt": syscall.CLONE_NEWNS, "cgroup": 0x02000000, "uts": syscall.CLONE_NEWUTS, "ipc": syscall.CLONE_NEWIPC,
	"user": syscall.CLONE_NEWUSER, "pid": syscall.CLONE_NEWPID, "net": syscall.CLONE_NEWNET, "time": 0x80,
}

// ErrEnded says that the container ended.
var ErrEnded = errors.New("the container has ended")

// Open looks at the container of the process pid, mostly its first one.
func Open(pid int) (*Container, error) {
	c := &Container{pid: pid, proc: procfs.New("").Proc(pid)}
	var err error
	if c.pidfd, err = sys.PidfdOpen(pid); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	if err := c.look(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// What was read is of the process that the pidfd holds.
	if alive, err := sys.PidfdAlive(c.pidfd); err != nil || !alive {
		return nil, errors.Join(ErrEnded, err, c.Close())
	}
	return c, nil
}

func (c *Container) look() (err error) {
	if c.root, err = sys.Open(c.proc.RootPath(), syscall.O_DIRECTORY|syscall.O_RDONLY); err != nil {
		return err
	}
	if c.status, err = c.proc.Status(); err != nil {
		return err
	}
	if c.cgroups, err = c.proc.Cgroups(); err != nil {
		return err
	}
	self := procfs.New("").Self()
	for name, flag := range namespaceFlags {
		theirs, err := c.proc.Namespace(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // the kernel has none of this kind
		}
		if err != nil {
			return err
		}
		ours, err := self.Namespace(name)
		if err != nil {
			return err
		}
		if ours != theirs {
			c.namespaces |= flag
		}
	}
	c.userns = c.namespaces&syscall.CLONE_NEWUSER != 0
	return nil
}

// Close releases the container.
func (c *Container) Close() error { return errors.Join(c.pidfd.Close(), c.root.Close()) }

// PID is the process by which the container is seen.
func (c *Container) PID() int { return c.pid }

// Command is what to run in a container.
type Command struct {
	// Args are the program and its arguments; the program is searched in the
	// container's PATH.
	Args []string
	// Env are variables NAME=VALUE in front of the container's own.
	Env []string
	// User is "USER" or "USER:GROUP", by name or number; "" is the container's.
	User string
	// Dir is where it starts; "" is the container's.
	Dir string
	// Tracing is a mount with a tracing directory that the program sees, or nil.
	Tracing *sys.FD
	// Terminal makes Stdin the program's terminal.
	Terminal              bool
	Stdin, Stdout, Stderr *os.File
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Start starts a program in the container and returns the listener of its
// perf_event_open, which is the caller's.
func (c *Container) Start(cmd *Command) (*join.Process, *sys.FD, error) {
	p, err := c.program(cmd)
	if err != nil {
		return nil, nil, err
	}
	j, err := join.Start(c.pidfd, c.root, p)
	if err != nil {
		return nil, nil, err
	}
	if err = c.addToCgroups(j.PID); err == nil {
		var listener *sys.FD
		if listener, err = j.Run(); err == nil {
			return j, listener, nil
		}
	}
	return nil, nil, errors.Join(err, j.Close())
}

func (c *Container) program(cmd *Command) (*join.Program, error) {
	if len(cmd.Args) == 0 || cmd.Args[0] == "" {
		return nil, hint.Wrap(errors.New("no program to run"),
			"put it behind the container: gantry exec CONTAINER -- perf stat -a")
	}
	for _, s := range append(append([]string{cmd.Dir, cmd.User}, cmd.Args...), cmd.Env...) {
		if strings.ContainsRune(s, 0) {
			return nil, fmt.Errorf("%q: %w", s, syscall.EINVAL)
		}
	}
	u, err := c.user(cmd.User)
	if err != nil {
		return nil, err
	}
	p := &join.Program{
		Args: cmd.Args, UID: u.uid, GID: u.gid, Groups: u.groups, Dir: cmd.Dir,
		Bounding: sys.Capabilities(c.status.CapBnd), Inheritable: sys.Capabilities(c.status.CapInh),
		NoNewPrivs: c.status.NoNewPrivs, Namespaces: c.namespaces,
		Terminal: cmd.Terminal, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
	}
	switch {
	case u.uid == 0:
		p.Permitted = p.Bounding
	case cmd.User == "":
		p.Permitted, p.Ambient = sys.Capabilities(c.status.CapAmb), sys.Capabilities(c.status.CapAmb)
	}
	if p.Dir == "" {
		if p.Dir, err = os.Readlink(c.proc.Path("cwd")); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
	if cmd.Tracing != nil {
		p.Tracing, p.TracingDir = cmd.Tracing, tracing.Dir
	}
	if p.Env, err = c.environment(cmd, u); err != nil {
		return nil, err
	}
	p.Paths = candidates(cmd.Args[0], p.Env)
	p.Filter, p.FilterLen, err = newFilter(isConfined(c.status.Seccomp, p.Bounding))
	if err != nil {
		return nil, err
	}
	p.Label, p.LabelFile = c.label()
	return p, nil
}

// candidates are the files that a program's name may mean.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	var list []string
	for _, e := range env {
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok {
			for dir := range strings.SplitSeq(dirs, ":") {
				list = append(list, path.Join("/", dir, name))
			}
			break
		}
	}
	return list
}

// maxEnvironment bounds the environment of a container, in bytes.
const maxEnvironment = 1 << 20

// environment is that of the container's process, with the command's in front.
func (c *Container) environment(cmd *Command, u *user) ([]string, error) {
	text, err := os.ReadFile(c.proc.Path("environ"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEnded, err)
	}
	env := append([]string(nil), cmd.Env...)
	have := make(map[string]bool)
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		have[name] = true
	}
	add := func(e string) {
		name, _, ok := strings.Cut(e, "=")
		if ok && name != "" && !have[name] {
			have[name] = true
			env = append(env, e)
		}
	}
	if cmd.Tracing != nil {
		add(tracing.Env + "=" + tracing.Dir)
	}
	if cmd.User != "" {
		add("HOME=" + u.home)
	}
	if len(text) <= maxEnvironment {
		for e := range bytes.SplitSeq(text, []byte{0}) {
			add(string(e))
		}
	}
	add("PATH=" + defaultPath)
	add("HOME=" + u.home)
	return env, nil
}

// label is what the security module is told to run the program as: the label of
// the container's process.
func (c *Container) label() (text, file string) {
	current, err := os.ReadFile(c.proc.Path("attr/current"))
	if err != nil {
		return "", "" // no security module with labels
	}
	label, _, _ := strings.Cut(strings.TrimRight(string(current), "\x00\n"), " (")
	switch {
	case label == "" || label == "unconfined":
		return "", ""
	case strings.Contains(label, ":"): // SELinux: user:role:type:level
		return label, "/proc/self/attr/exec"
	}
	return "exec " + label, "/proc/self/attr/exec"
}

// addToCgroups moves a process to the cgroups of the container, of all hierarchies
// that are mounted.
func (c *Container) addToCgroups(pid int) error {
	trees, err := procfs.New("").CgroupTrees()
	if err != nil {
		return err
	}
	for i := range trees.Trees {
		t := &trees.Trees[i]
		own := t.Of(c.cgroups)
		if own == nil {
			continue
		}
		dir, err := t.Dir(own.Path)
		if err != nil {
			continue // it is mounted elsewhere; the process stays where we are
		}
		err = os.WriteFile(path.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil {
			return hint.Wrap(fmt.Errorf("join the container's cgroup: %w", err),
				"gantry exec runs as root on the host, with the cgroups of the host writable")
		}
	}
	return nil
}
