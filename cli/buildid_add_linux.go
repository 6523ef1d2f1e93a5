// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// containerRoot opens files below the root directory of a container's process.
type containerRoot struct {
	proc procfs.Proc // whose mounts count
	root *sys.FD
	name string
}

// errNoProcess: there is a container, but nothing runs in it.
var errNoProcess = errors.New("no process of it can be looked into")

// containerOpener finds the one container that sel means and opens its root.
func containerOpener(ctx context.Context, stderr io.Writer, sel string) (closableOpener, error) {
	r, err := container.NewResolver(nil)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	warnings := r.Refresh(ctx)
	found, err := r.Table().Select(sel)
	if errors.Is(err, container.ErrNoMatch) {
		err = hint.Wrap(err, nearContainers(r.Table(), sel))
	}
	if err != nil {
		warnContainers(stderr, warnings)
		return nil, blindError(err, warnings)
	}
	if len(found) > 1 {
		return nil, hint.Wrap(fmt.Errorf("%q means %d containers", sel, len(found)), "give the id of one; 'gantry containers' lists them")
	}
	root, err := openContainerRoot(r, found[0])
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("container %q: %w", sel, err), "run as root, while the container runs")
	}
	root.name = sel
	return root, nil
}

// openContainerRoot opens the root directory of the container's first process,
// or of another one in it.
func openContainerRoot(r *container.Resolver, c *container.Container) (*containerRoot, error) {
	pids := []int{c.PID}
	if c.PID == 0 {
		var err error
		if pids, err = (procfs.FS{}).PIDs(); err != nil {
			return nil, err
		}
	}
	failed := errNoProcess
	for _, pid := range pids {
		proc := procfs.FS{}.Proc(pid)
		root, err := sys.Open(proc.RootPath(), sys.OPath|sys.ODirectory)
		if err != nil {
			failed = fmt.Errorf("%w: %w", errNoProcess, err)
			continue
		}
		// Asked after the root was opened: the pid may be another's by now.
		if inContainer(r, c, pid) {
			return &containerRoot{proc: proc, root: root}, nil
		}
		root.Close()
	}
	return nil, failed
}

// inContainer says whether a process is the container's first, or one of those
// in it.
func inContainer(r *container.Resolver, c *container.Container, pid int) bool {
	if pid == c.PID {
		st, err := procfs.FS{}.Proc(pid).Stat()
		return err == nil && st.Start() == c.StartTime
	}
	task, err := r.Task(pid)
	if err != nil {
		return false
	}
	if c.CgroupID != 0 {
		return r.Table().ByCgroup(task.Cgroup) == c
	}
	return r.Table().ByNamespaces(task.Namespaces) == c
}

// Close closes the root.
func (c *containerRoot) Close() error { return c.root.Close() }

// errMadeUp is a file on a file system that has no files of its own, or whose
// reader would wait for a program.
var errMadeUp = errors.New("on a file system that the kernel or a program makes up")

// Open opens the regular file at path below the root. Nothing but a regular file
// is opened, for opening a device acts and a FIFO waits.
func (c *containerRoot) Open(path string) (*os.File, error) {
	fd, err := sys.OpenInRoot(c.root, path, sys.OPath)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.name, err)
	}
	defer fd.Close()
	var file *sys.FD
	if err = c.checkMount(fd); err == nil {
		file, err = sys.OpenRegular(fd)
	}
	if err != nil {
		return nil, fmt.Errorf("container %q: %s: %w", c.name, path, err)
	}
	return file.File(path), nil
}

// checkMount refuses what is on a made-up file system: a program that serves
// one may never answer, and /proc/kcore is a regular file. It asks the kernel
// for the mount, not the file system for its type, which FUSE would pass on.
func (c *containerRoot) checkMount(fd *sys.FD) error {
	info, err := os.ReadFile("/proc/self/fdinfo/" + fd.String())
	if err != nil {
		return err
	}
	id := -1
	for line := range strings.Lines(string(info)) {
		if text, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			if id, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
				return fmt.Errorf("mount of the file: %w", err)
			}
		}
	}
	mounts, err := c.proc.Mounts()
	if err != nil {
		return fmt.Errorf("mounts of process %d: %w", c.proc.PID(), err)
	}
	// A process that was only chrooted does not see the mount it is in.
	if own, err := (procfs.FS{}).Self().Mounts(); err == nil {
		mounts = append(mounts, own...)
	}
	for i := range mounts {
		if m := &mounts[i]; m.ID == id {
			if madeUp(m.Type) {
				return fmt.Errorf("%w: %s", errMadeUp, m.Type)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: an unknown one", errMadeUp)
}

// madeUp says whether files of such a file system are made up while they are
// read.
func madeUp(fstype string) bool {
	switch fstype {
	case "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "selinuxfs", "smackfs", "bpf",
		"pstore", "configfs", "efivarfs", "binfmt_misc", "nsfs", "autofs", "resctrl", "fuse", "fuseblk":
		return true
	}
	return strings.HasPrefix(fstype, "fuse.")
}
