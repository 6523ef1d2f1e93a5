// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Terminal makes a pseudo terminal: what is written to ours is typed, what is read
// from it is shown. Both are the caller's.
func Terminal() (ours, theirs *FD, err error) {
	ours, err = Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY)
	if err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetPointerInt(ours.Int(), unix.TIOCSPTLCK, 0); err == nil {
		var raw int
		if raw, err = peer(ours); err == nil {
			return ours, own(raw), nil
		}
	}
	ours.Close()
	return nil, nil, fmt.Errorf("make a terminal: %w", err)
}

// peer opens the other side of a pseudo terminal (Linux 4.13).
func peer(ours *FD) (int, error) {
	raw, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ours.Int()), unix.TIOCGPTPEER,
		uintptr(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC))
	runtime.KeepAlive(ours)
	if errno != 0 {
		return -1, errno
	}
	return int(raw), nil
}

// CopyTerminalSize gives a terminal the size of another one.
func CopyTerminalSize(from, to int) error {
	size, err := unix.IoctlGetWinsize(from, unix.TIOCGWINSZ)
	if err == nil {
		err = unix.IoctlSetWinsize(to, unix.TIOCSWINSZ, size)
	}
	if err != nil {
		return fmt.Errorf("set the size of a terminal: %w", err)
	}
	return nil
}
