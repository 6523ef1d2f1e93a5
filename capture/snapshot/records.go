// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"github.com/gantry-tools/gantry/perf"
)

// emitter makes the records of a snapshot. They are used again.
type emitter struct {
	sink    Sink
	sinkErr error // of the sink, which ends the snapshot
	stats   Stats

	fork perf.Fork
	comm perf.Comm
	ns   perf.Namespaces
}

// record hands a record to the sink.
func (e *emitter) record(rec perf.Record) error {
	e.sinkErr = e.sink.Record(rec)
	return e.sinkErr
}

// idle writes the record of the idle task.
func (e *emitter) idle(now uint64) error {
	return e.sendComm(&Task{Comm: "swapper"}, now)
}

// sendFork writes the FORK record of a task: for a thread its process.
// perf.MiscForkExec keeps readers from inheriting the parent's mappings.
func (e *emitter) sendFork(t *Task, now uint64) error {
	parent := t.PPID
	if t.TID != t.PID {
		parent = t.PID
	}
	setTrailer(&e.fork.Trailer, perf.MiscForkExec, t.PID, t.TID, now)
	e.fork.Task = perf.Task{PID: t.PID, TID: t.TID, PPID: parent, PTID: parent, Time: now}
	return e.record(&e.fork)
}

func (e *emitter) sendComm(t *Task, now uint64) error {
	setTrailer(&e.comm.Trailer, 0, t.PID, t.TID, now)
	e.comm.PID, e.comm.TID, e.comm.Comm = t.PID, t.TID, t.Comm
	return e.record(&e.comm)
}

// sendNamespaces writes the task's namespaces, as far as they are known.
func (e *emitter) sendNamespaces(t *Task, now uint64) error {
	if t.Namespaces[perf.NSMnt].Ino == 0 {
		return nil
	}
	setTrailer(&e.ns.Trailer, 0, t.PID, t.TID, now)
	e.ns.PID, e.ns.TID, e.ns.Links = t.PID, t.TID, t.Namespaces[:]
	return e.record(&e.ns)
}

// sendMapping completes the record of a mapping and writes it.
func (e *emitter) sendMapping(m *perf.Mmap2, pid int32, now uint64) error {
	m.PID, m.TID = pid, pid
	setTrailer(&m.Trailer, m.Misc, pid, pid, now)
	e.stats.Mappings++
	return e.record(m)
}
