// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Listener tells of the calls that processes make under one seccomp filter.
type Listener struct {
	fd    *sys.FD
	waker *sys.FD
	file  *os.File // the waker, as Go's poller has it
	conn  syscall.RawConn
	// call is the one that is being answered, its ID 0 when there is none.
	call    *sys.Notification
	stopped atomic.Bool
}

// NewListener takes over a listener's descriptor; the caller calls Close. The call
// that is being answered is kept in call, nil for a place of its own: whoever has
// that memory can go on with the call if this process ends over it, which otherwise
// waits for as long as the listener is open.
func NewListener(fd *sys.FD, call *sys.Notification) (*Listener, error) {
	if call == nil {
		call = new(sys.Notification)
	}
	l := &Listener{fd: fd, call: call}
	_ = sys.NotifySyncWake(fd) // before Linux 6.6 it is slower
	var copied *sys.FD
	var err error
	if l.waker, err = sys.Waker(fd); err == nil {
		copied, err = l.waker.Dup()
	}
	if err != nil {
		return nil, errors.Join(err, l.waker.Close(), fd.Close())
	}
	l.file = copied.File("listener")
	if l.conn, err = l.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close releases the listener; nothing may serve it any more. Where it was the last
// descriptor, calls that wait for an answer fail with ENOSYS.
func (l *Listener) Close() error { return errors.Join(l.file.Close(), l.waker.Close(), l.fd.Close()) }

// Stop makes Serve return.
func (l *Listener) Stop() {
	l.stopped.Store(true)
	_ = l.file.SetReadDeadline(time.Unix(1, 0)) // it is closed, or Serve returns
}

// errIdle says that there was no call for some time.
var errIdle = errors.New("no call")

// wait waits for a call, for ever or for a time.
func (l *Listener) wait(idle time.Duration) error {
	deadline := time.Time{}
	if idle > 0 {
		deadline = time.Now().Add(idle)
	}
	if err := l.file.SetReadDeadline(deadline); err != nil {
		return err
	}
	// Stop may have set its deadline before ours.
	if l.stopped.Load() {
		return nil
	}
	if err := sys.Rearm(l.waker, l.fd); err != nil {
		return err
	}
	var state error
	err := l.conn.Read(func(uintptr) (done bool) {
		var ready bool
		ready, state = sys.NotifyReady(l.fd)
		return ready || state != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if l.stopped.Load() {
			return nil
		}
		return errIdle
	}
	return errors.Join(err, state)
}

// First waits for the first call, or has the one that another process had received, and
// returns the thread that made it, as the host numbers it; 0 is the end. Serve answers
// it then, or Refuse.
func (l *Listener) First() (tid int, err error) {
	for !l.stopped.Load() {
		if l.call.ID != 0 && l.Valid() {
			if l.call.TID != 0 {
				return int(l.call.TID), nil
			}
			// A process that cannot be seen from here.
			if err := l.Refuse(syscall.ENOSYS); err != nil {
				return 0, err
			}
		}
		err := l.wait(0)
		if err == nil && !l.stopped.Load() {
			err = sys.NotifyReceive(l.fd, l.call)
		}
		switch {
		case errors.Is(err, sys.ErrNoClients):
			return 0, nil
		case errors.Is(err, syscall.ENOENT): // it was killed
		case err != nil:
			return 0, err
		}
	}
	return 0, nil
}

// Valid reports whether the thread of the call that was received still waits.
func (l *Listener) Valid() bool { return sys.NotifyValid(l.fd, l.call.ID) }

// Refuse answers the call that was received with an error.
func (l *Listener) Refuse(e syscall.Errno) error {
	err := sys.NotifyFail(l.fd, l.call.ID, e)
	l.call.ID = 0
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}

// soon is within what time a program that opens many events opens the next one.
const soon = 200 * time.Microsecond

// unused is after how long an opener that nobody needs ends.
const unused = 10 * time.Second

// Serve answers the calls of a listener, whose processes are of one container, until
// none of them is left or Stop is called.
func (b *Broker) Serve(l *Listener, s *Scope) error {
	err := b.resume(l, s)
	for idle := time.Duration(0); err == nil && !l.stopped.Load(); {
		switch err = l.wait(idle); {
		case errors.Is(err, errIdle):
			if err = b.Flush(auditDelay); !s.Trim(unused) {
				idle = 0
			}
		case err == nil && !l.stopped.Load():
			idle = auditDelay
			err = b.burst(l, s)
		}
	}
	if errors.Is(err, sys.ErrNoClients) {
		err = nil
	}
	return errors.Join(err, b.Flush(0))
}

// Flush writes entries of the audit log that have waited for their likes for a time.
func (b *Broker) Flush(age time.Duration) error {
	if err := b.audit.flush(age); err != nil {
		return fmt.Errorf("write the audit log: %w", err)
	}
	return nil
}

// resume answers a call that another process had received.
func (b *Broker) resume(l *Listener, s *Scope) error {
	if l.call.ID == 0 || !sys.NotifyValid(l.fd, l.call.ID) {
		return nil
	}
	return b.answer(l, s)
}

// burst answers calls until none is made for a moment. It keeps its thread.
func (b *Broker) burst(l *Listener, s *Scope) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, err := sys.GetAffinity()
	if err != nil {
		return err
	}
	for sys.WaitSoon(l.fd, soon) && !l.stopped.Load() {
		// Where the client waits no CPU must be woken up.
		if err := sys.OneCPU(sys.CurrentCPU()).Set(); err != nil {
			return err
		}
		if err := errors.Join(b.next(l, s), all.Set()); err != nil {
			return err
		}
		s.opens.take(b.policy.MaxOpens)
	}
	return nil
}

// next answers one call. The error is one that ends the service.
func (b *Broker) next(l *Listener, s *Scope) error {
	err := sys.NotifyReceive(l.fd, l.call)
	if errors.Is(err, syscall.ENOENT) {
		return nil // it was killed
	}
	if err != nil {
		return err
	}
	return b.answer(l, s)
}

// answer answers the call that was received.
func (b *Broker) answer(l *Listener, s *Scope) error {
	n := *l.call
	q := &request{scope: s, client: newClient(int(n.TID))}
	q.client.valid = func() bool { return sys.NotifyValid(l.fd, n.ID) }
	fd, err := b.open(q, &n)
	if b.audit.w != nil {
		// Once it is answered it may end.
		_, _ = q.client.Status()
	}
	if err == nil {
		_, err = sys.NotifyGive(l.fd, n.ID, fd, q.flags&sys.PerfCloexec != 0)
		fd.Close()
		err = errnoOf(err, "the process cannot have one more descriptor", q)
	}
	if err != nil {
		// ENOENT: the client was killed, and nobody waits.
		_ = sys.NotifyFail(l.fd, n.ID, Errno(err))
	}
	l.call.ID = 0
	b.note(q, err)
	return nil
}

// open decides about a call and opens the event.
func (b *Broker) open(q *request, n *sys.Notification) (*sys.FD, error) {
	if n.Arch != sys.AuditArch || int(n.Nr) != sys.SysPerfEventOpen || n.TID == 0 {
		return nil, refuse(syscall.ENOSYS, "not a native perf_event_open of a process that can be seen")
	}
	q.pid, q.cpu, q.flags = int(int32(n.Args[1])), int(int32(n.Args[2])), sys.PerfFlags(n.Args[4])
	if n.Args[4]&^uint64(knownOpenFlags) != 0 {
		return nil, refuse(syscall.EINVAL, "flags that do not exist")
	}
	var err error
	q.attr, err = readAttr(func(addr uint64, p []byte) (int, error) {
		return sys.ReadMemory(q.client.tid, addr, p)
	}, n.Args[0])
	if err != nil {
		return nil, err
	}
	if group := int(int32(n.Args[3])); group != -1 {
		if q.leader, err = takeGroup(&q.client, group); err != nil {
			return nil, err
		}
		defer q.leader.Close()
	}
	return b.decide(q)
}
