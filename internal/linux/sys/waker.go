// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Waker makes an epoll that can be read once after Rearm, when fd can. Go's poller
// takes it, which without it would be woken up for each notification, also by who is
// about to receive it.
func Waker(fd *FD) (*FD, error) {
	epoll, err := newEpoll()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(epoll.Int(), true); err != nil {
		return nil, errors.Join(fmt.Errorf("set O_NONBLOCK: %w", err), epoll.Close())
	}
	if err := epollControl(epoll, fd, unix.EPOLL_CTL_ADD, unix.EPOLLONESHOT); err != nil {
		return nil, errors.Join(err, epoll.Close())
	}
	return epoll, nil
}

// Rearm makes a Waker work once more.
func Rearm(waker, fd *FD) error {
	return epollControl(waker, fd, unix.EPOLL_CTL_MOD, unix.EPOLLIN|unix.EPOLLONESHOT)
}

func epollControl(epoll, fd *FD, op int, events uint32) error {
	err := unix.EpollCtl(epoll.Int(), op, fd.Int(), &unix.EpollEvent{Events: events, Fd: int32(fd.Int())})
	runtime.KeepAlive(epoll)
	runtime.KeepAlive(fd)
	if err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}
