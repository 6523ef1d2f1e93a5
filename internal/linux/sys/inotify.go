// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What an Inotify watches for, and what its events are (inotify(7)).
const (
	InMovedTo    = unix.IN_MOVED_TO
	InCreate     = unix.IN_CREATE
	InCloseWrite = unix.IN_CLOSE_WRITE
	InIsDir      = unix.IN_ISDIR
	InOverflow   = unix.IN_Q_OVERFLOW // events were lost; Watch is -1
	InIgnored    = unix.IN_IGNORED    // the directory of Watch is gone
)

// InotifyEvent is struct inotify_event.
type InotifyEvent struct {
	Watch int32
	Mask  uint32
	Name  string // in the directory of Watch
}

// Inotify watches directories. One goroutine may read while another closes it.
type Inotify struct {
	file *os.File
	buf  [1 << 14]byte
}

// NewInotify makes an Inotify without watches.
func NewInotify() (*Inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify_init1: %w", err)
	}
	return &Inotify{file: os.NewFile(uintptr(fd), "inotify")}, nil
}

// AddDir watches a directory, not through a link. A directory that is watched
// has the same number again.
func (n *Inotify) AddDir(dir string, mask uint32) (watch int32, err error) {
	conn, err := n.file.SyscallConn()
	if err != nil {
		return -1, err
	}
	var wd int
	var addErr error
	err = conn.Control(func(fd uintptr) {
		wd, addErr = unix.InotifyAddWatch(int(fd), dir, mask|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW|unix.IN_EXCL_UNLINK)
	})
	if err == nil {
		err = addErr
	}
	if err != nil {
		return -1, &os.PathError{Op: "watch", Path: dir, Err: err}
	}
	return int32(wd), nil
}

// Read waits for events. After Close it returns an error that is os.ErrClosed.
func (n *Inotify) Read() ([]InotifyEvent, error) {
	size, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, err
	}
	var list []InotifyEvent
	for b := n.buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
		name := int(binary.NativeEndian.Uint32(b[12:]))
		if name > len(b)-unix.SizeofInotifyEvent {
			break
		}
		text, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+name], []byte{0})
		list = append(list, InotifyEvent{
			Watch: int32(binary.NativeEndian.Uint32(b)), Mask: binary.NativeEndian.Uint32(b[4:]), Name: string(text),
		})
		b = b[unix.SizeofInotifyEvent+name:]
	}
	return list, nil
}

// Close ends all watches and a Read that waits.
func (n *Inotify) Close() error { return n.file.Close() }
