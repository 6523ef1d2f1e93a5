// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"math"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// resolver puts build-ids into the MMAP2 records of the kernel before they
// are written: the id takes the place of device and inode.
// snapshot.IDReader says why the kernel is not asked to.
//
// A file that was looked at is known from then on. In each pass that tells of it
// again it is looked up at its path: it may have been written to, or be another
// one that got the inode's number. If it has not changed by the end of a pass, it
// is what all mappings before were of. A mapping that is not clearly later than
// the last change is asked about in its process; once that has ended, nobody knows.
type resolver struct {
	fs      procfs.FS
	table   *proctable.Table
	reader  *IDReader
	hostMnt uint64
	known   map[FileKey]*resolvedFile
	holders map[FileKey]holder // by file, less the inode's generation
	paths   map[string]string  // interned
	round   uint64
	pass    uint64
	lookups int   // how often a file was not known
	toWall  int64 // from CLOCK_MONOTONIC to the wall clock, in nanoseconds
	unknown resolvedFile
}

// resolvedFile is what is known of a file that was mapped.
type resolvedFile struct {
	id        []byte // empty: it has none
	key       binaryKey
	state     FileState // when the id was read
	round     uint64    // when it was looked up
	pass      uint64    // when the state was looked at last
	collected *binary   // what the collector made of it, nil: not offered
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
	// recheck is after how many rounds a file system that did not answer is asked
	// again: a second.
	recheck = 4
	// maxNeighbours bounds the processes of a mount namespace that are
	// tried for a file whose own process has ended.
	maxNeighbours = 8
	// maxStates is the same for who looks whether a file has changed.
	maxStates = 2
	// tickOfFiles is how much earlier than true the time of a change may be: a tick
	// of the kernel.
	tickOfFiles = 10_000_000
)

func newResolver(fsys procfs.FS, a *procroot.Access, t *proctable.Table) *resolver {
	x := &resolver{
		fs: fsys, table: t, reader: NewIDReader(a),
		known: make(map[FileKey]*resolvedFile), paths: make(map[string]string),
	}
	x.toWall = wallOffset()
	x.hostMnt, _ = fsys.Self().Namespace("mnt") // 0: like a namespace that is not known
	return x
}

// wallOffset is how much the wall clock is ahead of CLOCK_MONOTONIC.
func wallOffset() int64 {
	wall, err := sys.ClockRealtime.Now()
	mono, err2 := sys.ClockMonotonic.Now()
	if err != nil || err2 != nil {
		return math.MinInt64 / 2 // no file counts as old enough
	}
	return int64(wall) - int64(mono)
}

func (x *resolver) close() { x.reader.Close() }

// IsFile: the path of a mapping is that of a file. "/" is what is left of the path
// of one whose mount is not attached to anything: runc runs from such a copy of
// itself. Memory with generated code is none, whatever its name.
func IsFile[T string | []byte](path T) bool {
	return len(path) > 0 && path[0] == '/' && (len(path) == 1 || path[1] != '/') && !perf.HoldsCode(path)
}

// record returns the mapping as IDReader wants it.
func record(m *perf.RawMmap2, path string) *perf.Mmap2 {
	return &perf.Mmap2{PID: m.PID, TID: m.PID, Addr: m.Addr, Len: m.Len, Maj: m.Major, Min: m.Minor, Ino: m.Inode,
		InoGen: m.InodeGen, Filename: path}
}

// resolve says what is known of the mapped file: nothing, if it is none or
// nothing leads to it any more. in is the mount namespace of the process (zero:
// not known), time that of the record. The result is valid until the next call.
func (x *resolver) resolve(m *perf.RawMmap2, in proctable.MountNS, time uint64) *resolvedFile {
	if !IsFile(m.Path) || m.Inode == 0 {
		x.unknown = resolvedFile{}
		return &x.unknown
	}
	key := FileKey{Major: m.Major, Minor: m.Minor, Inode: m.Inode, Gen: in.InodeGen(m.InodeGen), Mnt: in.Ino,
		Path: x.intern(m.Path)}
	f := x.known[key]
	switch {
	case f == nil:
	case f.timedOut && x.round-f.round < recheck:
		return f
	case f.timedOut || !x.isBefore(&f.state, time):
	case f.pass == x.pass || !x.changed(f, m, in):
		f.pass = x.pass
		return f
	}
	return x.lookUp(key, m, in, time)
}

// isBefore reports whether a file was changed last before a time of records, 0 being
// not known. A file that nobody could look at was.
func (x *resolver) isBefore(s *FileState, time uint64) bool {
	return *s == (FileState{}) || time == 0 || s.sec*1_000_000_000+s.nanosec <= int64(time)+x.toWall-tickOfFiles
}

