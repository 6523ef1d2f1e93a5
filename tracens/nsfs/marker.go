// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/tracens/events"
)

// markerSystem is the first part of the event's name, marker.NAMESPACE:print.
const markerSystem = "marker"

// marker is a file to which programs write lines of text, each an event. Nobody has to
// listen.
type marker struct {
	files
	event *events.Event
}

var (
	_ fs.NodeOpener = (*marker)(nil)
	_ fs.NodeWriter = (*marker)(nil)
)

// maxLine bounds a line, in bytes: what is longer is cut.
const maxLine = 4000

func newMarker(o of) *marker {
	d, err := events.Parse("print __rel_loc char[] text")
	if err != nil {
		panic(err) // it is right
	}
	return &marker{files{of: o, kind: syscall.S_IFREG, mask: 0o222}, o.set().Add(markerSystem, d, nil)}
}

func (f *marker) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	// It holds nothing: a shell may keep it open for ever.
	return nil, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NONSEEKABLE | fuse.FOPEN_PARALLEL_DIRECT_WRITES |
		fuse.FOPEN_NOFLUSH, 0
}

func (f *marker) Write(ctx context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	tid, err := caller(ctx)
	if err != nil {
		return 0, errno(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		line = line[:min(len(line), maxLine)]
		b := binary.NativeEndian.AppendUint32(nil, uint32(len(line)+1)<<16)
		b = append(append(b, line...), 0)
		if err := f.set().Publish(writer(tid), f.event, b); err != nil && !errors.Is(err, syscall.EBADF) {
			return 0, errno(err)
		}
	}
	return uint32(len(data)), 0
}
