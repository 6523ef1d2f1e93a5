// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package join runs a program in a running container, and gets a listener of its
// system calls.
//
// Start with Start: the child waits in the container's namespaces, to be moved to
// the container's cgroups. Then Run lets it become the program, and Wait tells how
// that ended. What happens in between is in join.c.
package join

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/helper"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Program says what to run, and as whom.
type Program struct {
	// Args are its arguments, the name first; Env its environment.
	Args, Env []string
	// Paths are the files to try, in the container. Dir is where it starts; if that
	// is not there, the root.
	Paths []string
	Dir   string
	// UID and the others are numbers of the container's user namespace.
	UID, GID uint32
	Groups   []uint32
	// Bounding and the others are its capabilities when it starts.
	Bounding, Permitted, Inheritable, Ambient sys.Capabilities
	NoNewPrivs                                bool
	// Filter is a seccomp filter, an array of FilterLen struct sock_filter.
	Filter    []byte
	FilterLen int
	// Namespaces are those to enter, CLONE_NEW*.
	Namespaces int
	// Label is written to LabelFile of /proc before the namespaces are entered: the
	// security module's label of the program. "" is none.
	Label, LabelFile string
	// Tracing is a detached mount, or nil, and TracingDir where the program sees it.
	Tracing    *sys.FD
	TracingDir string
	// Terminal makes Stdin the program's terminal.
	Terminal              bool
	Stdin, Stdout, Stderr *os.File
}

// Process is a program that is to run, runs or ran.
type Process struct {
	// PID is its number in our pid namespace.
	PID int
	// Pidfd holds it. It is the Process's.
	Pidfd *sys.FD

	sock   *sys.FD
	waiter *helper.Process
}

// steps are what a helper that failed was at, see join.c.
var steps = [...]string{
	1: "read what to run", 2: "open the label of the security module", 3: "set the label of the security module",
	4: "enter the container's namespaces", 5: "find the container's root", 6: "enter the container's root",
	7: "enter the container's root", 8: "close descriptors", 9: "start a process in the container's pid namespace",
	10: "take the terminal", 11: "set no_new_privs", 12: "set a seccomp filter that tells of system calls",
	13: "keep capabilities", 14: "set the user's groups", 15: "set the group", 16: "set the user",
	17: "keep capabilities", 18: "set capabilities", 19: "find a directory to start in", 20: "close descriptors",
	21: "make a mount namespace", 22: "make a mount namespace", 23: "mount the tracing directory",
}

// Kinds of messages, see join.c.
const (
	kindChild     = 1
	kindListener  = 2
	kindEnded     = 3
	kindFailed    = 4
	kindRunFailed = 5

	messageSize = 16
	setupSize   = 144
)

// Start makes a process in the namespaces of the process behind target, whose root
// is root. It waits for Run. Both descriptors stay the caller's.
func Start(target, root *sys.FD, p *Program) (*Process, error) {
	blob := p.encode()
	setup, err := sys.SealedMemory("gantry-join-setup", blob)
	if err != nil {
		return nil, err
	}
	defer setup.Close()
	// Its read starts at the beginning.
	if err := setup.Rewind(); err != nil {
		return nil, err
	}
	ours, theirs, err := sys.SocketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	files := []*sys.FD{theirs, setup, target, root}
	if p.Tracing != nil {
		files = append(files, p.Tracing)
	}
	w, err := helper.Start("gantry-join", code, &helper.Options{
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr,
		Files: files,
	})
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	theirs.Close() // else its end is not seen
	j := &Process{sock: ours, waiter: w}
	m, fd, err := j.receive()
	if err == nil && (m.kind != kindChild || fd == nil) {
		err = fmt.Errorf("join container: message %d where the child was expected", m.kind)
	}
	if err != nil {
		fd.Close()
		return nil, errors.Join(err, j.Close())
	}
	j.PID, j.Pidfd = int(m.value), fd
	return j, nil
}

type message struct {
	kind  uint32
	value int32
	errno syscall.Errno
}

// ErrRun says that the program could not be run; behind it is the errno of execve.
var ErrRun = errors.New("run the program")

