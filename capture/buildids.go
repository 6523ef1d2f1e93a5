// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"errors"
	"time"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
)

// buildIDResolver puts build-ids into the MMAP2 records of the kernel before they
// are written: the id takes the place of device and inode.
// snapshot.IDReader says why the kernel is not asked to.
//
// A file that was looked at is known from then on. After recheck rounds it is
// looked up again, to see whether it was written to.
type buildIDResolver struct {
	fs      procfs.FS
	reader  *binaries.IDReader
	hostMnt uint64
	known   map[binaries.FileKey]*resolvedFile
	holders map[binaries.FileKey]holder // by file, less the inode's generation
	paths   map[string]string           // interned
	round   uint64
	lookups int // how often a file was not known
	unknown resolvedFile
}

// resolvedFile is what is known of a file that was mapped.
type resolvedFile struct {
	id        []byte // empty: it has none
	key       binaryKey
	state     binaries.FileState // when the id was read
	round     uint64             // when the state was looked at last
	collected *binary            // what the keeper made of it, nil: not offered
	// timedOut: its file system did not answer in time.
	timedOut bool
}

// holder is where a process has had a file mapped since before the recording.
type holder struct {
	pid       int32
	addr, len uint64
}

const (
	// maxKnown bounds the files that are remembered, and the paths.
	maxKnown = 1 << 16
	// recheck is a second.
	recheck = uint64(time.Second / tick)
	// maxNeighbours bounds the processes of a mount namespace that are
	// tried for a file whose own process has ended.
	maxNeighbours = 8
)

func newBuildIDResolver(fsys procfs.FS, e *procroot.Access) *buildIDResolver {
	x := &buildIDResolver{
		fs: fsys, reader: binaries.NewIDReader(e),
		known: make(map[binaries.FileKey]*resolvedFile), paths: make(map[string]string),
	}
	x.hostMnt, _ = fsys.Self().Namespace("mnt") // 0: like a namespace that is not known
	return x
}

func (x *buildIDResolver) close() { x.reader.Close() }

// mapping is an MMAP2 record of the kernel. Its path lies in the record.
type mapping struct {
	pid             int32
	addr, len       uint64
	maj, min        uint32
	inode, inodeGen uint64
	path            []byte
}

// Places in an MMAP2 record (enum perf_event_type, PERF_RECORD_MMAP2). Device
// and inode share theirs with the build-id.
const (
	mmap2MiscAt    = 4
	mmap2PIDAt     = 8
	mmap2AddrAt    = 16
	mmap2LenAt     = 24
	mmap2MajAt     = 40
	mmap2MinAt     = 44
	mmap2InodeAt   = 48
	mmap2GenAt     = 56
	mmap2PathAt    = 72
	mmap2IDSizeAt  = 40
	mmap2IDAt      = 44
	mmap2IDEnd     = 64
	mmap2IDMaxSize = mmap2IDEnd - mmap2IDAt
)

// parseMapping reads an MMAP2 record as the kernel writes it, whose bit for a
// build-id means nothing (see stamp). It is not ok if the record is cut off.
func parseMapping(raw []byte) (m mapping, ok bool) {
	if len(raw) < mmap2PathAt {
		return m, false
	}
	end := bytes.IndexByte(raw[mmap2PathAt:], 0)
	if end < 0 {
		return m, false
	}
	return mapping{
		pid: raw32(raw, mmap2PIDAt), addr: nativeOrder.Uint64(raw[mmap2AddrAt:]), len: nativeOrder.Uint64(raw[mmap2LenAt:]),
		maj: nativeOrder.Uint32(raw[mmap2MajAt:]), min: nativeOrder.Uint32(raw[mmap2MinAt:]),
		inode: nativeOrder.Uint64(raw[mmap2InodeAt:]), inodeGen: nativeOrder.Uint64(raw[mmap2GenAt:]),
		path: raw[mmap2PathAt : mmap2PathAt+end],
	}, true
}

// isFile: the path of a mapping is that of a file. "/" is what is left of the path
// of one whose mount is not attached to anything: runc runs from such a copy of
// itself. Memory with generated code is none, whatever its name.
func isFile[T string | []byte](path T) bool {
	return len(path) > 0 && path[0] == '/' && (len(path) == 1 || path[1] != '/') && !perf.HoldsCode(path)
}

// record is the mapping as IDReader wants it.
func (m *mapping) record(path string) *perf.Mmap2 {
	return &perf.Mmap2{PID: m.pid, TID: m.pid, Addr: m.addr, Len: m.len, Maj: m.maj, Min: m.min, Ino: m.inode, InoGen: m.inodeGen, Filename: path}
}

// resolve says what is known of the mapped file: nothing, if it is none or
// nothing leads to it any more. in is the mount namespace of the process (zero:
// not known), mounts those of all processes. The result is valid until the
// next call.
func (x *buildIDResolver) resolve(m *mapping, in mountNS, mounts map[int32]mountNS) *resolvedFile {
	if !isFile(m.path) || m.inode == 0 {
		x.unknown = resolvedFile{}
		return &x.unknown
	}
	key := binaries.FileKey{Major: m.maj, Minor: m.min, Inode: m.inode, Gen: in.inodeGeneration(m.inodeGen), Mnt: in.ino, Path: x.intern(m.path)}
	if f := x.known[key]; f != nil {
		if x.round-f.round < recheck {
			return f
		}
		if !f.timedOut && !x.changed(f, m, in.ino) {
			f.round = x.round
			return f
		}
	}
	return x.lookUp(key, m, in, mounts)
}

