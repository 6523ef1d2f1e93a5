// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// DefaultSeccompSocket is the listenerPath of containers' seccomp profiles.
const DefaultSeccompSocket = "/run/gantry/seccomp.sock"

// SupervisorOptions of Supervise.
type SupervisorOptions struct {
	// Seccomp is the path of the socket that container runtimes connect, Socket that
	// of the one that containers have mounted: its directory.
	Seccomp, Socket string
	// Worker is a command that calls Work.
	Worker func() *exec.Cmd
	// Namespaces is a command that serves tracing namespaces until SIGTERM, a process of its
	// own: what containers do to it is no matter of the worker's. nil does without.
	Namespaces func() *exec.Cmd
	// Reload makes a new worker take over, with a new configuration.
	Reload <-chan os.Signal
	// Log is told what happens, a line each.
	Log func(string)
}

// supervisor keeps what must outlive a worker.
type supervisor struct {
	o       *SupervisorOptions
	sockets [2]*sys.FD
	slots   *sys.FD
	kept    map[int]keptListener
}

type keptListener struct {
	fd    *sys.FD
	state state
}

// Supervise runs the agent until ctx ends. Paths of sockets that are there already are
// taken over if nobody listens.
func Supervise(ctx context.Context, o *SupervisorOptions) (err error) {
	s := &supervisor{o: o, kept: make(map[int]keptListener)}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.slots, err = newSlots(); err != nil {
		return err
	}
	for i, path := range []string{o.Seccomp, o.Socket} {
		kind, mode := "unix", os.FileMode(0o600)
		if i == 1 {
			kind, mode = "unixpacket", 0o666
		}
		if s.sockets[i], err = listen(kind, path, mode); err != nil {
			return err
		}
	}
	if o.Namespaces != nil {
		beside := make(chan struct{})
		defer func() { <-beside }()
		go func() { s.serveNamespaces(ctx); close(beside) }()
	}
	p := pause{most: 2 * time.Second}
	for {
		began := time.Now()
		err := s.runWorker(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil: // reload
			p.last = 0
			continue
		}
		wait := p.next(time.Since(began))
		o.Log(fmt.Sprintf("the worker ended: %v; the next one starts in %v", err, wait))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *supervisor) close() error {
	var list []error
	for i, fd := range s.sockets {
		if fd != nil {
			list = append(list, fd.Close(), os.Remove([]string{s.o.Seccomp, s.o.Socket}[i]))
		}
	}
	for _, k := range s.kept {
		list = append(list, k.fd.Close())
	}
	return errors.Join(append(list, s.slots.Close())...)
}

// listen makes a socket that listens at a path.
func listen(kind, path string, mode os.FileMode) (*sys.FD, error) {
	const what = "name another with --seccomp-socket and --socket, or end the other agent"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, hint.Wrap(err, what)
	}
	if conn, err := net.Dial(kind, path); err == nil {
		conn.Close()
		return nil, hint.Wrap(fmt.Errorf("listen on %s: %w", path, syscall.EADDRINUSE), what)
	}
	if fi, err := os.Lstat(path); err == nil && fi.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, hint.Wrap(err, what)
		}
	}
	l, err := net.ListenUnix(kind, &net.UnixAddr{Name: path, Net: kind})
	if err != nil {
		return nil, hint.Wrap(err, what)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	// Nobody connects before the mode is right but who may: the directory is ours.
	if err := os.Chmod(path, mode); err != nil {
		return nil, err
	}
	f, err := l.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return sys.DupFile(f)
}

// Reachable reports, as an error, that no agent listens at the path of a socket for
// container runtimes.
func Reachable(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}

// runWorker runs one worker to its end. No error is one that was asked for.
func (s *supervisor) runWorker(ctx context.Context) error {
	ours, theirs, err := sys.SocketPair()
	if err != nil {
		return err
	}
	defer ours.Close()
	cmd := s.o.Worker()
	for _, fd := range []*sys.FD{theirs, s.sockets[0], s.sockets[1], s.slots} {
		d, err := fd.Dup()
		if err != nil {
			return errors.Join(err, theirs.Close())
		}
		f := d.File("worker " + strconv.Itoa(fd.Int()))
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	// An agent that is killed takes its worker along.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, theirs.Close())
	}
	theirs.Close()
	for _, f := range cmd.ExtraFiles {
		f.Close()
	}
	w := &running{cmd: cmd, sock: ours, talked: make(chan error, 1), ended: make(chan error, 1)}
	go func() { w.talked <- s.talk(ours) }()
	go func() { w.ended <- cmd.Wait() }()
	select {
	case err := <-w.talked:
		if !errors.Is(err, io.EOF) {
			_ = cmd.Process.Kill() // it says what it must not
		}
		return errors.Join(errors.New("it ended by itself"), err, <-w.ended)
	case err := <-w.ended:
		_ = sys.StopReceive(ours) // of descendants, if there are any
		<-w.talked
		return errors.Join(errors.New("it ended by itself"), err)
	case <-s.o.Reload:
	case <-ctx.Done():
	}
	return w.stop(s.o.Log)
}

// running is a worker.
type running struct {
	cmd    *exec.Cmd
	sock   *sys.FD
	talked chan error // what talk returns
	ended  chan error // what the process returns
}

// stop ends a worker.
func (w *running) stop(log func(string)) error {
	err := endProcess(w.cmd, w.ended, "the worker", log)
	_ = sys.StopReceive(w.sock) // it may have hung up
	<-w.talked
	return err
}

// talk tells a worker what is kept, and keeps what it says, until it ends.
func (s *supervisor) talk(sock *sys.FD) error {
	for slot, k := range s.kept {
		if err := sendMessage(sock, message{Kind: kindKeep, Slot: slot, State: k.state}, k.fd); err != nil {
			return nil // it ended: its status says why
		}
	}
	if err := sendMessage(sock, message{Kind: kindBegin}, nil); err != nil {
		return nil
	}
	for {
		m, fd, err := receiveMessage(sock)
		if err != nil {
			return err
		}
		switch m.Kind {
		case kindKeep:
			if fd == nil {
				return errors.New("the worker's listener has no descriptor")
			}
			s.kept[m.Slot].fd.Close()
			s.kept[m.Slot] = keptListener{fd, m.State}
			continue
		case kindDrop:
			s.kept[m.Slot].fd.Close()
			delete(s.kept, m.Slot)
		case kindReady:
			s.o.Log(fmt.Sprintf("ready, %d listeners", len(s.kept)))
		}
		fd.Close()
	}
}
