// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"cmp"
	"slices"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/perf"
)

// gaps finds out whether a snapshot has seen enough: whether every process
// that was made while it was taken has mappings, inherited from a parent whose
// own were known by then, or told of.
//
// One is missed if its parent was made and ended out of the iterator's sight:
// pids are visited in their order, and after the greatest the small ones are
// given out again, behind the iterator's back.
type gaps struct {
	events     []gapEvent
	lastMapped int32 // process whose mapping was told of last
	// dropped counts the events that there was no room for: which processes they
	// leave unknown cannot be told.
	dropped int
}

// maxGapEvents bounds the events that are remembered, to 48 MiB: those of a million
// processes that run already, or of some minutes in which thousands are made every
// second.
const maxGapEvents = 2 << 20

func (l *gaps) add(ev gapEvent) {
	if len(l.events) >= maxGapEvents {
		l.dropped++
		return
	}
	l.events = append(l.events, ev)
}

// gapEvent is one step in the life of a process.
type gapEvent struct {
	time        uint64
	what        gapEventKind
	pid, parent int32
}

type gapEventKind uint8

const (
	processForked    gapEventKind = iota // sideband: forked by parent
	processExecuted                      // sideband: a new program
	processExited                        // sideband
	processReported                      // snapshot: it is there
	mappingsReported                     // snapshot: what it has mapped
)

var _ proctable.Observer = (*gaps)(nil)

// Observe implements proctable.Observer: it takes the sideband.
func (l *gaps) Observe(ev *proctable.Event) {
	if ev.Status {
		return
	}
	g := gapEvent{time: ev.Time, pid: ev.PID}
	switch {
	case ev.Kind == proctable.Fork && ev.PID != ev.PPID: // else a thread
		g.what, g.parent = processForked, ev.PPID
	case ev.Kind == proctable.Exec:
		g.what = processExecuted
	case ev.Kind == proctable.Exit && ev.PID == ev.TID:
		g.what = processExited
	default:
		return
	}
	l.add(g)
}

// reported takes note of a record of the snapshot.
func (l *gaps) reported(rec perf.Record) {
	switch rec := rec.(type) {
	case *perf.Fork:
		if rec.PID == rec.TID {
			l.add(gapEvent{time: rec.SampleID.Time, what: processReported, pid: rec.PID})
		}
	case *perf.Mmap2:
		if rec.PID != l.lastMapped {
			l.lastMapped = rec.PID
			l.add(gapEvent{time: rec.SampleID.Time, what: mappingsReported, pid: rec.PID})
		}
	}
}

// processState is what is known of a process at one moment.
type processState struct {
	born   bool // while the snapshot was taken
	seen   bool // by the snapshot
	known  bool // its mappings are
	mapped bool // they were told of
	gone   bool // ended or executed since it was seen
}

// missing are the processes that still run and of which nothing is known. All
// sideband up to now must have been read.
func (l *gaps) missing() []int {
	events := l.family()
	slices.SortStableFunc(events, func(a, b gapEvent) int { return cmp.Compare(a.time, b.time) })
	empty := memoryless(events)
	all := make(map[int32]processState)
	for _, ev := range events {
		p := all[ev.pid]
		switch ev.what {
		case processForked:
			p = processState{born: true, known: all[ev.parent].known}
		case processExecuted, mappingsReported:
			p.known = true
		case processReported:
			p.seen = true
			p.known = p.known || empty[ev.pid]
		case processExited:
			p = processState{}
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
func (l *gaps) family() []gapEvent {
	pids := make(map[int32]bool)
	for _, ev := range l.events {
		if ev.what == processForked {
			pids[ev.pid], pids[ev.parent] = true, true
		}
	}
	if len(pids) == 0 {
		return nil
	}
	var list []gapEvent
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
func memoryless(events []gapEvent) map[int32]bool {
	all := make(map[int32]processState)
	for _, ev := range events {
		p := all[ev.pid]
		p.seen = p.seen || ev.what == processReported
		p.mapped = p.mapped || ev.what == mappingsReported
		p.gone = p.gone || ev.what == processExited || ev.what == processExecuted
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
