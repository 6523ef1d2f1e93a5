// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Doze sleeps for at most d, less if a signal comes. Go's scheduler is not
// told: it would hand the processor over to another thread and take it back,
// which costs more than a short sleep is worth to a loop that does little else.
// A garbage collection waits as long, so d is milliseconds at most.
func Doze(d time.Duration) {
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(d.Nanoseconds())
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
