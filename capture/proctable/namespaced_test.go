// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"context"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// in is the event of a process in a pid and a mount namespace.
func in(pid int32, pidNS, mntNS uint64) *Event {
	ev := &Event{Kind: Namespaces, PID: pid, TID: pid}
	ev.NS[perf.NSPID], ev.NS[perf.NSMnt] = pidNS, mntNS
	return ev
}

func TestNamespaced(t *testing.T) {
	s := NewNamespaced(1, 2)
	s.Observe(in(10, 1, 2))
	s.Observe(in(11, 5, 2)) // a pid namespace alone is no container
	s.Observe(in(12, 1, 6))
	s.Observe(in(13, 5, 6))
	s.Observe(in(14, 5, 6))
	s.Observe(in(15, 5, 6))
	s.Observe(in(15, 1, 2)) // it went back
	s.Observe(&Event{Kind: ProcessForgot, PID: 14})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := s.List(ended); ok {
		t.Error("a list before the snapshot was taken")
	}
	s.Finish(true)
	if pids, ok := s.List(t.Context()); !ok || !slices.Equal(pids, []int{13}) {
		t.Errorf("%v, %v, want 13", pids, ok)
	}
	var none *Namespaced
	none.Observe(in(1, 5, 6))
	none.SetIncomplete()
	none.Finish(true)
}

// What a snapshot did not report, or there was no room for, is not complete.
func TestNamespacedIncomplete(t *testing.T) {
	s := NewNamespaced(0, 0)
	s.Finish(false)
	if _, ok := s.List(t.Context()); ok {
		t.Error("complete without a complete snapshot")
	}
	s = NewNamespaced(0, 0)
	s.SetIncomplete()
	s.Finish(true)
	if _, ok := s.List(t.Context()); ok {
		t.Error("complete though sideband was lost")
	}
	s = NewNamespaced(0, 0)
	s.Finish(true)
	for pid := range int32(maxNamespaced + 1) {
		s.Observe(in(pid, 5, 6))
	}
	if _, ok := s.List(t.Context()); ok || len(s.pids) != maxNamespaced {
		t.Errorf("complete with %d processes", len(s.pids))
	}
}
