// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// iovMax is IOV_MAX: writev takes no more parts at once.
const iovMax = 1024

// VectorFile is an *os.File that also writes many byte slices in one system
// call. Slices may lie in a perf ring: nothing is copied in user space.
type VectorFile struct {
	*os.File
}

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

// dropWritten drops n bytes from the front of bufs: whole slices, and how many
// bytes of the first one that is left. Empty slices at the front go too.
func dropWritten(bufs [][]byte, n int64) ([][]byte, int) {
	for len(bufs) > 0 && n >= int64(len(bufs[0])) {
		n -= int64(len(bufs[0]))
		bufs = bufs[1:]
	}
	return bufs, int(n)
}
