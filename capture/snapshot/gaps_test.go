// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// story is told in the order of reading, which need not be that of time.
type story struct {
	l     gaps
	procs *proctable.Table
}

// sideband takes a record that is no status record.
func (s *story) sideband(rec perf.Record) {
	if s.procs == nil {
		s.procs = proctable.New(procfs.FS{}, 0)
		s.procs.Subscribe(&s.l)
	}
	s.procs.Decoded(rec)
}

func at(time uint64) perf.Trailer {
	var t perf.Trailer
	t.SampleID.Time = time
	return t
}

func (s *story) fork(time uint64, pid, parent int32) *story {
	s.sideband(&perf.Fork{Trailer: at(time),
		Task: perf.Task{PID: pid, TID: pid, PPID: parent, PTID: parent, Time: time}})
	return s
}

func (s *story) thread(time uint64, pid, tid int32) *story {
	s.sideband(&perf.Fork{Trailer: at(time), Task: perf.Task{PID: pid, TID: tid, PPID: pid, PTID: pid, Time: time}})
	return s
}

func (s *story) exec(time uint64, pid int32) *story {
	c := &perf.Comm{Trailer: at(time), PID: pid, TID: pid, Comm: "x"}
	c.Misc = perf.MiscCommExec
	s.sideband(c)
	return s
}

func (s *story) name(time uint64, pid int32) *story {
	s.sideband(&perf.Comm{Trailer: at(time), PID: pid, TID: pid, Comm: "x"})
	return s
}

func (s *story) exit(time uint64, pid, tid int32) *story {
	s.sideband(&perf.Exit{Trailer: at(time), Task: perf.Task{PID: pid, TID: tid, Time: time}})
	return s
}

func (s *story) seen(time uint64, pid int32) *story {
	s.l.reported(&perf.Fork{Trailer: at(time), Task: perf.Task{PID: pid, TID: pid, PPID: 1, PTID: 1}})
	return s
}

func (s *story) maps(time uint64, pid int32) *story {
	for range 2 {
		s.l.reported(&perf.Mmap2{Trailer: at(time), PID: pid, TID: pid})
	}
	return s
}

func TestGaps(t *testing.T) {
	for name, c := range map[string]struct {
		story *story
		want  []int
	}{
		"nothing happens":                     {new(story).seen(1, 5).maps(2, 5), nil},
		"a child of one that was read":        {new(story).seen(1, 5).maps(2, 5).fork(3, 9, 5), nil},
		"a child before its parent was read":  {new(story).fork(3, 9, 5).seen(1, 5).maps(4, 5), []int{9}},
		"but it was read itself":              {new(story).fork(3, 9, 5).seen(1, 5).maps(4, 5).maps(4, 9), nil},
		"or at least seen, for what it had":   {new(story).fork(3, 9, 5).seen(4, 9), nil},
		"or it is gone":                       {new(story).fork(3, 9, 5).exit(4, 9, 9), nil},
		"or executed":                         {new(story).fork(3, 9, 5).exec(4, 9), nil},
		"a name alone is no program":          {new(story).fork(3, 9, 5).name(4, 9), []int{9}},
		"a thread's end is not its process's": {new(story).fork(3, 9, 5).exit(4, 9, 10), []int{9}},
		"threads are no matter":               {new(story).thread(3, 9, 10), nil},
		"a chain from one that was read": {new(story).maps(1, 5).fork(2, 6, 5).exit(3, 5, 5).fork(4, 7, 6).exit(5,
			6, 6), nil},
		"a chain from nowhere": {new(story).fork(2, 6, 5).exit(3, 5, 5).fork(4, 7, 6).exit(5, 6, 6),
			[]int{7}},
		"one of it was read in time":      {new(story).fork(2, 6, 5).maps(3, 6).fork(4, 7, 6).exit(5, 6, 6), nil},
		"or too late":                     {new(story).fork(2, 6, 5).fork(3, 7, 6).maps(4, 6), []int{7}},
		"a kernel thread's child":         {new(story).seen(1, 2).fork(3, 9, 2), nil},
		"seen, gone before its maps were": {new(story).seen(1, 5).fork(2, 9, 5).exit(3, 5, 5), []int{9}},
		"a pid twice":                     {new(story).maps(1, 9).exit(2, 9, 9).fork(3, 9, 5), []int{9}},
		"two":                             {new(story).fork(3, 9, 5).fork(4, 8, 5), []int{8, 9}},
	} {
		if got := c.story.l.missing(); !slices.Equal(got, c.want) {
			t.Errorf("%s: missing %v, want %v", name, got, c.want)
		}
	}
}

// A flood of processes takes only so much memory; what was not remembered of it is
// counted.
func TestGapsAreBounded(t *testing.T) {
	var s story
	for i := range maxGapEvents/2 + 2 {
		s.fork(uint64(i), int32(i%1000)+10, 5).exit(uint64(i), int32(i%1000)+10, int32(i%1000)+10)
	}
	if len(s.l.events) != maxGapEvents || s.l.dropped != 4 {
		t.Errorf("%d are remembered, %d lost", len(s.l.events), s.l.dropped)
	}
}
