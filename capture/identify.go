// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"strings"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// identifier puts build-ids into the MMAP2 records of the kernel before they
// are written: the id takes the place of device and inode.
// snapshot.IDReader says why the kernel is not asked to.
type identifier struct {
	fs     procfs.FS
	reader *snapshot.IDReader
	known  map[fileKey][]byte // empty: a file without an id
	asked  int                // how often a file was not known
}

// fileKey tells files apart, also where the subvolumes of a file system show
// one device and the same inode numbers.
type fileKey struct {
	maj, min   uint32
	inode, gen uint64
	mnt        uint64
	path       string
}

const (
	// maxKnown bounds the files that are remembered.
	maxKnown = 1 << 16
	// maxNeighbours bounds the processes of a mount namespace that are
	// tried for a file whose own process has ended.
	maxNeighbours = 8
)

func newIdentifier(fsys procfs.FS) *identifier {
	return &identifier{fs: fsys, reader: snapshot.NewIDReader(), known: make(map[fileKey][]byte)}
}

func (x *identifier) close() { x.reader.Close() }

// identify finds the build-id of the mapped file; none if it has none or
// nothing leads to it any more. mnt is the mount namespace of the process (0:
// not known), mounts those of all processes.
func (x *identifier) identify(m *perf.Mmap2, mnt uint64, mounts map[int32]uint64) []byte {
	if m.Ino == 0 || !strings.HasPrefix(m.Filename, "/") || strings.HasPrefix(m.Filename, "//") {
		return nil
	}
	key := fileKey{m.Maj, m.Min, m.Ino, m.InoGen, mnt, m.Filename}
	if id, ok := x.known[key]; ok {
		return id
	}
	x.asked++
	id, ok := x.reader.Mapped(x.fs.Proc(int(m.PID)), m)
	if !ok {
		id, ok = x.neighbour(m, mnt, mounts)
	}
	if !ok {
		return nil
	}
	if len(x.known) >= maxKnown {
		clear(x.known)
	}
	x.known[key] = id
	return id
}

// neighbour looks the file up by its path, below the root of another process
// of the mount namespace.
func (x *identifier) neighbour(m *perf.Mmap2, mnt uint64, mounts map[int32]uint64) ([]byte, bool) {
	self := x.fs.Self()
	if host, err := self.Namespace("mnt"); mnt == 0 || err == nil && host == mnt {
		return x.reader.AtPath(self, m)
	}
	tried := 0
	for pid, ns := range mounts {
		if ns != mnt || pid == m.PID {
			continue
		}
		if id, ok := x.reader.AtPath(x.fs.Proc(int(pid)), m); ok {
			return id, true
		}
		if tried++; tried == maxNeighbours {
			break
		}
	}
	return nil, false
}

// Places in an MMAP2 record (enum perf_event_type, PERF_RECORD_MMAP2): the
// union of device and inode with the build-id.
const (
	mmap2MiscAt    = 4
	mmap2IDSizeAt  = 40
	mmap2IDAt      = 44
	mmap2IDEnd     = 64
	mmap2IDMaxSize = mmap2IDEnd - mmap2IDAt
)

// stamp gives the raw MMAP2 record the form with the build-id, or the plain
// one if there is none. The bit in misc may have been set by the kernel for
// another recording.
func stamp(raw []byte, id []byte) {
	if len(raw) < mmap2IDEnd {
		return
	}
	misc := perf.Misc(nativeOrder.Uint16(raw[mmap2MiscAt:])) &^ perf.MiscMmapBuildID
	if n := len(id); n > 0 && n <= mmap2IDMaxSize {
		misc |= perf.MiscMmapBuildID
		clear(raw[mmap2IDSizeAt:mmap2IDEnd])
		raw[mmap2IDSizeAt] = byte(n)
		copy(raw[mmap2IDAt:], id)
	}
	nativeOrder.PutUint16(raw[mmap2MiscAt:], uint16(misc))
}
