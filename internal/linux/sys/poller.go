// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ready is a descriptor that Poller.Wait found readable.
type Ready struct {
	ID int // as given to Add
	// Hangup: the other end is gone. A perf event hangs up when its task has
	// exited; the ring may still hold data.
	Hangup bool
}

// Poller waits for many descriptors at once. One goroutine may be in Wait;
// everything else may be called meanwhile.
//
// A goroutine in Wait is parked by Go's own poller, which watches the
// Poller's epoll. In a system call of its own it would keep the runtime's
// monitor thread looking at it, some 50 times after each wake-up, which costs
// a recorder more than what it wakes up for. The timeout is a timer of the
// kernel for the same reason.
type Poller struct {
	// Lock order: waitMu, then mu.
	waitMu   sync.Mutex
	events   []unix.EpollEvent
	found    []Ready
	parked   bool // in the current Wait
	blocking bool // see Direct
	failed   error
	look     func(fd uintptr) bool // p.collect

	mu        sync.Mutex
	closed    bool
	own       *FD      // the epoll, unless it is file
	file      *os.File // the epoll, when Go's poller watches it
	conn      syscall.RawConn
	epoll     int // its number, for as long as mu is held and closed is not set
	quiet     *FD // epoll of what Suspend silences, in epoll unless suspended
	suspended bool
	timer     *FD
	wake      *FD
}

// Data of the poller's own descriptors in its epoll.
const (
	wakeID  = -1
	timerID = -2
	quietID = -3
)

// NewPoller returns an empty poller.
func NewPoller() (_ *Poller, err error) {
	p := &Poller{events: make([]unix.EpollEvent, 64)}
	p.look = p.collect
	defer func() {
		if err != nil {
			p.release()
		}
	}()
	epoll, err := newEpoll()
	if err != nil {
		return nil, err
	}
	p.epoll, p.own = epoll.Int(), epoll
	if p.quiet, err = newEpoll(); err != nil {
		return nil, err
	}
	raw, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	p.wake = own(raw)
	raw, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	p.timer = own(raw)
	for id, fd := range map[int]*FD{wakeID: p.wake, timerID: p.timer, quietID: p.quiet} {
		if err := addTo(p.epoll, fd, id); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// park has Go's poller watch the epoll. Not before a Wait needs it: a poll of
// Go's poller is a poll of the descriptors, and perf events tell only one that
// they have records.
func (p *Poller) park() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.file != nil {
		return nil
	}
	// Go's poller takes descriptors that do not block; an epoll has no other
	// use for the flag.
	if err := unix.SetNonblock(p.epoll, true); err != nil {
		return fmt.Errorf("wait for epoll: %w", err)
	}
	p.file, p.own = p.own.File("epoll"), nil
	if p.conn, err = p.file.SyscallConn(); err != nil {
		return fmt.Errorf("wait for epoll: %w", err)
	}
	return nil
}

func newEpoll() (*FD, error) {
	raw, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	return own(raw), nil
}

func addTo(epoll int, fd *FD, id int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id)}
	err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd.Int(), &ev)
	runtime.KeepAlive(fd)
	if err != nil {
		return fmt.Errorf("add descriptor to poller: %w", err)
	}
	return nil
}

func removeFrom(epoll int, fd *FD) error {
	err := unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, fd.Int(), nil)
	runtime.KeepAlive(fd)
	if err != nil {
		return fmt.Errorf("remove descriptor from poller: %w", err)
	}
	return nil
}

// Add waits for fd too. id, not negative, is what Wait reports. The
// descriptor stays the caller's and leaves the poller when it is closed.
func (p *Poller) Add(fd *FD, id int) error {
	return p.locked(func() error { return addTo(p.epoll, fd, id) }, id)
}

// AddSuspendable is Add for a descriptor that Suspend silences.
func (p *Poller) AddSuspendable(fd *FD, id int) error {
	return p.locked(func() error { return addTo(p.quiet.Int(), fd, id) }, id)
}

func (p *Poller) locked(add func() error, id int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("add descriptor to poller: %w", os.ErrClosed)
	}
	if id < 0 {
		return fmt.Errorf("add descriptor to poller: id %d: %w", id, unix.EINVAL)
	}
	return add()
}

// Remove stops waiting for fd: needed for one that stays open but has hung
// up, because it is reported at every Wait.
func (p *Poller) Remove(fd *FD) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("remove descriptor from poller: %w", os.ErrClosed)
	}
	err := removeFrom(p.epoll, fd)
	if errors.Is(err, unix.ENOENT) {
		err = removeFrom(p.quiet.Int(), fd)
	}
	return err
}

