// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

func TestPIDSet(t *testing.T) {
	var s pidSet
	in := []int32{1, 63, 64, 4000, maxPID}
	for _, pid := range in {
		if s.has(pid) {
			t.Errorf("%d before it was added", pid)
		}
		s.add(pid)
		s.add(-pid)         // no process
		s.add(maxPID + pid) // nor this
	}
	for _, pid := range in {
		if !s.has(pid) || s.has(-pid) || s.has(maxPID+pid) || s.has(pid+1) && pid != 63 {
			t.Errorf("%d: %v, %d: %v, %d: %v", pid, s.has(pid), -pid, s.has(-pid), pid+1, s.has(pid+1))
		}
	}
	if len(s) > maxPID/64+1 {
		t.Errorf("%d words", len(s))
	}
}

// The namespaces of each process are found again, whoever came between.
func TestSetSpaces(t *testing.T) {
	p := &pass{nsSets: make(map[int32]int32)}
	want := make(map[int32]nsLinks)
	for pid := int32(1); pid <= 60; pid++ {
		task := Task{PID: pid}
		switch {
		case pid%3 == 0:
			task.Namespaces[perf.NSNet].Ino = uint64(pid)
		case pid%3 == 1:
			task.Namespaces[perf.NSNet].Ino = uint64(pid / 30)
		}
		p.setNamespaces(&task)
		want[pid] = task.Namespaces
	}
	p.setNamespaces(&Task{PID: 3}) // its number is another's now
	want[3] = nsLinks{}
	for pid, links := range want {
		if got := p.sets[p.nsSets[pid]]; got != links {
			t.Errorf("process %d is in %v, want %v", pid, got, links)
		}
	}
	if len(p.sets) >= 60 {
		t.Errorf("%d sets", len(p.sets))
	}
}