// lookUp finds out about a file that is not known, or has changed.
func (x *buildIDResolver) lookUp(key binaries.FileKey, m *mapping, in mountNS, mounts map[int32]mountNS) *resolvedFile {
	rec := m.record(key.Path)
	x.unknown = resolvedFile{key: keyOf(rec, in)}
	proc := x.fs.Proc(int(m.pid))
	if x.reader.OnFUSE(proc, rec) {
		return &x.unknown
	}
	x.lookups++
	// First the state: what changes after it will be seen.
	state := x.state(rec, in.ino)
	id, err := x.reader.Mapped(proc, rec)
	silent := errors.Is(err, procroot.ErrTimeout)
	if err != nil && !silent {
		id, err = x.neighbour(rec, in, mounts)
		silent = errors.Is(err, procroot.ErrTimeout)
	}
	if err != nil && !silent {
		id, err = x.fromHolder(rec, in)
		silent = errors.Is(err, procroot.ErrTimeout)
	}
	if err != nil && !silent {
		delete(x.known, key)
		return &x.unknown
	}
	if len(x.known) >= maxKnown {
		clear(x.known)
	}
	rec.BuildID = id
	f := &resolvedFile{id: id, key: keyOf(rec, in), state: state, round: x.round, timedOut: silent}
	x.known[key] = f
	return f
}

// changed: the file was written to since its id was read. What cannot be seen
// has not changed: its process has ended, or something else has its path.
func (x *buildIDResolver) changed(f *resolvedFile, m *mapping, mnt uint64) bool {
	if f.state == (binaries.FileState{}) {
		return false
	}
	now := x.state(m.record(f.key.Path), mnt)
	return now != f.state && now != (binaries.FileState{})
}

// state looks the file up at its path, as its process sees it.
func (x *buildIDResolver) state(m *perf.Mmap2, mnt uint64) binaries.FileState {
	if mnt != 0 && mnt == x.hostMnt {
		return x.reader.OwnState(m)
	}
	return x.reader.State(x.fs.Proc(int(m.PID)), m)
}

// neighbour looks the file up by its path, below the root of another process
// of the mount namespace.
func (x *buildIDResolver) neighbour(m *perf.Mmap2, in mountNS, mounts map[int32]mountNS) ([]byte, error) {
	if in.ino == 0 || in.ino == x.hostMnt {
		return x.reader.AtPath(x.fs.Self(), m)
	}
	tried := 0
	for pid, ns := range mounts {
		if ns != in || pid == m.PID {
			continue
		}
		id, err := x.reader.AtPath(x.fs.Proc(int(pid)), m)
		if err == nil || errors.Is(err, procroot.ErrTimeout) {
			return id, err
		}
		if tried++; tried == maxNeighbours {
			break
		}
	}
	return nil, errGone
}

// addHolder takes note of a mapping that a snapshot tells of.
func (x *buildIDResolver) addHolder(m *perf.Mmap2, in mountNS) {
	key := holderKey(m, in)
	if _, ok := x.holders[key]; ok {
		return
	}
	if x.holders == nil || len(x.holders) >= maxKnown {
		x.holders = make(map[binaries.FileKey]holder)
	}
	x.holders[key] = holder{m.PID, m.Addr, m.Len}
}

// fromHolder looks the file up in the process that had it mapped already when the
// recording began, as nothing else leads to it: something may be mounted over its
// path. As long as that process has it, no other file can have got its inode.
func (x *buildIDResolver) fromHolder(m *perf.Mmap2, in mountNS) ([]byte, error) {
	h, ok := x.holders[holderKey(m, in)]
	if !ok || h.pid == m.PID {
		return nil, errGone
	}
	there := *m
	there.PID, there.Addr, there.Len = h.pid, h.addr, h.len
	return x.reader.Mapped(x.fs.Proc(int(h.pid)), &there)
}

func holderKey(m *perf.Mmap2, in mountNS) binaries.FileKey {
	return binaries.FileKey{Major: m.Maj, Minor: m.Min, Inode: m.Ino, Gen: in.inodeGeneration(0), Mnt: in.ino, Path: m.Filename}
}

func (x *buildIDResolver) intern(b []byte) string {
	if s, ok := x.paths[string(b)]; ok {
		return s
	}
	if len(x.paths) >= maxKnown {
		clear(x.paths)
	}
	s := string(b)
	x.paths[s] = s
	return s
}

// keyOf is the key of a mapped file for the keeper. Of its generation only the
// part is in it that tells mount namespaces apart: not every snapshot has the rest.
func keyOf(m *perf.Mmap2, in mountNS) binaryKey {
	if len(m.BuildID) > 0 {
		return binaryKey{id: string(m.BuildID), FileKey: binaries.FileKey{Path: m.Filename}}
	}
	return binaryKey{FileKey: binaries.FileKey{Major: m.Maj, Minor: m.Min, Inode: m.Ino, Gen: in.inodeGeneration(0), Mnt: in.ino, Path: m.Filename}}
}

// setBuildID gives the raw MMAP2 record the form with the build-id, or the plain
// one if there is none. The bit in misc may have been set by the kernel for
// another recording.
func setBuildID(raw []byte, id []byte) {
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
