// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// text is an open file whose content is made when it is opened, and whose writes are
// commands.
type text struct {
	content string
	write   func(string) error // nil: it cannot be written
	end     func()
}

func (t *text) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if off < 0 || off >= int64(len(t.content)) {
		return fuse.ReadResultData(nil), 0
	}
	n := copy(dest, t.content[off:])
	return fuse.ReadResultData(dest[:n]), 0
}

func (t *text) Write(_ context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	if t.write == nil {
		return 0, syscall.EBADF
	}
	if err := t.write(string(data)); err != nil {
		return 0, errno(err)
	}
	return uint32(len(data)), 0
}

func (t *text) Release(context.Context) syscall.Errno {
	t.end()
	return 0
}

// open opens a text file of a namespace, which cannot be removed meanwhile.
func (o *of) open(read func() (string, error), write func(string) error, flags uint32) (fs.FileHandle, uint32,
	syscall.Errno) {
	if err := o.fs.registry.Hold(o.ns); err != nil {
		return nil, 0, errno(err)
	}
	t := &text{write: write, end: func() { o.fs.registry.Release(o.ns) }}
	if flags&syscall.O_ACCMODE != syscall.O_WRONLY {
		var err error
		if t.content, err = read(); err != nil {
			t.end()
			return nil, 0, errno(err)
		}
	}
	return t, fuse.FOPEN_DIRECT_IO, 0
}

// options is the options file.
type options struct {
	fs.Inode
	of
}

func (f *options) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	r := f.fs.registry
	return f.open(func() (string, error) { return r.Show(f.ns) },
		func(text string) error {
			defer f.fs.keep(f.ns) // what was set before a line that fails is set
			return r.Configure(f.ns, text)
		}, flags)
}

func (f *options) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = optionsMode
	return 0
}

func (f *options) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return syscall.EPERM
	}
	out.Mode = optionsMode
	return 0
}

// textFile is a small file in root/.
type textFile struct {
	files
	read  func() (string, error)
	write func(string) error
}

func (f *textFile) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return f.open(f.read, f.write, flags)
}

func itoaLine(n int) string { return strconv.Itoa(n) + "\n" }

func boolLine(on bool) string {
	if on {
		return "1\n"
	}
	return "0\n"
}

// parseBool reads 0 or 1.
func parseBool(text string) (bool, error) {
	switch strings.TrimSpace(text) {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, fmt.Errorf("%q is neither 0 nor 1: %w", text, syscall.EINVAL)
}
