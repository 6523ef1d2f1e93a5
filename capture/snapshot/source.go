// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"

	"github.com/gantry-tools/gantry/perf"
)

// Scope is which tasks a snapshot is about. The zero value is none.
type Scope struct {
	// All is every task of the machine, and the idle task.
	All bool
	// PIDs are processes, with all their threads.
	PIDs []int
}

// Sink takes one status record. The record is the source's: it is used again
// after the call. An error ends the snapshot.
type Sink func(rec perf.Record) error

// Stats is what a snapshot found.
type Stats struct {
	// Method is the way it was done, for people.
	Method    string `json:"method"`
	Processes int    `json:"processes"`
	Threads   int    `json:"threads"` // beside the first of each process
	Mappings  int    `json:"mappings"`
	// Gone are processes that ended while they were read, Denied are those
	// of which something could not be read for want of privilege.
	Gone   int `json:"gone,omitempty"`
	Denied int `json:"denied,omitempty"`
	// Unreadable are processes that could not be read for another reason.
	Unreadable int `json:"unreadable,omitempty"`
}

// Source gives the status records of running tasks.
type Source interface {
	// Take calls sink for each record, those of one process in a row: FORK,
	// NAMESPACES, COMM, MMAP2..., then its other threads.
	Take(ctx context.Context, scope Scope, sink Sink) (Stats, error)
}

// setTrailer fills what a status record has beside its body.
func setTrailer(t *perf.Trailer, misc perf.Misc, pid, tid int, time uint64) {
	t.Misc = misc | perf.MiscStatusOnly
	t.SampleID = perf.SampleIDInfo{PID: int32(pid), TID: int32(tid), Time: time}
}
