// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/tracens/events"
)

// recordsFile is the stream of all events for who records them on the host
// (events.Decoder): it lies beside the options, where containers do not see it.
type recordsFile struct {
	fs.Inode
	of
}

const recordsMode = syscall.S_IFREG | 0o440

// records is one open of it.
type records struct {
	of
	reader *events.Reader
	flags  uint32

	mu      sync.Mutex
	encoder events.Encoder
	rest    []byte
}

var (
	_ fs.NodeOpener    = (*recordsFile)(nil)
	_ fs.NodeGetattrer = (*recordsFile)(nil)
	_ fs.FileReader    = (*records)(nil)
	_ fs.FileReleaser  = (*records)(nil)
)

func (f *recordsFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = recordsMode
	return 0
}

func (f *recordsFile) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	r, e := f.listen((*events.Set).ListenHost)
	if e != 0 {
		return nil, 0, e
	}
	p := &records{of: f.of, reader: r, flags: flags}
	p.rest = p.encoder.Describe(nil, f.set().All())
	return p, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NONSEEKABLE, 0
}

// listen holds the namespace and listens to all of its events, in the given way.
func (o *of) listen(way func(*events.Set, func(string) bool) (*events.Reader, error)) (*events.Reader, syscall.Errno) {
	if err := o.fs.registry.Hold(o.ns); err != nil {
		return nil, errno(err)
	}
	r, err := way(o.set(), nil)
	if err != nil {
		o.fs.registry.Release(o.ns)
		return nil, errno(err)
	}
	return r, 0
}

// next waits for records, unless the file is not to be waited for.
func next(ctx context.Context, r *events.Reader, flags uint32) ([]events.Record, syscall.Errno) {
	list := r.Take()
	if len(list) > 0 {
		return list, 0
	}
	if flags&syscall.O_NONBLOCK != 0 {
		return nil, syscall.EAGAIN
	}
	list, err := r.Next(ctx)
	if err != nil {
		return nil, syscall.EINTR
	}
	return list, 0
}

func (p *records) Release(context.Context) syscall.Errno {
	p.reader.Close()
	p.fs.registry.Release(p.ns)
	return 0
}

func (p *records) Read(ctx context.Context, dest []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rest) == 0 {
		list, e := next(ctx, p.reader, p.flags)
		if e != 0 {
			return nil, e
		}
		p.rest = p.encoder.Append(nil, list, p.reader.Lost())
	}
	n := copy(dest, p.rest)
	p.rest = p.rest[n:]
	return fuse.ReadResultData(dest[:n]), 0
}
