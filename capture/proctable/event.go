// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import "github.com/gantry-tools/gantry/perf"

// Kind is what an Event tells.
type Kind uint8

// The kinds of events.
const (
	Fork          Kind = iota + 1 // of PPID and PTID: a process, or a thread
	Exit                          // of a thread
	Exec                          // a program was executed
	Namespaces                    // the namespaces that a thread is in
	Cgroup                        // a cgroup, which no thread is told to be in
	ThreadForgot                  // a thread exited some rounds ago: its records have all been read
	ProcessForgot                 // the same for a process
)

// NumNS is how many namespaces an Event has: by perf.NSNet and so on.
const NumNS = perf.NSCgroup + 1

// Event is one change, or with Status one state that a snapshot has found. It is
// valid during the call of Observe.
type Event struct {
	Kind                 Kind
	Status               bool
	PID, TID, PPID, PTID int32
	Time                 uint64        // of the recording's clock, ns
	NS                   [NumNS]uint64 // inode numbers, 0: not known
	CgroupID             uint64
	CgroupPath           string
}

// Observer is called for each event, in the order of reading, in one goroutine.
type Observer interface{ Observe(ev *Event) }
