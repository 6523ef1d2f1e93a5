// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/perf"
)

// sidebandWalker looks at the records of the sideband rings. What comes often
// is read where it lies, at the places that the kernel has given the fields.
type sidebandWalker struct {
	event *perf.Event
	names *names
	// namespaced may be nil.
	namespaced *namespacedProcesses
	collector  *collector
	jit        *jitCollector // keep's; nil without one
	buildIDs   *buildIDResolver
	// gaps is there while the snapshot is taken.
	gaps *snapshotGaps
	// filter and followed learn about tasks; both may be nil.
	filter   *filter.Filter
	tasks    *taskSet
	deferred *deferredBinaries // nil: every binary is offered to the keeper
	// mounts is the mount namespace of each process that lives or ended
	// lately: rings are read one after the other, so that a mapping may be
	// seen after the end of its process.
	mounts       map[int32]mountNS
	ended, older []int32
	// exits are the threads that have ended since the keeper was told.
	exits []exit
	// mountNSStates are the mount namespaces that have been seen; found counts those
	// that were new. first is what the first life of a namespace is called, newest
	// the greatest such number.
	mountNSStates                   map[uint64]*mountNSState
	firstGeneration, lastGeneration uint32
	newMountNS                      int
	// snapshotFiles is about the snapshot.
	snapshotFiles snapshotFiles
	// untracked counts the processes that there was no room for in mounts, unasked
	// those that were taken out of it and may have outlived their first thread.
	untracked, unchecked uint64
}

// exit is the end of a thread.
type exit struct{ pid, tid int32 }

// maxProcesses bounds the processes whose mount namespace is remembered.
const maxProcesses = 1 << 20

func newSidebandWalker(ev *perf.Event, fsys procfs.FS, n *names, k *collector) sidebandWalker {
	w := sidebandWalker{
		event: ev, names: n, collector: k,
		mounts: make(map[int32]mountNS), mountNSStates: make(map[uint64]*mountNSState),
	}
	if n != nil {
		w.namespaced = n.namespaced
	}
	var e *procroot.Access
	if k != nil {
		w.jit, e = k.jit, k.access
	}
	w.buildIDs = newBuildIDResolver(fsys, e)
	return w
}

// Places in records of the kernel (enum perf_event_type of
// linux/perf_event.h): PERF_RECORD_EXIT, _FORK, _NAMESPACES, _KSYMBOL,
// _BPF_EVENT.
const (
	exitPIDAt, exitTIDAt, exitMin = 8, 16, 24
	forkPIDAt, forkPPIDAt         = 8, 12
	nsPIDAt, nsTIDAt, nsCountAt   = 8, 12, 16
	nsLinksAt, nsLinkSize         = 24, 16
	ksymbolNameAt, bpfEventEnd    = 24, 24
	nsMntAt                       = nsLinksAt + perf.NSMnt*nsLinkSize + 8 // the inode
	nsPIDSpaceAt                  = nsLinksAt + perf.NSPID*nsLinkSize + 8
	nsMin                         = max(nsMntAt, nsPIDSpaceAt) + 8
)

// namespacesOf learns from the NAMESPACES records in b. There is one for each
// new task, right behind the FORK record.
func (w *sidebandWalker) namespacesOf(_ *ring, b []byte) error {
	var child, parent int32
	for raw, err := range perfevent.Records(b, nil, nil) {
		if err != nil {
			return fmt.Errorf("read ring: %w", err)
		}
		switch typ := perf.ParseHeader(raw, nativeOrder).Type; {
		case typ == perf.RecordFork && len(raw) >= exitMin:
			child, parent = raw32(raw, forkPIDAt), raw32(raw, forkPPIDAt)
		case typ == perf.RecordNamespaces && len(raw) >= nsMin:
			pid, tid := raw32(raw, nsPIDAt), raw32(raw, nsTIDAt)
			if n := nativeOrder.Uint64(raw[nsCountAt:]); n <= max(perf.NSMnt, perf.NSPID) || pid != tid {
				continue
			}
			e := nsChange{pid: pid, mnt: nativeOrder.Uint64(raw[nsMntAt:]), pidNS: nativeOrder.Uint64(raw[nsPIDSpaceAt:]), live: true}
			if pid == child && pid != parent {
				e.parent = parent
			}
			child = 0
			w.namespaces(e)
		}
	}
	return nil
}

// walk looks at the other records in b and completes them in place.
func (w *sidebandWalker) walk(ring *ring, b []byte) error {
	for raw, err := range perfevent.Records(b, nil, nil) {
		if err != nil {
			return fmt.Errorf("read ring: %w", err)
		}
		if err := w.record(ring, raw); err != nil {
			return err
		}
	}
	return nil
}

