// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PerfFlags are the flags of perf_event_open, see linux/perf_event.h.
type PerfFlags uint

// Flags of perf_event_open. PerfCloexec is always added.
const (
	PerfNoGroup   PerfFlags = unix.PERF_FLAG_FD_NO_GROUP
	PerfFDOutput  PerfFlags = unix.PERF_FLAG_FD_OUTPUT
	PerfPIDCgroup PerfFlags = unix.PERF_FLAG_PID_CGROUP
	PerfCloexec   PerfFlags = unix.PERF_FLAG_FD_CLOEXEC
)

// attrSizeMin is PERF_ATTR_SIZE_VER0: shorter attrs do not exist.
const attrSizeMin = 64

// PerfEventOpen opens an event. attr is an encoded struct perf_event_attr in
// the machine's byte order whose size field is at most len(attr). With
// PerfPIDCgroup pid is the number of a cgroup directory's descriptor. group
// may be nil. The error is the bare errno in its wrapping, because callers
// tell a dozen of them apart.
func PerfEventOpen(attr []byte, pid, cpu int, group *FD, flags PerfFlags) (*FD, error) {
	if len(attr) < attrSizeMin || int(binary.NativeEndian.Uint32(attr[4:])) > len(attr) {
		return nil, fmt.Errorf("perf_event_open: attr of %d bytes: %w", len(attr), unix.EINVAL)
	}
	for {
		raw, _, errno := unix.Syscall6(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&attr[0])),
			uintptr(pid), uintptr(cpu), uintptr(group.Int()), uintptr(flags|PerfCloexec), 0)
		runtime.KeepAlive(group)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return nil, fmt.Errorf("perf_event_open: %w", errno)
		}
		return own(int(raw)), nil
	}
}

// perfIoctl wraps an ioctl of a perf event.
func perfIoctl(fd *FD, name string, req uint, arg uintptr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd.Int()), uintptr(req), arg)
	runtime.KeepAlive(fd)
	if errno != 0 {
		return fmt.Errorf("perf ioctl %s: %w", name, errno)
	}
	return nil
}

func groupArg(group bool) uintptr {
	if group {
		return unix.PERF_IOC_FLAG_GROUP
	}
	return 0
}

// PerfEnable starts an event, and with group all members of its group.
func PerfEnable(fd *FD, group bool) error {
	return perfIoctl(fd, "ENABLE", unix.PERF_EVENT_IOC_ENABLE, groupArg(group))
}

// PerfDisable stops an event, and with group all members of its group.
func PerfDisable(fd *FD, group bool) error {
	return perfIoctl(fd, "DISABLE", unix.PERF_EVENT_IOC_DISABLE, groupArg(group))
}

// PerfID is the id that samples of this event carry.
func PerfID(fd *FD) (uint64, error) {
	var id uint64
	err := perfIoctlPtr(fd, "ID", unix.PERF_EVENT_IOC_ID, unsafe.Pointer(&id))
	return id, err
}

// PerfSetOutput sends the event's records to the ring of to, or with nil
// nowhere.
func PerfSetOutput(fd, to *FD) error {
	err := perfIoctl(fd, "SET_OUTPUT", unix.PERF_EVENT_IOC_SET_OUTPUT, uintptr(to.Int()))
	runtime.KeepAlive(to)
	return err
}

// perfIoctlPtr is perfIoctl with a pointer that stays alive over the call.
func perfIoctlPtr(fd *FD, name string, req uint, p unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd.Int()), uintptr(req), uintptr(p))
	runtime.KeepAlive(fd)
	if errno != 0 {
		return fmt.Errorf("perf ioctl %s: %w", name, errno)
	}
	return nil
}

// PerfSetBPF sets a loaded BPF program on an event. A program of type
// PERF_EVENT decides about the event's own samples, and so does one of type
// KPROBE on a probe that perf_event_open made. Anything else may be set on a
// tracepoint, where it decides for all sessions.
func PerfSetBPF(fd *FD, program int) error {
	return perfIoctl(fd, "SET_BPF", unix.PERF_EVENT_IOC_SET_BPF, uintptr(program))
}

// PerfSyscallReached reports whether perf_event_open gets as far as the kernel's
// own code: flags that do not exist must give EINVAL there. Any other answer
// is that of a seccomp filter, or ENOSYS of a kernel built without perf.
func PerfSyscallReached() error {
	_, _, errno := unix.Syscall6(unix.SYS_PERF_EVENT_OPEN, 0, 0, ^uintptr(0), ^uintptr(0), ^uintptr(0), 0)
	if errno == unix.EINVAL {
		return nil
	}
	return fmt.Errorf("perf_event_open: %w", errno)
}

// PerfSyscallAllowed reports whether this process may open any event at all. A
// security module, or a distribution's perf_event_paranoid of 3 and more, says
// no before the kernel reads the attr, so that an attr which cannot be read
// must give EFAULT.
func PerfSyscallAllowed() error {
	_, _, errno := unix.Syscall6(unix.SYS_PERF_EVENT_OPEN, 0, 0, ^uintptr(0), ^uintptr(0), uintptr(PerfCloexec), 0)
	if errno == unix.EFAULT {
		return nil
	}
	return fmt.Errorf("perf_event_open: %w", errno)
}

// Offsets in struct perf_event_attr of the pointer to a probe's name and of
// its offset (config1 and config2).
const (
	attrProbeName   = 56
	attrProbeOffset = 64
	attrProbeSize   = 72
)

// PerfProbeOpen is PerfEventOpen for the kprobe and uprobe PMUs, whose attr
// points to a function's name or a file's path in our memory.
func PerfProbeOpen(attr []byte, name string, offset uint64, pid, cpu int, group *FD, flags PerfFlags) (*FD, error) {
	if len(attr) < attrProbeSize {
		return nil, fmt.Errorf("perf_event_open: attr of %d bytes: %w", len(attr), unix.EINVAL)
	}
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return nil, fmt.Errorf("perf_event_open: probe name %q: %w", name, err)
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	binary.NativeEndian.PutUint64(attr[attrProbeName:], uint64(uintptr(unsafe.Pointer(p))))
	binary.NativeEndian.PutUint64(attr[attrProbeOffset:], offset)
	return PerfEventOpen(attr, pid, cpu, group, flags)
}

// maxQueried bounds the programs that PerfQueryBPF lists; the kernel takes 64
// at most (BPF_TRACE_MAX_PROGS).
const maxQueried = 64

// PerfQueryBPF lists the ids of the BPF programs that are attached to the
// tracepoint of an event, whoever attached them.
func PerfQueryBPF(fd *FD) ([]uint32, error) {
	var q struct { // struct perf_event_query_bpf
		size, count uint32
		ids         [maxQueried]uint32
	}
	q.size = maxQueried
	if err := perfIoctlPtr(fd, "QUERY_BPF", unix.PERF_EVENT_IOC_QUERY_BPF, unsafe.Pointer(&q)); err != nil {
		return nil, err
	}
	return q.ids[:min(q.count, maxQueried)], nil
}
