// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// lineage finds out whether a snapshot has seen enough: whether every process
// that was made while it was taken has mappings, inherited from a parent whose
// own were known by then, or told of.
//
// One is missed if its parent was made and ended out of the iterator's sight:
// pids are visited in their order, and after the greatest the small ones are
// given out again, behind the iterator's back.
type lineage struct {
	events []lineageEvent
	mapped int32 // process whose mapping was told of last
	// lost counts the events that there was no room for: which processes they
	// leave unknown cannot be told.
	lost int
}

// maxLineage bounds the events that are remembered, to 48 MiB: those of a million
// processes that run already, or of some minutes in which thousands are made every
// second.
const maxLineage = 2 << 20

func (l *lineage) add(ev lineageEvent) {
	if len(l.events) >= maxLineage {
		l.lost++
		return
	}
	l.events = append(l.events, ev)
}

// lineageEvent is one step in the life of a process.
type lineageEvent struct {
	time        uint64
	what        lineageKind
	pid, parent int32
}

type lineageKind uint8

const (
	bornProcess    lineageKind = iota // sideband: forked by parent
	executed                          // sideband: a new program
	endedProcess                      // sideband
	seenProcess                       // snapshot: it is there
	mappingsToldOf                    // snapshot: what it has mapped
)

// live takes note of a record of sideband.
func (l *lineage) live(raw []byte, event *perf.Event) error {
	switch perf.ParseHeader(raw, nativeOrder).Type {
	case perf.RecordFork, perf.RecordComm, perf.RecordExit:
	default:
		return nil
	}
	rec, err := perf.Decode(raw, nativeOrder, event)
	if err != nil {
		return fmt.Errorf("decode sideband: %w", err)
	}
	l.happened(rec)
	return nil
}

// happened takes note of a decoded record of sideband.
func (l *lineage) happened(rec perf.Record) {
	ev := lineageEvent{time: perf.SampleIDOf(rec).Time}
	switch rec := rec.(type) {
	case *perf.Fork:
		if rec.PID == rec.PPID {
			return // a thread
		}
		ev.what, ev.pid, ev.parent = bornProcess, rec.PID, rec.PPID
	case *perf.Comm:
		if rec.Misc&perf.MiscCommExec == 0 {
			return
		}
		ev.what, ev.pid = executed, rec.PID
	case *perf.Exit:
		if rec.PID != rec.TID {
			return
		}
		ev.what, ev.pid = endedProcess, rec.PID
	default:
		return
	}
	l.add(ev)
}

// told takes note of a record of the snapshot.
func (l *lineage) told(rec perf.Record) {
	switch rec := rec.(type) {
	case *perf.Fork:
		if rec.PID == rec.TID {
			l.add(lineageEvent{time: rec.SampleID.Time, what: seenProcess, pid: rec.PID})
		}
	case *perf.Mmap2:
		if rec.PID != l.mapped {
			l.mapped = rec.PID
			l.add(lineageEvent{time: rec.SampleID.Time, what: mappingsToldOf, pid: rec.PID})
		}
	}
}

// ancestry is what is known of a process at one moment.
type ancestry struct {
	born   bool // while the snapshot was taken
	seen   bool // by the snapshot
	known  bool // its mappings are
	mapped bool // they were told of
	gone   bool // ended or executed since it was seen
}

// missing are the processes that still run and of which nothing is known. All
// sideband up to now must have been read.
func (l *lineage) missing() []int {
	events := l.family()
	slices.SortStableFunc(events, func(a, b lineageEvent) int { return cmp.Compare(a.time, b.time) })
	empty := memoryless(events)
	all := make(map[int32]ancestry)
	for _, ev := range events {
		p := all[ev.pid]
		switch ev.what {
		case bornProcess:
			p = ancestry{born: true, known: all[ev.parent].known}
		case executed, mappingsToldOf:
			p.known = true
		case seenProcess:
			p.seen = true
			p.known = p.known || empty[ev.pid]
		case endedProcess:
			p = ancestry{}
		}
		all[ev.pid] = p
	}
	var list []int
	for pid, p := range all {
		if p.born && !p.known && !p.seen {
			list = append(list, int(pid))
		}
	}
	slices.Sort(list)
	return list
}

// family is what happened to the processes that were made meanwhile, and to
// their parents. On most machines these are few.
func (l *lineage) family() []lineageEvent {
	pids := make(map[int32]bool)
	for _, ev := range l.events {
		if ev.what == bornProcess {
			pids[ev.pid], pids[ev.parent] = true, true
		}
	}
	if len(pids) == 0 {
		return nil
	}
	var list []lineageEvent
	for _, ev := range l.events {
		if pids[ev.pid] {
			list = append(list, ev)
		}
	}
	return list
}

// memoryless are the processes that were seen and have nothing to inherit:
// kernel threads, mostly. One that ended or executed may just have been gone
// when its mappings were looked at.
func memoryless(events []lineageEvent) map[int32]bool {
	all := make(map[int32]ancestry)
	for _, ev := range events {
		p := all[ev.pid]
		p.seen = p.seen || ev.what == seenProcess
		p.mapped = p.mapped || ev.what == mappingsToldOf
		p.gone = p.gone || ev.what == endedProcess || ev.what == executed
		all[ev.pid] = p
	}
	list := make(map[int32]bool)
	for pid, p := range all {
		if p.seen && !p.mapped && !p.gone {
			list[pid] = true
		}
	}
	return list
}