func (w *sidebandWalker) record(ring *ring, raw []byte) error {
	ring.tally.records++
	if w.gaps != nil {
		if err := w.gaps.sideband(raw, w.event); err != nil {
			return err
		}
	}
	if err := w.notify(raw); err != nil {
		return err
	}
	switch typ := perf.ParseHeader(raw, nativeOrder).Type; {
	case typ == perf.RecordMmap2:
		if m, ok := parseMapping(raw); ok {
			w.mapping(raw, &m)
		}
	case typ == perf.RecordExit && len(raw) >= exitMin:
		pid, tid := raw32(raw, exitPIDAt), raw32(raw, exitTIDAt)
		if w.exits = append(w.exits, exit{pid, tid}); pid == tid {
			w.ended = append(w.ended, pid)
		}
	case typ == perf.RecordLost && len(raw) >= lostMin:
		ring.tally.lost += nativeOrder.Uint64(raw[lostCountAt:])
		w.namespaced.setIncomplete()
		if w.filter != nil {
			w.filter.Blind()
		}
	case typ == perf.RecordKsymbol && len(raw) > ksymbolNameAt:
		if n := bytes.IndexByte(raw[ksymbolNameAt:], 0); n >= 0 {
			repairTrailer(raw, ksymbolNameAt+(n+8)&^7)
		}
	case typ == perf.RecordBPFEvent:
		repairTrailer(raw, bpfEventEnd)
	case typ == perf.RecordCgroup:
		rec, err := perf.Decode(raw, nativeOrder, w.event)
		if err != nil {
			return fmt.Errorf("decode sideband: %w", err)
		}
		if c, ok := rec.(*perf.Cgroup); ok {
			w.names.addCgroup(c.ID, c.Path)
		}
	}
	return nil
}

// notify tells who tells tasks apart about a record of the kernel.
func (w *sidebandWalker) notify(raw []byte) error {
	if w.filter == nil && w.tasks == nil {
		return nil
	}
	switch perf.ParseHeader(raw, nativeOrder).Type {
	case perf.RecordFork, perf.RecordExit, perf.RecordComm, perf.RecordNamespaces, perf.RecordCgroup:
		rec, err := perf.Decode(raw, nativeOrder, w.event)
		if err != nil {
			return fmt.Errorf("decode sideband: %w", err)
		}
		w.notifyDecoded(rec)
	}
	return nil
}

// notifyDecoded is tell for a record that is decoded.
func (w *sidebandWalker) notifyDecoded(rec perf.Record) {
	if w.filter != nil {
		w.filter.Record(rec)
	}
	if w.tasks != nil {
		w.tasks.record(rec)
	}
}

// repairTrailer moves the sample_id of a record, whose body ends at end, to where
// the record does. When several recordings get a KSYMBOL or BPF_EVENT, the
// kernel counts the sample_id of each in the size of those that come after it
// (perf_event_ksymbol_output, perf_event_bpf_output, as of 6.18): what is at
// the end is then what was in the ring before.
func repairTrailer(raw []byte, end int) {
	at := len(raw) - trailerSize
	if end >= at {
		return
	}
	copy(raw[at:], raw[end:end+trailerSize])
	clear(raw[end:at])
}

func raw32(raw []byte, at int) int32 { return int32(nativeOrder.Uint32(raw[at:])) }

// mapping completes the record of a mapping, and offers the file to the
// keeper.
func (w *sidebandWalker) mapping(raw []byte, m *mapping) {
	if perf.Misc(nativeOrder.Uint16(raw[mmap2MiscAt:]))&perf.MiscMmapData != 0 {
		setBuildID(raw, nil) // not a program
		return
	}
	in := w.mounts[m.pid]
	if perf.HoldsCode(m.path) {
		w.enqueue(&binaryKey{FileKey: binaries.FileKey{Path: anonMemory}}, mappedAt{int(m.pid), in.ino, m.addr, m.addr + m.len})
	}
	f := w.buildIDs.resolve(m, in, w.mounts)
	if setBuildID(raw, f.id); len(f.id) == 0 && in.generation != 0 {
		nativeOrder.PutUint64(raw[mmap2GenAt:], in.inodeGeneration(m.inodeGen))
	}
	if f.key.Path != "" && (f.collected == nil || !f.collected.settled.Load()) {
		f.collected = w.enqueue(&f.key, mappedAt{int(m.pid), in.ino, m.addr, m.addr + m.len})
		if f.collected != nil && f.timedOut {
			f.collected.timedOut.Store(true)
		}
	}
}

