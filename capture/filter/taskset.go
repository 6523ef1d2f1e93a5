// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"os"

	"github.com/gantry-tools/gantry/capture/proctable"
)

// TaskSet is the tasks that a recording is of, with the children they have: some
// events cannot be bound to tasks, and are opened for all.
type TaskSet struct {
	self int32 // this process, whose thread may stand for a command
	tids map[int32]struct{}
}

var _ proctable.Observer = (*TaskSet)(nil)

// NewTaskSet returns a set of threads, to which the sideband adds.
func NewTaskSet(tids []int) *TaskSet {
	s := &TaskSet{self: int32(os.Getpid()), tids: make(map[int32]struct{})}
	for _, tid := range tids {
		s.tids[int32(tid)] = struct{}{}
	}
	return s
}

// Has reports whether a thread is in the set.
func (s *TaskSet) Has(tid int32) bool {
	_, ok := s.tids[tid]
	return ok
}

// Observe implements proctable.Observer. The sideband is of the tasks alone: each
// one that is forked belongs to them.
func (s *TaskSet) Observe(ev *proctable.Event) {
	switch ev.Kind {
	case proctable.Fork:
		if ev.PID != s.self {
			s.tids[ev.TID] = struct{}{}
		}
	case proctable.ThreadForgot:
		delete(s.tids, ev.TID)
	}
}