func (j *Process) receive() (message, *sys.FD, error) {
	var b [messageSize]byte
	n, fd, err := sys.Receive(j.sock, b[:])
	if err == nil && n != messageSize {
		fd.Close()
		return message{}, nil, fmt.Errorf("join container: the helper ended: %w", syscall.ESRCH)
	}
	if err != nil {
		return message{}, nil, fmt.Errorf("join container: %w", err)
	}
	ne := binary.NativeEndian
	m := message{ne.Uint32(b[0:]), int32(ne.Uint32(b[4:])), syscall.Errno(ne.Uint32(b[8:]))}
	switch m.kind {
	case kindFailed:
		step := fmt.Sprintf("step %d", m.value)
		if int(m.value) < len(steps) && m.value > 0 {
			step = steps[m.value]
		}
		return m, fd, fmt.Errorf("join container: %s: %w", step, m.errno)
	case kindRunFailed:
		return m, fd, fmt.Errorf("%w: %w", ErrRun, m.errno)
	}
	return m, fd, nil
}

// Run lets the child become the program, and returns the listener of its system
// calls, which is the caller's.
func (j *Process) Run() (listener *sys.FD, err error) {
	if err := sys.Send(j.sock, make([]byte, messageSize), nil); err != nil {
		return nil, fmt.Errorf("join container: %w", err)
	}
	m, fd, err := j.receive()
	switch {
	case err != nil:
		fd.Close()
		return nil, err
	case m.kind == kindListener && fd != nil:
		return fd, nil
	case m.kind == kindEnded:
		fd.Close()
		return nil, fmt.Errorf("join container: the process was killed before it was the program: %w", syscall.ESRCH)
	}
	fd.Close()
	return nil, fmt.Errorf("join container: message %d where the listener was expected", m.kind)
}

// Wait waits until the program ended, or could not be run: ErrRun.
func (j *Process) Wait() (syscall.WaitStatus, error) {
	var failed error
	for {
		m, fd, err := j.receive()
		fd.Close()
		switch {
		case errors.Is(err, ErrRun):
			failed = err
		case err != nil:
			return 0, errors.Join(failed, err)
		case m.kind == kindEnded:
			return syscall.WaitStatus(uint32(m.value)), failed
		}
	}
}

// Close ends the program if it runs, and releases everything.
func (j *Process) Close() error {
	err := j.sock.Close()
	_ = j.waiter.Wait() // its status says nothing
	return errors.Join(err, j.Pidfd.Close())
}

// encode is struct setup of join.c with what its offsets point to.
func (p *Program) encode() []byte {
	b := &blob{make([]byte, setupSize)}
	if p.Label != "" {
		b.put(8, b.text(p.LabelFile))
		b.put(16, b.text(p.Label))
	}
	b.put(24, b.list(p.Args))
	b.put(32, b.list(p.Env))
	b.put(40, b.list(p.Paths))
	b.put(48, b.text(p.Dir))
	if p.Tracing != nil {
		b.put(136, b.text(p.TracingDir))
	}
	b.align()
	b.put(56, uint64(len(b.b)))
	for _, g := range p.Groups {
		b.b = order.AppendUint32(b.b, g)
	}
	b.align()
	b.put(64, uint64(len(b.b)))
	b.b = append(b.b, p.Filter...)
	for i, c := range []sys.Capabilities{p.Bounding, p.Permitted, p.Inheritable, p.Ambient} {
		b.put(72+8*i, uint64(c))
	}
	flag := func(on bool) uint32 {
		if on {
			return 1
		}
		return 0
	}
	for i, v := range []uint32{uint32(len(p.Groups)), uint32(p.FilterLen), p.UID, p.GID, uint32(p.Namespaces),
		flag(p.NoNewPrivs), flag(p.Terminal)} {
		order.PutUint32(b.b[104+4*i:], v)
	}
	b.put(0, uint64(len(b.b)))
	return b.b
}

// order is the machine's.
var order = binary.NativeEndian

// blob is a struct and behind it what its offsets point to.
type blob struct{ b []byte }

func (b *blob) align() {
	for len(b.b)%8 != 0 {
		b.b = append(b.b, 0)
	}
}

func (b *blob) text(s string) uint64 {
	at := uint64(len(b.b))
	b.b = append(append(b.b, s...), 0)
	return at
}

// list is an array of offsets of texts, and 0 at its end.
func (b *blob) list(texts []string) uint64 {
	var offsets []uint64
	for _, s := range texts {
		offsets = append(offsets, b.text(s))
	}
	b.align()
	at := uint64(len(b.b))
	for _, o := range append(offsets, 0) {
		b.b = order.AppendUint64(b.b, o)
	}
	return at
}

func (b *blob) put(at int, v uint64) { order.PutUint64(b.b[at:], v) }