// enqueue offers a file to the keeper. One that a process has mapped which is not
// chosen is kept in reserve, unless it is the host's, which is not copied as long as it has a name.
// The result is nil for what the keeper has not been told of.
func (w *sidebandWalker) enqueue(key *binaryKey, at mappedAt) *binary {
	copied := at.mnt != w.collector.hostMnt || strings.HasSuffix(key.Path, " (deleted)") || w.collector.generated(key, at)
	if w.deferred != nil && at.mnt != 0 && copied {
		w.deferred.add(key, at)
		return nil
	}
	return w.collector.enqueue(key, at)
}

// status learns from a record of a snapshot.
func (w *sidebandWalker) status(rec perf.Record) {
	switch rec := rec.(type) {
	case *perf.Mmap2:
		if perf.HoldsCode(rec.Filename) && rec.Misc&perf.MiscMmapData == 0 {
			w.enqueue(&binaryKey{FileKey: binaries.FileKey{Path: anonMemory}},
				mappedAt{int(rec.PID), w.mounts[rec.PID].ino, rec.Addr, rec.Addr + rec.Len})
		}
		if isFile(rec.Filename) && (len(rec.BuildID) > 0 || rec.Ino != 0) {
			w.statusMapping(rec)
		}
	case *perf.Namespaces:
		if len(rec.Links) > max(perf.NSMnt, perf.NSPID) && rec.PID == rec.TID {
			w.namespaces(nsChange{pid: rec.PID, mnt: rec.Links[perf.NSMnt].Ino, pidNS: rec.Links[perf.NSPID].Ino})
		}
	}
}

// statusMapping offers a file that a snapshot tells of, until the keeper has
// decided about it.
func (w *sidebandWalker) statusMapping(rec *perf.Mmap2) {
	t := &w.snapshotFiles
	if rec.PID != t.pid {
		t.pid, t.in = rec.PID, w.mounts[rec.PID]
	}
	rec.InoGen = t.in.inodeGeneration(rec.InoGen)
	file := binaries.FileKey{Major: rec.Maj, Minor: rec.Min, Inode: rec.Ino, Gen: rec.InoGen, Mnt: t.in.ino, Path: rec.Filename}
	if file != t.last {
		t.last, t.binary = file, t.enqueued[file]
	}
	if t.binary != nil && t.binary.settled.Load() {
		return
	}
	w.buildIDs.addHolder(rec, t.in)
	key := keyOf(rec, t.in)
	t.binary = w.enqueue(&key, mappedAt{int(rec.PID), t.in.ino, rec.Addr, rec.Addr + rec.Len})
	if t.binary == nil {
		return
	}
	if t.enqueued == nil || len(t.enqueued) >= maxKnown {
		t.enqueued = make(map[binaries.FileKey]*binary)
	}
	t.enqueued[file] = t.binary
}

// snapshotFiles are the files of a snapshot that the keeper knows.
type snapshotFiles struct {
	enqueued map[binaries.FileKey]*binary
	// pid is the process of the mapping before, in its mount namespace. last is
	// the file of it, and binary what the keeper made of that.
	pid    int32
	in     mountNS
	last   binaries.FileKey
	binary *binary
}

// notifyExits tells the keeper which threads have ended, when all that they have
// mapped is known.
func (w *sidebandWalker) notifyExits() {
	for _, e := range w.exits {
		w.jit.exited(e.pid, e.tid)
	}
	w.exits = w.exits[:0]
}

// maxOutlived bounds the processes that are asked for each round because they
// have outlived their first thread.
const maxOutlived = 256

// round forgets the processes that had ended before the last round. The end of the
// first thread need not be that of its process: others may go on, and one of them
// that executes a program does so with the number of the first.
func (w *sidebandWalker) round() {
	outlived := 0
	for _, pid := range w.older {
		if outlived < maxOutlived && w.isThere(pid) {
			w.ended = append(w.ended, pid)
			outlived++
			continue
		}
		if _, known := w.mounts[pid]; known && outlived == maxOutlived {
			w.unchecked++
		}
		delete(w.mounts, pid)
		w.namespaced.ended(pid)
		w.deferred.forget(pid)
	}
	w.ended, w.older = w.older[:0], w.ended
	w.buildIDs.round++
	w.jit.nextRound()
}

// isThere says whether a process has a thread that has not ended.
func (w *sidebandWalker) isThere(pid int32) bool {
	st, err := w.buildIDs.fs.Proc(int(pid)).Stat()
	return err == nil && (st.State != 'Z' || st.NumThreads > 1)
}
