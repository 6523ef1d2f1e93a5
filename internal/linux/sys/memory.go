// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadMemory copies memory of the thread tid from addr (process_vm_readv). What
// it returns is less than all where the memory ends.
func ReadMemory(tid int, addr uint64, b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
	n, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, fmt.Errorf("process_vm_readv %d: %w", tid, errno)
	}
	return int(n), nil
}

// WriteMemory changes memory of the thread tid at addr (process_vm_writev), which it must
// be able to write itself.
func WriteMemory(tid int, addr uint64, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(b)}
	n, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_WRITEV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(&remote)), 1, 0)
	runtime.KeepAlive(b)
	switch {
	case errno != 0:
		return fmt.Errorf("process_vm_writev %d: %w", tid, errno)
	case int(n) != len(b):
		return fmt.Errorf("process_vm_writev %d: %d of %d bytes: %w", tid, n, len(b), unix.EFAULT)
	}
	return nil
}

// SealedMemory makes a file in memory with the given content, which can be run
// and not be changed.
func SealedMemory(name string, content []byte) (*FD, error) {
	raw, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all can be run
		raw, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	fd := own(raw)
	if _, err := fd.Writev([][]byte{content}); err != nil {
		fd.Close()
		return nil, fmt.Errorf("write memfd: %w", err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd.Int()), unix.F_ADD_SEALS, seals); err != nil {
		fd.Close()
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	return fd, nil
}

// OnFault calls fn, in which an access to a mapped file behind its end is an error.
func OnFault(fn func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		failed := recover()
		if at, ok := failed.(interface{ Addr() uintptr }); ok {
			err = fmt.Errorf("a fault at %#x: %w", at.Addr(), unix.EFAULT)
		} else if failed != nil {
			panic(failed)
		}
	}()
	fn()
	return nil
}

// SharedMemory makes a file in memory, of a size in bytes that nobody can change.
func SharedMemory(name string, size int) (*FD, error) {
	raw, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	fd := own(raw)
	if err := unix.Ftruncate(raw, int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("ftruncate: %w", err), fd.Close())
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(raw), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal memfd: %w", err), fd.Close())
	}
	return fd, nil
}
