// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/events"
)

// pipeFile is trace_pipe: events as lines of text, as they come. Each reader has all.
type pipeFile struct{ files }

// pipe is one open of it. It has enabled all events.
type pipe struct {
	of
	reader *events.Reader
	flags  uint32

	mu   sync.Mutex
	rest string // of what was printed
	lost uint64 // that was told
}

var (
	_ fs.NodeOpener   = (*pipeFile)(nil)
	_ fs.FileReader   = (*pipe)(nil)
	_ fs.FileReleaser = (*pipe)(nil)
)

func (f *pipeFile) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	r, e := f.listen((*events.Set).Listen)
	if e != 0 {
		return nil, 0, e
	}
	return &pipe{of: f.of, reader: r, flags: flags}, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NONSEEKABLE, 0
}

func (p *pipe) Release(context.Context) syscall.Errno {
	p.reader.Close()
	p.fs.registry.Release(p.ns)
	return 0
}

// Read waits for events, until the program is interrupted.
func (p *pipe) Read(ctx context.Context, dest []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rest == "" {
		list, e := next(ctx, p.reader, p.flags)
		if e != 0 {
			return nil, e
		}
		p.print(list)
	}
	n := copy(dest, p.rest)
	p.rest = p.rest[n:]
	return fuse.ReadResultData(dest[:n]), 0
}

// print makes lines of records.
func (p *pipe) print(list []events.Record) {
	var b strings.Builder
	if lost := p.reader.Lost(); lost > p.lost {
		fmt.Fprintf(&b, "[LOST %d EVENTS]\n", lost-p.lost)
		p.lost = lost
	}
	for i := range list {
		r := &list[i]
		comm := "<...>"
		if st, err := procfs.New("").Proc(r.TID).Status(); err == nil {
			comm = container.Printable(st.Name)
		}
		name := r.Event.Name
		if r.Event.System != events.SystemName {
			name = r.Event.System + ":" + name
		}
		at := sys.MonotonicTime(r.Time).Format("15:04:05.000000")
		fmt.Fprintf(&b, "%16s-%-7d %s: %s: %s\n", comm, r.TID, at, name, r.Text())
	}
	p.rest = b.String()
}