// Suspend makes Wait sleep through what happens to the descriptors of AddSuspendable,
// until it is called with false: then what has happened meanwhile counts.
func (p *Poller) Suspend(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("mute poller: %w", os.ErrClosed)
	}
	if p.suspended == on {
		return nil
	}
	p.suspended = on
	if on {
		return removeFrom(p.epoll, p.quiet)
	}
	return addTo(p.epoll, p.quiet, quietID)
}

// Wait blocks until a descriptor is readable, Wake is called or timeout has
// passed; a negative timeout is none. It appends what is ready to dst[:0].
// After the timeout the error is os.ErrDeadlineExceeded, after Close
// os.ErrClosed.
//
// Nothing ready and no error means that something may have happened: Wake, or
// a perf event had records. Those tell a poll only once that they have, and
// the poll of Go's poller may have been that one.
func (p *Poller) Wait(timeout time.Duration, dst []Ready) ([]Ready, error) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	p.found, p.failed, p.parked = dst[:0], nil, timeout == 0
	var deadline time.Time
	if timeout >= 0 {
		deadline = time.Now().Add(timeout)
	}
	if err := p.setTimer(timeout); err != nil {
		return p.found, err
	}
	if p.blocking {
		p.waitHere()
	} else if err := p.park(); err != nil {
		return p.found, err
	} else if err := p.conn.Read(p.look); err != nil {
		return p.found, os.ErrClosed // there is no other reason
	}
	if p.failed == nil && len(p.found) == 0 && timeout >= 0 && !time.Now().Before(deadline) {
		p.failed = os.ErrDeadlineExceeded
	}
	return p.found, p.failed
}

// setTimer makes the timer expire after d, or not if that is negative or zero.
func (p *Poller) setTimer(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrClosed
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(d, 0).Nanoseconds())}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(p.timer.Int()), 0, uintptr(unsafe.Pointer(&spec)),
		0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("set timer of poller: %w", errno)
	}
	return nil
}

// collect takes what is ready without waiting. It is false if the caller
// should wait, which happens once.
func (p *Poller) collect(fd uintptr) bool {
	n, err := pollNow(fd, p.events)
	if err != nil {
		p.failed = err
		return true
	}
	p.report(n)
	wait := n == 0 && !p.parked
	p.parked = true
	return !wait
}

// Direct makes Wait block in the thread that calls it, which is then woken by
// the kernel and nobody else: for a thread that has to be quick, at the price
// that the type tells of. It must be called before the first Wait: else Go's
// poller may still take what is meant for the thread.
func (p *Poller) Blocking() { p.blocking = true }

// waitHere is collect that waits itself. Close must not be called meanwhile.
func (p *Poller) waitHere() {
	n, err := pollNow(uintptr(p.epoll), p.events)
	for n == 0 && err == nil && !p.parked {
		n, err = unix.EpollWait(p.epoll, p.events, -1)
		if errors.Is(err, unix.EINTR) {
			n, err = 0, nil
		}
	}
	if err != nil {
		p.failed = fmt.Errorf("wait for descriptors: %w", err)
		return
	}
	p.report(n)
}

// report takes what the first n events say.
func (p *Poller) report(n int) {
	deeper := false
	for _, ev := range p.events[:n] {
		switch ev.Fd {
		case timerID:
		case wakeID:
			p.failed = p.woken()
		case quietID:
			deeper = true
		default:
			p.take(ev)
		}
	}
	if deeper {
		if n, err := pollNow(uintptr(p.quiet.Int()), p.events); err == nil {
			for _, ev := range p.events[:n] {
				p.take(ev)
			}
		}
	}
}

func (p *Poller) take(ev unix.EpollEvent) {
	p.found = append(p.found, Ready{ID: int(ev.Fd), Hangup: ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0})
}

// pollNow is epoll_wait without waiting, of which Go's scheduler need not be
// told.
func pollNow(epoll uintptr, events []unix.EpollEvent) (int, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("wait for descriptors: %w", errno)
	}
	return int(n), nil
}

// woken takes the wake-ups back.
func (p *Poller) woken() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return os.ErrClosed
	}
	var count [8]byte
	if _, err := p.wake.Read(count[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("reset poller wake-up: %w", err)
	}
	return nil
}

// Wake makes a running Wait, or else the next one, return.
func (p *Poller) Wake() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("wake poller: %w", os.ErrClosed)
	}
	one := [8]byte{1, 1, 1, 1, 1, 1, 1, 0} // any count does, in either byte order
	if _, err := unix.Write(p.wake.Int(), one[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("wake poller: %w", err)
	}
	return nil
}

// Close interrupts Wait and releases the poller, not the descriptors in it.
func (p *Poller) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	return p.release()
}

// release closes what there is.
func (p *Poller) release() error {
	var err error
	if p.file != nil {
		err = p.file.Close() // which a Wait outlives no longer than it must
	}
	return errors.Join(err, p.own.Close(), p.quiet.Close(), p.wake.Close(), p.timer.Close())
}