// lookUp finds out about a file that is not known, or has changed.
func (x *resolver) lookUp(key FileKey, m *perf.RawMmap2, in proctable.MountNS, time uint64) *resolvedFile {
	rec := record(m, key.Path)
	x.unknown = resolvedFile{key: keyOf(rec, in)}
	proc := x.fs.Proc(int(m.PID))
	if x.reader.OnFUSE(proc, rec) {
		return &x.unknown
	}
	x.lookups++
	// First the state: what changes after it will be seen.
	state := x.state(rec, in)
	id, err := x.reader.Mapped(proc, rec)
	timedOut := errors.Is(err, procroot.ErrTimeout)
	if err != nil && !timedOut {
		id, err = x.neighbour(rec, in, time)
		timedOut = errors.Is(err, procroot.ErrTimeout)
	}
	if err != nil && !timedOut {
		id, err = x.fromHolder(rec, in)
		timedOut = errors.Is(err, procroot.ErrTimeout)
	}
	if err != nil && !timedOut {
		delete(x.known, key)
		return &x.unknown
	}
	if len(x.known) >= maxKnown {
		clear(x.known)
	}
	rec.BuildID = id
	f := &resolvedFile{id: id, key: keyOf(rec, in), state: state, round: x.round, pass: x.pass, timedOut: timedOut}
	if !x.isBefore(&state, time) {
		// What is at the path may not be what was mapped.
		delete(x.known, key)
		x.unknown = *f
		return &x.unknown
	}
	x.known[key] = f
	return f
}

// changed: the file was written to since its id was read, or another one has its
// number. What cannot be seen has not changed: something else has its path.
func (x *resolver) changed(f *resolvedFile, m *perf.RawMmap2, in proctable.MountNS) bool {
	if f.state == (FileState{}) {
		return false
	}
	now := x.state(record(m, f.key.Path), in)
	return now != f.state && now != (FileState{})
}

// state looks the file up at its path, as its process sees it or, if that has
// ended, another one of its mount namespace.
func (x *resolver) state(m *perf.Mmap2, in proctable.MountNS) FileState {
	if in.Ino != 0 && in.Ino == x.hostMnt {
		return x.reader.OwnState(m)
	}
	state := x.reader.State(x.fs.Proc(int(m.PID)), m)
	tried := 0
	for pid := range x.table.Members(in) {
		if state != (FileState{}) || tried == maxStates {
			break
		}
		if pid != m.PID {
			state = x.reader.State(x.fs.Proc(int(pid)), m)
			tried++
		}
	}
	return state
}

// neighbour looks the file up by its path, below the root of another process
// of the mount namespace. It is not the one that was mapped if it has changed since.
func (x *resolver) neighbour(m *perf.Mmap2, in proctable.MountNS, time uint64) ([]byte, error) {
	before := int64(math.MaxInt64)
	if time != 0 {
		before = int64(time) + x.toWall - tickOfFiles
	}
	if in.Ino == 0 || in.Ino == x.hostMnt {
		return x.reader.AtPath(x.fs.Self(), m, before)
	}
	tried := 0
	for pid := range x.table.Members(in) {
		if pid == m.PID {
			continue
		}
		id, err := x.reader.AtPath(x.fs.Proc(int(pid)), m, before)
		if err == nil || errors.Is(err, procroot.ErrTimeout) {
			return id, err
		}
		if tried++; tried == maxNeighbours {
			break
		}
	}
	return nil, errGone
}

// addHolder remembers which process has a file of the snapshot mapped.
func (x *resolver) addHolder(m *perf.Mmap2, in proctable.MountNS) {
	key := holderKey(m, in)
	if _, ok := x.holders[key]; ok {
		return
	}
	if x.holders == nil || len(x.holders) >= maxKnown {
		x.holders = make(map[FileKey]holder)
	}
	x.holders[key] = holder{m.PID, m.Addr, m.Len}
}

// fromHolder looks the file up in the process that had it mapped already when the
// recording began, as nothing else leads to it: something may be mounted over its
// path. As long as that process has it, no other file can have got its inode.
func (x *resolver) fromHolder(m *perf.Mmap2, in proctable.MountNS) ([]byte, error) {
	h, ok := x.holders[holderKey(m, in)]
	if !ok || h.pid == m.PID {
		return nil, errGone
	}
	there := *m
	there.PID, there.Addr, there.Len = h.pid, h.addr, h.len
	return x.reader.Mapped(x.fs.Proc(int(h.pid)), &there)
}

func holderKey(m *perf.Mmap2, in proctable.MountNS) FileKey {
	return FileKey{Major: m.Maj, Minor: m.Min, Inode: m.Ino, Gen: in.InodeGen(0), Mnt: in.Ino, Path: m.Filename}
}

func (x *resolver) intern(b []byte) string {
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

// keyOf is the key of a mapped file for the collector. Of its generation only the
// part is in it that tells mount namespaces apart: not every snapshot has the rest.
func keyOf(m *perf.Mmap2, in proctable.MountNS) binaryKey {
	if len(m.BuildID) > 0 {
		return binaryKey{id: string(m.BuildID), FileKey: FileKey{Path: m.Filename}}
	}
	return binaryKey{FileKey: FileKey{Major: m.Maj, Minor: m.Min, Inode: m.Ino, Gen: in.InodeGen(0), Mnt: in.Ino,
		Path: m.Filename}}
}
