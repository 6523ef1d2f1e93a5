// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"strings"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// Mappings takes the MMAP2 records of a recording: it puts build-ids into those of
// the kernel, and has the Collector copy the files. It is for one goroutine.
type Mappings struct {
	// Deferred holds back the files of processes that are not chosen; nil: every
	// file is collected.
	Deferred *Deferred

	table     *proctable.Table
	collector *Collector
	resolver  *resolver
	exits     []exit // since the last EndPass
	snapshot  snapshotFiles
}

// exit is the end of a thread.
type exit struct{ pid, tid int32 }

// snapshotFiles are the files of a snapshot that the Collector knows. The mappings
// of a process come in a row, and those of a file as well.
type snapshotFiles struct {
	enqueued map[FileKey]*binary
	// pid is the process of the mapping before, in its mount namespace. last is
	// the file of it, and binary what the collector made of that.
	pid    int32
	in     proctable.MountNS
	last   FileKey
	binary *binary
}

var _ proctable.Observer = (*Mappings)(nil)

// NewMappings returns a Mappings, which observes the table. The caller closes it.
func NewMappings(fsys procfs.FS, t *proctable.Table, k *Collector) *Mappings {
	m := &Mappings{table: t, collector: k, resolver: newResolver(fsys, k.access, t)}
	t.Subscribe(m)
	return m
}

// Close releases the Mappings; the Collector stays the caller's.
func (m *Mappings) Close() {
	if m != nil {
		m.resolver.close()
	}
}

// Lookups counts how often a file was not known.
func (m *Mappings) Lookups() int { return m.resolver.lookups }

// Observe implements proctable.Observer.
func (m *Mappings) Observe(ev *proctable.Event) {
	if ev.Kind == proctable.Exit && !ev.Status {
		m.exits = append(m.exits, exit{ev.PID, ev.TID})
	}
}

// EndPass is called when the records of all rings have been read: what a process
// that has exited had mapped is known by then.
func (m *Mappings) EndPass() {
	for _, e := range m.exits {
		m.collector.jit.exited(e.pid, e.tid)
	}
	m.exits = m.exits[:0]
	m.resolver.pass++
}

// Round ends a round.
func (m *Mappings) Round() {
	m.resolver.round++
	m.collector.jit.nextRound()
}

// Live completes an MMAP2 record of the kernel with the file's build-id and the
// generation of the mount namespace, and has the file collected.
func (m *Mappings) Live(raw perf.Raw) {
	v, ok := raw.Mmap2()
	if !ok {
		return
	}
	if raw.Misc()&perf.MiscMmapData != 0 {
		raw.SetBuildID(nil) // not a program
		return
	}
	in := m.table.MountNS(v.PID)
	at := mappedAt{pid: int(v.PID), mnt: in.Ino, generation: in.Generation, start: v.Addr, end: v.Addr + v.Len}
	if perf.HoldsCode(v.Path) {
		m.enqueue(&binaryKey{FileKey: FileKey{Path: anonMemory}}, at)
	}
	f := m.resolver.resolve(&v, in, raw.TrailerTime())
	if raw.SetBuildID(f.id); len(f.id) == 0 && in.Generation != 0 {
		raw.SetInodeGen(in.InodeGen(v.InodeGen))
	}
	if f.key.Path != "" && (f.collected == nil || !f.collected.settled.Load()) {
		f.collected = m.enqueue(&f.key, at)
		if f.collected != nil && f.timedOut {
			f.collected.timedOut.Store(true)
		}
	}
}

// enqueue has a file collected. Those of processes that are not chosen are
// deferred, unless the file is the host's, which is not copied as long as it has a
// name. The result is nil for what the collector does not know.
func (m *Mappings) enqueue(key *binaryKey, at mappedAt) *binary {
	copied := at.mnt != m.collector.hostMnt || strings.HasSuffix(key.Path, deletedSuffix) ||
		m.collector.generated(key, at)
	if m.Deferred != nil && at.mnt != 0 && copied {
		m.Deferred.add(key, at)
		return nil
	}
	return m.collector.enqueue(key, at)
}

// Status takes a mapping that a snapshot reports, whose inode generation it
// completes, until the collector has decided about the file.
func (m *Mappings) Status(rec *perf.Mmap2) {
	if perf.HoldsCode(rec.Filename) && rec.Misc&perf.MiscMmapData == 0 {
		m.enqueue(&binaryKey{FileKey: FileKey{Path: anonMemory}},
			mappedAt{pid: int(rec.PID), mnt: m.table.MountNS(rec.PID).Ino, start: rec.Addr, end: rec.Addr + rec.Len})
	}
	if !IsFile(rec.Filename) || len(rec.BuildID) == 0 && rec.Ino == 0 {
		return
	}
	s := &m.snapshot
	if rec.PID != s.pid {
		s.pid, s.in = rec.PID, m.table.MountNS(rec.PID)
	}
	rec.InoGen = s.in.InodeGen(rec.InoGen)
	file := FileKey{Major: rec.Maj, Minor: rec.Min, Inode: rec.Ino, Gen: rec.InoGen, Mnt: s.in.Ino, Path: rec.Filename}
	if file != s.last {
		s.last, s.binary = file, s.enqueued[file]
	}
	if s.binary != nil && s.binary.settled.Load() {
		return
	}
	m.resolver.addHolder(rec, s.in)
	key := keyOf(rec, s.in)
	s.binary = m.enqueue(&key, mappedAt{pid: int(rec.PID), mnt: s.in.Ino, generation: s.in.Generation, start: rec.Addr,
		end: rec.Addr + rec.Len})
	if s.binary == nil {
		return
	}
	if s.enqueued == nil || len(s.enqueued) >= maxKnown {
		s.enqueued = make(map[FileKey]*binary)
	}
	s.enqueued[file] = s.binary
}

// EndSnapshot forgets what only the snapshot was about.
func (m *Mappings) EndSnapshot() { m.snapshot = snapshotFiles{} }
