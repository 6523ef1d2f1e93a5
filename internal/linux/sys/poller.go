// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

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
// Add, Wake and Close may be called meanwhile.
type Poller struct {
	// Lock order: waitMu, then mu. Close marks the poller closed and wakes the
	// waiter under mu, lets mu go, and closes the descriptors under waitMu.
	waitMu sync.Mutex
	events []unix.EpollEvent

	mu     sync.Mutex
	closed bool
	epoll  *FD
	wake   *FD
}

// wakeID is the epoll data of the poller's own eventfd.
const wakeID = -1

// NewPoller returns an empty poller.
func NewPoller() (_ *Poller, err error) {
	p := &Poller{events: make([]unix.EpollEvent, 64)}
	defer func() {
		if err != nil {
			p.epoll.Close()
			p.wake.Close()
		}
	}()
	raw, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	p.epoll = own(raw)
	raw, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("create eventfd: %w", err)
	}
	p.wake = own(raw)
	if err := p.add(p.wake, wakeID); err != nil {
		return nil, err
	}
	return p, nil
}

// Add waits for fd too. id, not negative, is what Wait reports. The
// descriptor stays the caller's and leaves the poller when it is closed.
func (p *Poller) Add(fd *FD, id int) error {
	if id < 0 {
		return fmt.Errorf("add descriptor to poller: id %d: %w", id, unix.EINVAL)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("add descriptor to poller: %w", os.ErrClosed)
	}
	return p.add(fd, id)
}

func (p *Poller) add(fd *FD, id int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id)}
	err := unix.EpollCtl(p.epoll.Int(), unix.EPOLL_CTL_ADD, fd.Int(), &ev)
	runtime.KeepAlive(fd)
	if err != nil {
		return fmt.Errorf("add descriptor to poller: %w", err)
	}
	return nil
}

// Remove stops waiting for fd: needed for one that stays open but has hung
// up, because it is reported at every Wait.
func (p *Poller) Remove(fd *FD) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("remove descriptor from poller: %w", os.ErrClosed)
	}
	err := unix.EpollCtl(p.epoll.Int(), unix.EPOLL_CTL_DEL, fd.Int(), nil)
	runtime.KeepAlive(fd)
	if err != nil {
		return fmt.Errorf("remove descriptor from poller: %w", err)
	}
	return nil
}

// Wait blocks until a descriptor is readable, Wake is called or timeout has
// passed; a negative timeout is none. It appends what is ready to dst[:0].
// Nothing ready after Wake is no error; after the timeout the error is
// os.ErrDeadlineExceeded, after Close os.ErrClosed.
func (p *Poller) Wait(timeout time.Duration, dst []Ready) ([]Ready, error) {
	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	dst = dst[:0]
	n, err := p.wait(timeout)
	if err != nil {
		return dst, err
	}
	for _, ev := range p.events[:n] {
		if ev.Fd == wakeID {
			continue
		}
		dst = append(dst, Ready{ID: int(ev.Fd), Hangup: ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0})
	}
	if len(dst) < n {
		return dst, p.woken()
	}
	return dst, nil
}

// wait is epoll_wait with the deadline kept over interruptions.
func (p *Poller) wait(timeout time.Duration) (int, error) {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return 0, os.ErrClosed
	}
	deadline := time.Now().Add(timeout)
	for {
		ms := -1
		if timeout >= 0 {
			left := max(time.Until(deadline), 0)
			ms = int((left + time.Millisecond - 1) / time.Millisecond)
		}
		n, err := unix.EpollWait(p.epoll.Int(), p.events, ms)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for descriptors: %w", err)
		case n == 0:
			return 0, os.ErrDeadlineExceeded
		}
		return n, nil
	}
}

// woken takes the wake-ups back. After Close they stay, so that every later
// Wait returns.
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
	return p.signal()
}

func (p *Poller) signal() error {
	one := [8]byte{1, 1, 1, 1, 1, 1, 1, 0} // any count does, in either byte order
	if _, err := unix.Write(p.wake.Int(), one[:]); err != nil && !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("wake poller: %w", err)
	}
	return nil
}

// Close interrupts Wait and releases the poller, not the descriptors in it.
func (p *Poller) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	err := p.signal()
	p.mu.Unlock()

	p.waitMu.Lock()
	defer p.waitMu.Unlock()
	return errors.Join(err, p.epoll.Close(), p.wake.Close())
}
