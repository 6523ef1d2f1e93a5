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
	// strangers may be nil.
	strangers *strangers
	keep      *keeper
	code      *codeKeeper // keep's; nil without one
	ids       *identifier
	// lineage is there while the snapshot is taken.
	lineage *lineage
	// filter and followed learn about tasks; both may be nil.
	filter   *filter.Filter
	followed *follower
	reserve  *reserve // nil: every binary is offered to the keeper
	// mounts is the mount namespace of each process that lives or ended
	// lately: rings are read one after the other, so that a mapping may be
	// seen after the end of its process.
	mounts       map[int32]space
	ended, older []int32
	// exits are the threads that have ended since the keeper was told.
	exits []exit
	// lives are the mount namespaces that have been seen; found counts those
	// that were new. first is what the first life of a namespace is called, newest
	// the greatest such number.
	lives         map[uint64]*life
	first, newest uint32
	found         int
	// told is about the snapshot.
	told toldFiles
	// forgotten counts the processes that there was no room for in mounts, unasked
	// those that were taken out of it and may have outlived their first thread.
	forgotten, unasked uint64
}

// exit is the end of a thread.
type exit struct{ pid, tid int32 }

// maxProcesses bounds the processes whose mount namespace is remembered.
const maxProcesses = 1 << 20

func newSidebandWalker(ev *perf.Event, fsys procfs.FS, n *names, k *keeper) sidebandWalker {
	w := sidebandWalker{
		event: ev, names: n, keep: k,
		mounts: make(map[int32]space), lives: make(map[uint64]*life),
	}
	if n != nil {
		w.strangers = n.strangers
	}
	var e *procroot.Access
	if k != nil {
		w.code, e = k.code, k.access
	}
	w.ids = newIdentifier(fsys, e)
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
			e := entry{pid: pid, mnt: nativeOrder.Uint64(raw[nsMntAt:]), pidNS: nativeOrder.Uint64(raw[nsPIDSpaceAt:]), live: true}
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
	if w.lineage != nil {
		if err := w.lineage.live(raw, w.event); err != nil {
			return err
		}
	}
	if err := w.tell(raw); err != nil {
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
		w.strangers.blind()
		if w.filter != nil {
			w.filter.Blind()
		}
	case typ == perf.RecordKsymbol && len(raw) > ksymbolNameAt:
		if n := bytes.IndexByte(raw[ksymbolNameAt:], 0); n >= 0 {
			mendTrailer(raw, ksymbolNameAt+(n+8)&^7)
		}
	case typ == perf.RecordBPFEvent:
		mendTrailer(raw, bpfEventEnd)
	case typ == perf.RecordCgroup:
		rec, err := perf.Decode(raw, nativeOrder, w.event)
		if err != nil {
			return fmt.Errorf("decode sideband: %w", err)
		}
		if c, ok := rec.(*perf.Cgroup); ok {
			w.names.saw(c.ID, c.Path)
		}
	}
	return nil
}

// tell tells who tells tasks apart about a record of the kernel.
func (w *sidebandWalker) tell(raw []byte) error {
	if w.filter == nil && w.followed == nil {
		return nil
	}
	switch perf.ParseHeader(raw, nativeOrder).Type {
	case perf.RecordFork, perf.RecordExit, perf.RecordComm, perf.RecordNamespaces, perf.RecordCgroup:
		rec, err := perf.Decode(raw, nativeOrder, w.event)
		if err != nil {
			return fmt.Errorf("decode sideband: %w", err)
		}
		w.learn(rec)
	}
	return nil
}

// learn is tell for a record that is decoded.
func (w *sidebandWalker) learn(rec perf.Record) {
	if w.filter != nil {
		w.filter.Record(rec)
	}
	if w.followed != nil {
		w.followed.record(rec)
	}
}

