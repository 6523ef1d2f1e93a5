// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Notification is a system call of another thread, which waits for an answer
// (struct seccomp_notif). Its arguments are values of that moment; memory they
// point to may change at any time.
type Notification struct {
	ID    uint64
	TID   uint32 // of the thread, 0 if it is not in a pid namespace below ours
	Flags uint32
	Nr    int32
	Arch  uint32 // AUDIT_ARCH_*
	IP    uint64
	Args  [6]uint64
}

// notifyAnswer is struct seccomp_notif_resp.
type notifyAnswer struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

// notifyAddFD is struct seccomp_notif_addfd.
type notifyAddFD struct {
	id         uint64
	flags      uint32
	srcFD      uint32
	newFD      uint32
	newFDFlags uint32
}

// The ioctls of a notification descriptor, see linux/seccomp.h.
const (
	notifyReceive = 0xc0502100
	notifySend    = 0xc0182101
	notifyIDValid = 0x40082102
	notifyAdd     = 0x40182103
	notifyFlags   = 0x40082104

	addFDSend      = 2 // SECCOMP_ADDFD_FLAG_SEND, Linux 5.14
	notifySyncWake = 1 // SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, Linux 6.6
)

// AuditArch is the architecture that Notification.Arch has for a native call.
var AuditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// SysPerfEventOpen is the number of perf_event_open.
const SysPerfEventOpen = unix.SYS_PERF_EVENT_OPEN

func notifyCall(fd *FD, req uint, p unsafe.Pointer) (int, error) {
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd.Int()), uintptr(req), uintptr(p))
		runtime.KeepAlive(fd)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), nil
	}
}

// ErrNoClients says that no process is left under a filter.
var ErrNoClients = errors.New("no process is left under the seccomp filter")

// NotifyReady reports whether a notification waits to be received. The error is
// ErrNoClients when all processes ended.
func NotifyReady(fd *FD) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd.Int()), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, 0)
	runtime.KeepAlive(fd)
	switch {
	case errors.Is(err, unix.EINTR):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("poll seccomp notifications: %w", err)
	case fds[0].Revents&unix.POLLIN != 0:
		return true, nil
	case fds[0].Revents != 0:
		return false, ErrNoClients
	}
	return false, nil
}

// NotifyReceive takes the next notification. It is ENOENT if the thread ended in
// the meantime.
func NotifyReceive(fd *FD, n *Notification) error {
	*n = Notification{}
	if _, err := notifyCall(fd, notifyReceive, unsafe.Pointer(n)); err != nil {
		return fmt.Errorf("receive seccomp notification: %w", err)
	}
	return nil
}

// NotifyValid reports whether the thread of a notification still waits: what was
// read of it before this call is its own.
func NotifyValid(fd *FD, id uint64) bool {
	_, err := notifyCall(fd, notifyIDValid, unsafe.Pointer(&id))
	return err == nil
}

// NotifyFail answers a system call with an error. It is ENOENT if nobody waits.
func NotifyFail(fd *FD, id uint64, errno unix.Errno) error {
	a := notifyAnswer{id: id, err: -int32(errno)}
	if _, err := notifyCall(fd, notifySend, unsafe.Pointer(&a)); err != nil {
		return fmt.Errorf("answer seccomp notification: %w", err)
	}
	return nil
}

// NotifyGive answers a system call with a descriptor, a copy of file, in one step:
// the thread has it, and knows it, or neither. It is ENOENT if nobody waits.
func NotifyGive(fd *FD, id uint64, file *FD, cloexec bool) (int, error) {
	a := notifyAddFD{id: id, flags: addFDSend, srcFD: uint32(file.Int())}
	if cloexec {
		a.newFDFlags = unix.O_CLOEXEC
	}
	n, err := notifyCall(fd, notifyAdd, unsafe.Pointer(&a))
	runtime.KeepAlive(file)
	if err != nil {
		return -1, fmt.Errorf("give a descriptor by seccomp notification: %w", err)
	}
	return n, nil
}

// NotifySyncWake tells the kernel that both sides of a notification work in turns
// (Linux 6.6); an older kernel does without.
func NotifySyncWake(fd *FD) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd.Int()), notifyFlags, notifySyncWake)
	runtime.KeepAlive(fd)
	if errno != 0 {
		return fmt.Errorf("set flags of seccomp notifications: %w", errno)
	}
	return nil
}

// WaitSoon waits for at most d until a descriptor can be read, without letting Go's
// scheduler know: for what is there within some microseconds, for which a switch to
// another thread and back takes longer. It reports whether there is something.
func WaitSoon(fd *FD, d time.Duration) bool {
	fds := unix.PollFd{Fd: int32(fd.Int()), Events: unix.POLLIN}
	ts := unix.NsecToTimespec(d.Nanoseconds())
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1,
		uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	runtime.KeepAlive(fd)
	return errno == 0 && n == 1 && fds.Revents&unix.POLLIN != 0
}

// NotificationSize is that of a Notification, in bytes.
const NotificationSize = int(unsafe.Sizeof(Notification{}))

// MapNotifications maps a file as n notifications, for as long as the process lives.
func MapNotifications(fd *FD, n int) ([]Notification, error) {
	m, err := Mmap(fd, n*NotificationSize, true)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*Notification)(unsafe.Pointer(unsafe.SliceData(m.Bytes()))), n), nil
}
