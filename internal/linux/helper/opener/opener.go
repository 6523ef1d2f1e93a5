// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package opener opens perf events inside the pid namespace of a container, so that
// their records have the container's pids.
//
// Start with Start, which needs CAP_SYS_ADMIN and CAP_PERFMON, and Close it in the
// end. The process that the container sees has an empty root, no right but
// CAP_PERFMON, and a filter of its system calls; whoever controlled it would get
// events of the container's own tasks and nothing more. It does not judge what it is
// asked for: that is the broker's part.
package opener

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/helper"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Structs that opener.c reads and writes, in the machine's byte order.
const (
	maxFilter    = 64 // instructions
	filterSize   = maxFilter * 8
	setupFilters = 56
	setupSize    = setupFilters + 2*filterSize

	requestHeader = 24
	maxAttr       = 4096
	replySize     = 16

	kindOpen = 1
	kindPin  = 2

	replyReady  = 1
	replyDone   = 2
	replyFailed = 3
)

// processName is what the container's ps shows.
const processName = "gantry-opener"

// answerTime is how long an answer may take. Only a stopped opener takes longer than
// some microseconds: the container's root may stop it.
const answerTime = time.Second

// soon is within what time an answer normally is there.
const soon = time.Millisecond

// maxKilled is how often an opener may be killed during one request.
const maxKilled = 3

// ErrGone says that the opener ended, mostly because its pid namespace did.
var ErrGone = errors.New("the opener is gone")

// ErrStopped says that the container keeps the opener from answering.
var ErrStopped = errors.New("the opener was stopped or killed by the container")

// Opener is the pair of processes. It is safe for concurrent use; requests are
// served one after the other.
type Opener struct {
	mu      sync.Mutex
	sock    *sys.FD
	process *helper.Process
	serial  uint32
	buf     [requestHeader + maxAttr]byte
	// Killed counts the openers that the container killed.
	killed int
}

// Start starts an opener in a pid namespace. Events with sys.PerfPIDCgroup are of
// the given cgroup, an open directory of the hierarchy with perf_event; nil is
// none. Both stay the caller's.
func Start(pidns, cgroup *sys.FD) (*Opener, error) {
	ours, theirs, err := sys.SocketPair()
	if err != nil {
		return nil, fmt.Errorf("start opener: %w", err)
	}
	defer theirs.Close()
	setup, err := encodeSetup(cgroup != nil)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	second := cgroup
	if second == nil {
		second = pidns // closed by the helper
	}
	p, err := helper.Start(processName, code, &helper.Options{Files: []*sys.FD{theirs, second, pidns}})
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	o := &Opener{sock: ours, process: p}
	// Else the end of the helper is not seen.
	theirs.Close()
	if err := o.begin(setup); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// encodeSetup is struct setup of opener.c.
func encodeSetup(cgroup bool) ([]byte, error) {
	b := make([]byte, setupSize)
	copy(b[0:8], "tmpfs")
	copy(b[8:16], "/proc")
	copy(b[16:32], processName)
	ne := binary.NativeEndian
	ne.PutUint64(b[32:], 1<<sys.CapPerfmon)
	if cgroup {
		ne.PutUint32(b[40:], 1)
	}
	starter, n, err := starterFilter().Encode(killOthers)
	if err != nil {
		return nil, err
	}
	ne.PutUint32(b[44:], uint32(n))
	open, m, err := openerFilter().Encode(killOthers)
	if err != nil {
		return nil, err
	}
	ne.PutUint32(b[48:], uint32(m))
	if max(n, m) > maxFilter {
		return nil, fmt.Errorf("opener: filters of %d and %d instructions, %d are allowed", n, m, maxFilter)
	}
	copy(b[setupFilters:], starter)
	copy(b[setupFilters+filterSize:], open)
	return b, nil
}

// begin sends the set-up and waits until the opener is ready.
func (o *Opener) begin(setup []byte) error {
	// A loaded machine may take long to start two processes.
	if err := sys.SetReceiveTimeout(o.sock, 10*answerTime); err != nil {
		return err
	}
	if err := sys.Send(o.sock, setup, nil); err != nil {
		return fmt.Errorf("start opener: %w", err)
	}
	for {
		r, fd, err := o.receive()
		fd.Close()
		if err != nil {
			return fmt.Errorf("start opener: %w", err)
		}
		if r.kind == replyReady {
			return sys.SetReceiveTimeout(o.sock, answerTime)
		}
	}
}

type reply struct {
	kind, serial uint32
	errno        syscall.Errno
}

func (o *Opener) receive() (reply, *sys.FD, error) {
	var b [replySize]byte
	n, fd, err := sys.Receive(o.sock, b[:])
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return reply{}, nil, ErrStopped
	case errors.Is(err, syscall.ECONNRESET), err == nil && n != replySize:
		fd.Close()
		return reply{}, nil, ErrGone
	case err != nil:
		return reply{}, nil, err
	}
	ne := binary.NativeEndian
	r := reply{ne.Uint32(b[0:]), ne.Uint32(b[4:]), syscall.Errno(ne.Uint32(b[8:]))}
	if r.kind == replyFailed {
		fd.Close()
		return r, nil, fmt.Errorf("step %d of its set-up: %w: %w", r.serial, ErrGone, r.errno)
	}
	return r, fd, nil
}