// mendTrailer moves the sample_id of a record, whose body ends at end, to where
// the record does. When several recordings get a KSYMBOL or BPF_EVENT, the
// kernel counts the sample_id of each in the size of those that come after it
// (perf_event_ksymbol_output, perf_event_bpf_output, as of 6.18): what is at
// the end is then what was in the ring before.
func mendTrailer(raw []byte, end int) {
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
		stamp(raw, nil) // not a program
		return
	}
	in := w.mounts[m.pid]
	if perf.HoldsCode(m.path) {
		w.offer(&binaryKey{FileKey: binaries.FileKey{Path: codeMemory}}, seen{int(m.pid), in.mnt, m.addr, m.addr + m.len})
	}
	f := w.ids.identify(m, in, w.mounts)
	if stamp(raw, f.id); len(f.id) == 0 && in.life != 0 {
		nativeOrder.PutUint64(raw[mmap2GenAt:], in.gen(m.inodeGen))
	}
	if f.key.Path != "" && (f.kept == nil || !f.kept.settled.Load()) {
		f.kept = w.offer(&f.key, seen{int(m.pid), in.mnt, m.addr, m.addr + m.len})
		if f.kept != nil && f.silent {
			f.kept.silent.Store(true)
		}
	}
}

// offer offers a file to the keeper. One that a process has mapped which is not
// chosen is kept in reserve, unless it is the host's, which is not copied as long as it has a name.
// The result is nil for what the keeper has not been told of.
func (w *sidebandWalker) offer(key *binaryKey, at seen) *binary {
	copied := at.mnt != w.keep.hostMnt || strings.HasSuffix(key.Path, " (deleted)") || w.keep.generated(key, at)
	if w.reserve != nil && at.mnt != 0 && copied {
		w.reserve.mapped(key, at)
		return nil
	}
	return w.keep.offer(key, at)
}

// status learns from a record of a snapshot.
func (w *sidebandWalker) status(rec perf.Record) {
	switch rec := rec.(type) {
	case *perf.Mmap2:
		if perf.HoldsCode(rec.Filename) && rec.Misc&perf.MiscMmapData == 0 {
			w.offer(&binaryKey{FileKey: binaries.FileKey{Path: codeMemory}},
				seen{int(rec.PID), w.mounts[rec.PID].mnt, rec.Addr, rec.Addr + rec.Len})
		}
		if isFile(rec.Filename) && (len(rec.BuildID) > 0 || rec.Ino != 0) {
			w.statusMapping(rec)
		}
	case *perf.Namespaces:
		if len(rec.Links) > max(perf.NSMnt, perf.NSPID) && rec.PID == rec.TID {
			w.namespaces(entry{pid: rec.PID, mnt: rec.Links[perf.NSMnt].Ino, pidNS: rec.Links[perf.NSPID].Ino})
		}
	}
}

// statusMapping offers a file that a snapshot tells of, until the keeper has
// decided about it.
func (w *sidebandWalker) statusMapping(rec *perf.Mmap2) {
	t := &w.told
	if rec.PID != t.pid {
		t.pid, t.in = rec.PID, w.mounts[rec.PID]
	}
	rec.InoGen = t.in.gen(rec.InoGen)
	file := binaries.FileKey{Major: rec.Maj, Minor: rec.Min, Inode: rec.Ino, Gen: rec.InoGen, Mnt: t.in.mnt, Path: rec.Filename}
	if file != t.last {
		t.last, t.binary = file, t.offered[file]
	}
	if t.binary != nil && t.binary.settled.Load() {
		return
	}
	w.ids.hold(rec, t.in)
	key := keyOf(rec, t.in)
	t.binary = w.offer(&key, seen{int(rec.PID), t.in.mnt, rec.Addr, rec.Addr + rec.Len})
	if t.binary == nil {
		return
	}
	if t.offered == nil || len(t.offered) >= maxKnown {
		t.offered = make(map[binaries.FileKey]*binary)
	}
	t.offered[file] = t.binary
}

// toldFiles are the files of a snapshot that the keeper knows.
type toldFiles struct {
	offered map[binaries.FileKey]*binary
	// pid is the process of the mapping before, in its mount namespace. last is
	// the file of it, and binary what the keeper made of that.
	pid    int32
	in     space
	last   binaries.FileKey
	binary *binary
}

// tellExits tells the keeper which threads have ended, when all that they have
// mapped is known.
func (w *sidebandWalker) tellExits() {
	for _, e := range w.exits {
		w.code.exited(e.pid, e.tid)
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
			w.unasked++
		}
		delete(w.mounts, pid)
		w.strangers.ended(pid)
		w.reserve.forget(pid)
	}
	w.ended, w.older = w.older[:0], w.ended
	w.ids.round++
	w.code.nextRound()
}

// isThere says whether a process has a thread that has not ended.
func (w *sidebandWalker) isThere(pid int32) bool {
	st, err := w.ids.fs.Proc(int(pid)).Stat()
	return err == nil && (st.State != 'Z' || st.NumThreads > 1)
}
