// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"syscall"
	"unsafe"
)

// pollReadable tells, without waiting, whether fd is readable.
func pollReadable(fd uintptr) bool {
	// struct pollfd and struct timespec.
	pfd := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: pollIn}
	var zero syscall.Timespec
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&pfd)), 1,
		uintptr(unsafe.Pointer(&zero)), 0, 0, 0)
	return errno == 0 && n == 1
}

const pollIn = 1
