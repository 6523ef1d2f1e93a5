// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ListenApart makes a listening Unix stream socket in a directory, from a thread that has
// none of this process's other descriptors. So it may be a directory of a file system that
// this process serves: a thread that waits for its answer cannot be killed, and with its
// descriptors it would keep the connection alive that it waits for.
func ListenApart(dir, name string) (*FD, error) {
	fd, err := apart(func() (int, error) { return listenAt(dir, name) })
	if err != nil {
		return nil, fmt.Errorf("listen at %s/%s: %w", dir, name, err)
	}
	return fd, nil
}

// apart calls fn on a thread that has none of this process's descriptors, and returns the
// one that it opens.
func apart(fn func() (int, error)) (*FD, error) {
	here, there, err := SocketPair()
	if err != nil {
		return nil, err
	}
	defer here.Close()
	defer there.Close()
	err = onThread(func() error {
		if err := leaveOnly(uint(there.Int())); err != nil {
			return err
		}
		fd, err := fn()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendmsg(there.Int(), []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	})
	if err != nil {
		return nil, err
	}
	_, fd, err := Receive(here, make([]byte, 1))
	runtime.KeepAlive(there)
	return fd, err
}

// onThread calls fn on a thread that ends with it, which is not the process's first: that
// one does not end, and stands for the process in /proc.
func onThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- onThread(fn) // this one is taken
			runtime.UnlockOSThread()
			return
		}
		result <- fn()
	}()
	return <-result
}

// leaveOnly gives this thread descriptors of its own: one.
func leaveOnly(keep uint) error {
	if err := unix.Unshare(unix.CLONE_FILES); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if keep > 0 {
		if err := unix.CloseRange(0, keep-1, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("close_range: %w", err)
		}
	}
	if err := unix.CloseRange(keep+1, ^uint(0)>>33, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("close_range: %w", err)
	}
	return nil
}

// listenAt makes a socket that listens.
func listenAt(dir, name string) (int, error) {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	// Not by the whole path: a socket's may have 107 bytes.
	path := fmt.Sprintf("/proc/thread-self/fd/%d/%s", at, name)
	if err = unix.Bind(sock, &unix.SockaddrUnix{Name: path}); err != nil {
		err = fmt.Errorf("bind: %w", err)
	} else if err = unix.Listen(sock, unix.SOMAXCONN); err != nil {
		err = fmt.Errorf("listen: %w", err)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(sock))
	}
	return sock, nil
}
