// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// CommandError says why a command could not be run.
type CommandError struct {
	Name string
	Err  error
}

func (e *CommandError) Error() string { return fmt.Sprintf("run %q: %v", e.Name, e.Err) }

// Unwrap gives exec.ErrNotFound, fs.ErrPermission and so on to errors.Is.
func (e *CommandError) Unwrap() error { return e.Err }

// ExitCode is what a shell answers in its place: 127 for a command that is
// not there, 126 for one that cannot be executed.
func (e *CommandError) ExitCode() int {
	if errors.Is(e.Err, fs.ErrNotExist) || errors.Is(e.Err, exec.ErrNotFound) {
		return 127
	}
	return 126
}

// workload is the recorded command.
type workload struct {
	cmd   *exec.Cmd
	pidfd *sys.FD
	// running is the process from its start until it has been waited for.
	running atomic.Pointer[os.Process]
	// asked: it was signalled to end, because the recording has.
	asked bool
}

// newWorkload finds the command, without running it.
func newWorkload(c *Command) (*workload, error) {
	if len(c.Args) == 0 {
		return nil, fmt.Errorf("run command: %w: no command", os.ErrInvalid)
	}
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return nil, commandError(c.Args[0], err)
	}
	return &workload{cmd: &exec.Cmd{
		Path: path, Args: c.Args, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr,
	}}, nil
}

func commandError(name string, err error) error {
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	e := &CommandError{Name: name, Err: err}
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return hint.Wrap(e, "check the spelling and PATH; options of gantry go before the command")
	case errors.Is(err, fs.ErrNotExist):
		return hint.Wrap(e, "check the path; a script's interpreter must exist too")
	case errors.Is(err, fs.ErrPermission):
		return hint.Wrap(e, "make it executable: chmod +x, or check that its file system is not mounted noexec")
	}
	return hint.Wrap(e, "is it a program for this machine? see 'file "+name+"'")
}

// start runs the command on this thread, of which it inherits the events.
func (w *workload) start() error {
	raw := -1
	w.cmd.SysProcAttr = &syscall.SysProcAttr{PidFD: &raw}
	if err := w.cmd.Start(); err != nil {
		return commandError(w.cmd.Args[0], err)
	}
	w.running.Store(w.cmd.Process)
	var err error
	if raw >= 0 {
		w.pidfd, err = sys.NewFD(raw)
	} else {
		w.pidfd, err = sys.PidfdOpen(w.cmd.Process.Pid)
	}
	if err != nil {
		return fmt.Errorf("watch command: %w", err)
	}
	return nil
}

// ChildStatus is how a recorded command ended.
type ChildStatus struct {
	Ran  bool
	Code int // as a shell has it: 128 and the signal's number if one killed it
	// Stopped: it was signalled to end because the recording did.
	Stopped bool
}

// finish waits for the command; one that still runs is signalled first, as
// perf does.
func (w *workload) finish() ChildStatus {
	if w.cmd.Process == nil {
		return ChildStatus{}
	}
	if alive, err := sys.PidfdAlive(w.pidfd); err == nil && alive {
		w.asked = true
		w.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	}
	w.cmd.Wait() // its error is the status that follows
	w.running.Store(nil)
	st := ChildStatus{Ran: true, Code: w.cmd.ProcessState.ExitCode(), Stopped: w.asked}
	if ws, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		st.Code = 128 + int(ws.Signal())
	}
	return st
}

// close kills a command that still runs.
func (w *workload) close() error {
	if w.cmd.Process != nil && w.cmd.ProcessState == nil {
		w.cmd.Process.Kill()
		w.cmd.Wait()
		w.running.Store(nil)
	}
	return w.pidfd.Close()
}

// CommandRuns reports whether the command was started and has not been waited
// for. It may be called from any goroutine.
func (r *Recorder) CommandRuns() bool { return r.child != nil && r.child.running.Load() != nil }

// KillCommand ends a command that does not heed SIGTERM, for which Run waits at
// its end. It may be called from any goroutine.
func (r *Recorder) KillCommand() {
	if r.child == nil {
		return
	}
	if p := r.child.running.Load(); p != nil {
		p.Kill() // an error means that it has ended
	}
}

// startChild runs the command and waits for its end in the poller.
func (r *Recorder) startChild() error {
	if err := r.child.start(); err != nil {
		return err
	}
	return r.poll.Add(r.child.pidfd, childID)
}
