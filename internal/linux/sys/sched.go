// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SetRealtime makes the calling thread, to which its goroutine is locked, run as
// soon as it is woken: with a real-time priority (SCHED_FIFO), of which 1 is the
// lowest, above everything that has none. Threads and processes that it starts are ordinary.
// The function that it returns, called in the same thread, undoes it. It needs
// CAP_SYS_NICE or a limit RLIMIT_RTPRIO.
func SetRealtime(priority int) (undo func() error, err error) {
	old, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return nil, fmt.Errorf("sched_getattr: %w", err)
	}
	a := unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: uint32(priority), Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if err := unix.SchedSetAttr(0, &a, 0); err != nil {
		return nil, fmt.Errorf("sched_setattr SCHED_FIFO: %w", err)
	}
	return func() error {
		if err := unix.SchedSetAttr(0, old, 0); err != nil {
			return fmt.Errorf("sched_setattr: %w", err)
		}
		return nil
	}, nil
}

// CurrentCPU is the CPU that this thread runs on, 0 if the kernel does not tell.
func CurrentCPU() int {
	var cpu uint32
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(cpu)
}

// Affinity is the CPUs that a thread may run on.
type Affinity struct{ set unix.CPUSet }

// GetAffinity is the affinity of this thread.
func GetAffinity() (*Affinity, error) {
	a := new(Affinity)
	if err := unix.SchedGetaffinity(0, &a.set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	return a, nil
}

// Set lets this thread run on the CPUs of a. The goroutine must be locked to its
// thread.
func (a *Affinity) Set() error {
	if err := unix.SchedSetaffinity(0, &a.set); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err)
	}
	return nil
}

// OneCPU is the affinity of one CPU.
func OneCPU(cpu int) *Affinity {
	a := new(Affinity)
	a.set.Set(cpu)
	return a
}
