// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SocketPair makes two connected Unix sockets that keep the bounds of messages
// (SOCK_SEQPACKET).
func SocketPair() (a, b *FD, err error) {
	raw, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return own(raw[0]), own(raw[1]), nil
}

// SetReceiveTimeout bounds how long Receive waits on a socket; its error is
// EAGAIN then. 0 is without end.
func SetReceiveTimeout(sock *FD, d time.Duration) error {
	tv := unix.NsecToTimeval(d.Nanoseconds())
	err := unix.SetsockoptTimeval(sock.Int(), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	runtime.KeepAlive(sock)
	if err != nil {
		return fmt.Errorf("setsockopt SO_RCVTIMEO: %w", err)
	}
	return nil
}

// StopReceive makes a Receive on a socket, now or later, find its end.
func StopReceive(sock *FD) error {
	err := unix.Shutdown(sock.Int(), unix.SHUT_RD)
	runtime.KeepAlive(sock)
	if err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	return nil
}

// Send sends one message, with a descriptor unless fd is nil, which stays the
// caller's.
func Send(sock *FD, data []byte, fd *FD) error {
	var rights []byte
	if fd != nil {
		rights = unix.UnixRights(fd.Int())
	}
	for {
		err := unix.Sendmsg(sock.Int(), data, rights, nil, unix.MSG_NOSIGNAL)
		runtime.KeepAlive(sock)
		runtime.KeepAlive(fd)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sendmsg: %w", err)
		}
		return nil
	}
}

// Receive receives one message into data, and the descriptor that came with it,
// or nil, which is the caller's. More descriptors than one are closed. 0 bytes
// are the end.
func Receive(sock *FD, data []byte) (int, *FD, error) {
	var rights [32]byte // of one descriptor, aligned
	for {
		n, nr, flags, _, err := unix.Recvmsg(sock.Int(), data, rights[:], unix.MSG_CMSG_CLOEXEC)
		runtime.KeepAlive(sock)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, nil, fmt.Errorf("recvmsg: %w", err)
		}
		fd := firstRight(rights[:nr])
		if flags&unix.MSG_TRUNC != 0 {
			fd.Close()
			return 0, nil, fmt.Errorf("recvmsg: message of more than %d bytes: %w", len(data), unix.EMSGSIZE)
		}
		return n, fd, nil
	}
}

// firstRight owns the first descriptor of control messages and closes the others.
func firstRight(control []byte) *FD {
	if len(control) < unix.CmsgLen(4) {
		return nil
	}
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var first *FD
	for i := range list {
		raw, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			continue
		}
		for _, r := range raw {
			if first == nil {
				first = own(r)
				continue
			}
			unix.Close(r)
		}
	}
	return first
}

// ReceiveConn is Receive for a connection of package net: its deadline holds.
func ReceiveConn(conn *net.UnixConn, data []byte) (int, *FD, error) {
	var rights [32]byte
	n, nr, flags, _, err := conn.ReadMsgUnix(data, rights[:])
	fd := firstRight(rights[:nr])
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("message of more than %d bytes: %w", len(data), unix.EMSGSIZE)
	}
	if err != nil {
		fd.Close()
		return 0, nil, err
	}
	return n, fd, nil
}

// Peer is the process that connected a Unix socket: a pidfd of it, and its number,
// user and group when it did.
type Peer struct {
	Pidfd    *FD
	PID      int
	UID, GID uint32
}

// PeerOf tells who connected a Unix socket (SO_PEERCRED, and SO_PEERPIDFD of Linux
// 6.5). A process that is gone is ESRCH. The caller closes Pidfd.
func PeerOf(conn *net.UnixConn) (*Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p *Peer
	if e := raw.Control(func(fd uintptr) { p, err = peerOf(int(fd)) }); e != nil {
		return nil, e
	}
	return p, err
}

func peerOf(fd int) (*Peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, fmt.Errorf("getsockopt SO_PEERCRED: %w", err)
	}
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return nil, fmt.Errorf("getsockopt SO_PEERPIDFD: %w", err)
	}
	return &Peer{own(pidfd), int(cred.Pid), cred.Uid, cred.Gid}, nil
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

// Rewind sets the place at which a file is read to its start.
func (f *FD) Rewind() error {
	_, err := unix.Seek(f.Int(), 0, io.SeekStart)
	runtime.KeepAlive(f)
	if err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	return nil
}
