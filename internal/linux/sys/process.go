// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PidfdOpen pins the process pid against reuse of its number (Linux 5.3).
func PidfdOpen(pid int) (*FD, error) {
	raw, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open %d: %w", pid, err)
	}
	return own(raw), nil
}

// PidfdAlive reports whether the process behind a pidfd still runs. A zombie
// does not.
func PidfdAlive(pidfd *FD) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(pidfd.Int()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		runtime.KeepAlive(pidfd)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("poll pidfd: %w", err)
		}
		return n == 0, nil
	}
}

// Clock is a clock of clock_gettime, numbered as the kernel does; it is what
// perf_event_attr.clockid holds.
type Clock int32

// Clocks that perf events can use.
const (
	ClockRealtime     Clock = unix.CLOCK_REALTIME
	ClockMonotonic    Clock = unix.CLOCK_MONOTONIC
	ClockMonotonicRaw Clock = unix.CLOCK_MONOTONIC_RAW
	ClockBoottime     Clock = unix.CLOCK_BOOTTIME
	ClockTAI          Clock = unix.CLOCK_TAI
)

// Now is the clock's time since its epoch.
func (c Clock) Now() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(c), &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime %d: %w", c, err)
	}
	return time.Duration(ts.Nano()), nil
}

// MonotonicTime is the wall clock's time at a time of CLOCK_MONOTONIC, as far as the wall
// clock was not set since.
func MonotonicTime(ns uint64) time.Time {
	now, err := ClockMonotonic.Now()
	if err != nil {
		panic(err) // every kernel has it
	}
	return time.Now().Add(time.Duration(ns) - now)
}

// Resolution is the clock's granularity.
func (c Clock) Resolution() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(int32(c), &ts); err != nil {
		return 0, fmt.Errorf("clock_getres %d: %w", c, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Uname is what uname(2) says of this machine.
type Uname struct {
	Nodename, Release, Version, Machine string
}

// GetUname calls uname.
func GetUname() (Uname, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Uname{}, fmt.Errorf("uname: %w", err)
	}
	text := func(b []byte) string {
		if i := bytes.IndexByte(b, 0); i >= 0 {
			b = b[:i]
		}
		return string(b)
	}
	return Uname{
		Nodename: text(u.Nodename[:]), Release: text(u.Release[:]),
		Version: text(u.Version[:]), Machine: text(u.Machine[:]),
	}, nil
}

// Infinity is a resource limit that is none.
const Infinity = ^uint64(0)

// MemlockLimit is this process's limit of locked memory in bytes: Infinity is
// none. It bounds the rings of a user without CAP_IPC_LOCK.
func MemlockLimit() (soft, hard uint64, err error) {
	var r unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &r); err != nil {
		return 0, 0, fmt.Errorf("prlimit RLIMIT_MEMLOCK: %w", err)
	}
	return r.Cur, r.Max, nil
}

// LiftMemlock takes away the limit of locked memory, or as much of it as this
// process may, and returns what puts it back. It is an error if nothing is
// gained.
func LiftMemlock() (restore func(), err error) {
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &old); err != nil {
		return nil, fmt.Errorf("prlimit RLIMIT_MEMLOCK: %w", err)
	}
	set := func(r unix.Rlimit) error { return unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &r, nil) }
	err = unix.EPERM
	if old.Cur != Infinity {
		err = set(unix.Rlimit{Cur: Infinity, Max: Infinity})
		if err != nil && old.Cur < old.Max {
			err = set(unix.Rlimit{Cur: old.Max, Max: old.Max})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lift RLIMIT_MEMLOCK: %w", err)
	}
	return func() { _ = set(old) }, nil
}

// Gettid is the calling thread's id.
func Gettid() int { return unix.Gettid() }

// PidfdThread makes PidfdOpen pin a thread (Linux 6.9); else a number must be
// that of a process.
const PidfdThread = unix.O_EXCL

// PidfdOpenThread pins the thread tid against reuse of its number (Linux 6.9).
func PidfdOpenThread(tid int) (*FD, error) {
	raw, err := unix.PidfdOpen(tid, PidfdThread)
	if err != nil {
		return nil, fmt.Errorf("pidfd_open thread %d: %w", tid, err)
	}
	return own(raw), nil
}

// PidfdGetFD takes a copy of a descriptor of the process behind a pidfd (Linux 5.6).
func PidfdGetFD(pidfd *FD, number int) (*FD, error) {
	raw, err := unix.PidfdGetfd(pidfd.Int(), number, 0)
	runtime.KeepAlive(pidfd)
	if err != nil {
		return nil, fmt.Errorf("pidfd_getfd %d: %w", number, err)
	}
	return own(raw), nil
}

// PidfdSignal sends a signal to the process behind a pidfd.
func PidfdSignal(pidfd *FD, sig unix.Signal) error {
	err := unix.PidfdSendSignal(pidfd.Int(), sig, nil, 0)
	runtime.KeepAlive(pidfd)
	if err != nil {
		return fmt.Errorf("pidfd_send_signal: %w", err)
	}
	return nil
}

// NamespaceOwner is the user, as this process's user namespace numbers it, who made the
// user namespace of a descriptor of /proc/PID/ns/user (NS_GET_OWNER_UID, Linux 4.11).
func NamespaceOwner(ns *FD) (uint32, error) {
	var uid uint32
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(ns.Int()), unix.NS_GET_OWNER_UID, uintptr(unsafe.Pointer(&uid)))
	runtime.KeepAlive(ns)
	if errno != 0 {
		return 0, fmt.Errorf("ioctl NS_GET_OWNER_UID: %w", errno)
	}
	return uid, nil
}
