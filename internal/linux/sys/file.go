// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iovMax is IOV_MAX: writev takes no more parts at once.
const iovMax = 1024

// VectorFile is an *os.File that also writes many byte slices in one system
// call. Slices may lie in a perf ring: nothing is copied in user space.
type VectorFile struct {
	*os.File
	// NoSched is for regular files, writing to which takes a moment: Go's
	// scheduler is not told, which otherwise wakes its monitor thread at each
	// write. On a disk that stalls, a garbage collection waits for one piece
	// of briefPiece bytes.
	NoSched bool
}

// noSchedPiece is how much a brief write writes at once.
const noSchedPiece = 256 << 10

// Writev writes all of bufs and returns how many bytes went out. It writes
// again after a short write; bufs is not changed.
func (f VectorFile) Writev(bufs [][]byte) (int64, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var done int64
	var failed error
	err = conn.Write(func(fd uintptr) bool {
		if f.NoSched {
			done, failed = writePieces(fd, bufs)
			return true
		}
		done, failed = writev(int(fd), bufs, done)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return done, &os.PathError{Op: "writev", Path: f.Name(), Err: err}
	}
	return done, nil
}

// WriteAt writes all of b at the offset off, see os.File.
func (f VectorFile) WriteAt(b []byte, off int64) (int, error) {
	if !f.NoSched || len(b) == 0 {
		return f.File.WriteAt(b, off)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	done := 0
	var failed syscall.Errno
	err = conn.Write(func(fd uintptr) bool {
		for done < len(b) {
			piece := b[done:min(len(b), done+noSchedPiece)]
			n, _, errno := unix.RawSyscall6(unix.SYS_PWRITE64, fd, uintptr(unsafe.Pointer(&piece[0])),
				uintptr(len(piece)), uintptr(off)+uintptr(done), 0, 0)
			if errno != 0 && errno != unix.EINTR {
				failed = errno
				break
			}
			if errno == 0 {
				done += int(n)
			}
		}
		return true
	})
	if err == nil && failed != 0 {
		err = failed
	}
	if err != nil {
		return done, &os.PathError{Op: "pwrite", Path: f.Name(), Err: err}
	}
	return done, nil
}

// ReadBusy reads as f.Read does, from a file whose reading is work and not
// waiting: Go's scheduler is not told, which otherwise wakes its monitor thread
// all the time. A garbage collection waits for the end of the call.
func ReadBusy(f *os.File, b []byte) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil || len(b) == 0 {
		return 0, err
	}
	var n uintptr
	var errno syscall.Errno
	err = conn.Read(func(fd uintptr) bool {
		n, _, errno = unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errno != 0:
		return 0, &os.PathError{Op: "read", Path: f.Name(), Err: errno}
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

// Writev writes all of bufs to the descriptor, see VectorFile.Writev.
func (f *FD) Writev(bufs [][]byte) (int64, error) {
	n, err := writev(f.Int(), bufs, 0)
	if err != nil {
		return n, fmt.Errorf("writev: %w", err)
	}
	return n, nil
}

// writev writes bufs from the byte offset done on and returns the new offset.
func writev(fd int, bufs [][]byte, done int64) (int64, error) {
	bufs, skip := dropWritten(bufs, done)
	var parts [iovMax][]byte
	for len(bufs) > 0 {
		n := copy(parts[:], bufs)
		parts[0] = parts[0][skip:]
		wrote, err := unix.Writev(fd, parts[:n])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		if wrote == 0 {
			return done, io.ErrShortWrite
		}
		done += int64(wrote)
		bufs, skip = dropWritten(bufs, int64(skip+wrote))
	}
	return done, nil
}

// writePieces writes bufs piece by piece.
func writePieces(fd uintptr, bufs [][]byte) (done int64, err error) {
	var iov [64]unix.Iovec
	bufs, skip := dropWritten(bufs, 0)
	for len(bufs) > 0 {
		n, left := 0, noSchedPiece
		for _, b := range bufs[:min(len(bufs), len(iov))] {
			if n == 0 {
				b = b[skip:]
			}
			b = b[:min(len(b), left)]
			if left -= len(b); len(b) > 0 {
				iov[n].Base = &b[0]
				iov[n].SetLen(len(b))
				n++
			}
			if left == 0 {
				break
			}
		}
		wrote, _, errno := unix.RawSyscall(unix.SYS_WRITEV, fd, uintptr(unsafe.Pointer(&iov[0])), uintptr(n))
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return done, errno
		case wrote == 0:
			return done, io.ErrShortWrite
		}
		done += int64(wrote)
		bufs, skip = dropWritten(bufs, int64(skip)+int64(wrote))
	}
	return done, nil
}

// dropWritten drops n bytes from the front of bufs: whole slices, and how many
// bytes of the first one that is left. Empty slices at the front go too.
func dropWritten(bufs [][]byte, n int64) ([][]byte, int) {
	for len(bufs) > 0 && n >= int64(len(bufs[0])) {
		n -= int64(len(bufs[0]))
		bufs = bufs[1:]
	}
	return bufs, int(n)
}
