// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// FileSystem is what a file system says of itself.
type FileSystem struct {
	Ext4 bool   // ext2, ext3 or ext4
	Free uint64 // bytes that an ordinary user may still take
}

// FileSystemOf asks the file system that f is on.
func FileSystemOf(f *os.File) (FileSystem, error) {
	var st unix.Statfs_t
	err := control(f, func(fd int) error { return unix.Fstatfs(fd, &st) })
	if err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return FileSystem{Ext4: st.Type == unix.EXT4_SUPER_MAGIC, Free: st.Bavail * uint64(st.Bsize)}, nil
}

// InMemory reports whether a directory is on tmpfs.
func InMemory(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// Preallocate makes sure that n bytes from off on can be written, as far as the
// disk is concerned. The file's size stays.
func Preallocate(f *os.File, off, n int64) error {
	err := control(f, func(fd int) error {
		for {
			err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
			if !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// control calls fn with the descriptor of f.
func control(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("use descriptor: %w", err)
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}