// Open opens an event: see sys.PerfEventOpen. pid is a number in the opener's pid
// namespace; with sys.PerfPIDCgroup it does not count. The error is an errno of the
// kernel's, ErrGone or ErrStopped; after the last two the opener is of no use.
func (o *Opener) Open(attr []byte, pid, cpu int, group *sys.FD, flags sys.PerfFlags) (*sys.FD, error) {
	if len(attr) > maxAttr {
		return nil, fmt.Errorf("open event: attr of %d bytes: %w", len(attr), syscall.E2BIG)
	}
	return o.ask(kindOpen, request{pid, cpu, uint32(flags), attr, group})
}

// Pin is a pidfd of a task, by its number in the opener's pid namespace. thread
// makes any thread possible (Linux 6.9).
func (o *Opener) Pin(pid int, thread bool) (*sys.FD, error) {
	flags := uint32(0)
	if thread {
		flags = sys.PidfdThread
	}
	return o.ask(kindPin, request{pid: pid, flags: flags})
}

type request struct {
	pid, cpu int
	flags    uint32
	attr     []byte
	group    *sys.FD
}

// ask sends a request and waits for its answer. An opener that was killed is
// started again by its starter, and asked again.
func (o *Opener) ask(kind uint32, q request) (*sys.FD, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serial++
	b := o.buf[:requestHeader+len(q.attr)]
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], kind)
	ne.PutUint32(b[4:], o.serial)
	ne.PutUint32(b[8:], uint32(q.pid))
	ne.PutUint32(b[12:], uint32(q.cpu))
	ne.PutUint32(b[16:], q.flags)
	ne.PutUint32(b[20:], uint32(sys.CurrentCPU()))
	copy(b[requestHeader:], q.attr)
	send := true
	// Whoever controls the opener may answer without end.
	for killed, until := 0, time.Now().Add(2*answerTime); time.Now().Before(until); {
		if send {
			if err := sys.Send(o.sock, b, q.group); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrGone, err)
			}
			send = false
		}
		sys.WaitSoon(o.sock, soon)
		r, fd, err := o.receive()
		switch {
		case err != nil:
			return nil, err
		case r.kind == replyReady:
			// It was killed, before our request or with it: a request that waits
			// in the socket is answered twice then, and the second time not ours.
			o.killed++
			if killed++; killed > maxKilled {
				return nil, ErrStopped
			}
			send = true
		case r.kind == replyDone && r.serial == o.serial:
			if r.errno != 0 {
				return nil, r.errno
			}
			if fd == nil {
				return nil, fmt.Errorf("opener: no descriptor: %w", syscall.EMFILE)
			}
			return fd, nil
		default: // of a request that was given up
			fd.Close()
		}
	}
	return nil, ErrStopped
}

// Killed counts how often the container killed the opener.
func (o *Opener) Killed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.killed
}

// Close ends both processes, also stopped ones, and waits for the starter.
func (o *Opener) Close() error {
	err := o.sock.Close()
	_ = o.process.Wait() // it ends with 1 when its set-up failed
	return err
}
