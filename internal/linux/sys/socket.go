// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

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
