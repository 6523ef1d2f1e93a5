// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
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
	found, err := r.Table().Select(container.ByName(sel))
	if errors.Is(err, container.ErrNoMatch) {
		err = hint.Wrap(err, nearContainers(r.Table(), sel))
	}
	if err != nil {
		warnContainers(stderr, warnings)
		return nil, blindError(err, warnings)
	}
	if len(found) > 1 {
		return nil, hint.Wrap(fmt.Errorf("%q means %d containers", sel, len(found)),
			"give the id of one; 'gantry containers' lists them")
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

// inContainer reports whether a process is the container's first, or one of those
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

// Open opens the regular file at path below the root.
func (c *containerRoot) Open(path string) (*os.File, error) {
	file, err := procroot.OpenBelow(c.proc, c.root, path)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.name, err)
	}
	return file, nil
}
