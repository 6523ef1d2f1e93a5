// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// sampleOf appends a sample as the kernel writes it: of an event, a task and a
// cgroup, with more words in between.
func sampleOf(b []byte, id uint64, tid int32, time, cgroup uint64, more int) []byte {
	size := perf.HeaderSize + 8*(5+more+1)
	b = perf.Header{Type: perf.RecordSample, Size: uint16(size)}.Append(b, perf.NativeOrder)
	for _, w := range []uint64{id, 0, uint64(uint32(tid))<<32 | uint64(uint32(tid)), time, 0} {
		b = perf.NativeOrder.AppendUint64(b, w)
	}
	for range more {
		b = perf.NativeOrder.AppendUint64(b, 0x1111)
	}
	return perf.NativeOrder.AppendUint64(b, cgroup)
}

// tids are the tasks of the samples in b.
func tids(t *testing.T, b ...[]byte) (list []int32) {
	t.Helper()
	for raw, err := range perfevent.Records(slices.Concat(b...), nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if perf.ParseHeader(raw, perf.NativeOrder).Type == perf.RecordSample {
			list = append(list, perf.Raw(raw).SampleTID())
		}
	}
	return list
}

// following filters by tasks.
func following(tasks ...int) *SampleFilter {
	s := &SampleFilter{Tasks: NewTaskSet(tasks)}
	s.AddEvent(7, perf.SampleCgroup, false, true)
	s.AddEvent(8, 0, false, false)
	return s
}

// Wherever the ring wraps, the same samples are kept, and all records that are
// no samples.
func TestSampleFilterWrap(t *testing.T) {
	var b []byte
	for i := range int32(40) {
		b = sampleOf(b, 7, 100+i%4, uint64(i), 5, int(i)%3)
		if i%10 == 0 {
			b = perf.Header{Type: perf.RecordLost, Size: 24}.Append(b, perf.NativeOrder)
			b = append(b, make([]byte, 16)...)
		}
	}
	b = sampleOf(b, 8, 1, 50, 5, 0)
	s := following(100, 102)
	if !s.Active() {
		t.Fatal("not active")
	}
	var want []byte
	for at := 0; at <= len(b); at += 8 {
		var scratch []byte
		x, y, err := s.Apply(b[:at], b[at:], &scratch)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.Concat(x, y)
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("split at %d: %v, want %v", at, tids(t, got), tids(t, want))
		}
	}
	list := tids(t, want)
	if len(list) != 21 || slices.Contains(list, 101) || !slices.Contains(list, 1) {
		t.Errorf("kept are %v", list)
	}
	if n := bytes.Count(want, perf.Header{Type: perf.RecordLost, Size: 24}.Append(nil, perf.NativeOrder)); n != 4 {
		t.Errorf("%d LOST records, want 4", n)
	}
	// What is kept whole is not copied.
	s = following(100, 101, 102, 103)
	var scratch []byte
	if x, y, err := s.Apply(b[:80], b[80:], &scratch); err != nil || &x[0] != &b[0] || len(x) != 80 || len(y) != len(b)-80 || len(scratch) != 0 {
		t.Errorf("%d and %d bytes, %v", len(x), len(y), err)
	}
	if _, _, err := s.Apply(b[:len(b)-8], nil, &scratch); err == nil {
		t.Error("no error for a record that is cut")
	}
}

// A task that exits is forgotten a round later, unless its number was given again, or
// it executed a program in another thread, which goes on with its number.
func TestTaskSet(t *testing.T) {
	set := NewTaskSet([]int{10})
	procs := proctable.New(procfs.FS{}, 0)
	procs.Subscribe(set)
	fork := func(pid, tid int32) { procs.Decoded(&perf.Fork{Task: perf.Task{PID: pid, TID: tid}}) }
	exit := func(tid int32, time uint64) {
		procs.Decoded(&perf.Exit{Task: perf.Task{PID: tid, TID: tid, Time: time}})
	}
	fork(20, 20)
	fork(20, 21)
	fork(set.self, 99)
	exit(21, 0)
	exit(50, 0)
	for tid, want := range map[int32]bool{10: true, 20: true, 21: true, 99: false, 50: false, 0: false} {
		if set.Has(tid) != want {
			t.Errorf("task %d: %v", tid, !want)
		}
	}
	procs.Round()
	if !set.Has(21) {
		t.Error("forgotten in the round of its end")
	}
	exit(20, 0)
	fork(30, 20) // the number is used again
	exec := &perf.Comm{PID: 10, TID: 10}
	exec.Misc, exec.SampleID.Time = perf.MiscCommExec, 50
	exit(10, 49)
	procs.Decoded(exec) // by another thread, which is 10 from now on
	exit(10, 49)
	procs.Round()
	procs.Round()
	if set.Has(21) || !set.Has(20) || !set.Has(10) {
		t.Errorf("after its end: %v, used again: %v, executed: %v", set.Has(21), set.Has(20), set.Has(10))
	}
}

// The cgroup of a sample is found behind what may follow it.
func TestSampleCgroup(t *testing.T) {
	var s SampleFilter
	for id, tt := range []struct {
		typ  perf.SampleType
		want int
	}{
		{perf.SampleIP, 0},
		{perf.SampleIP | perf.SampleCgroup, 8},
		{perf.SampleCgroup | perf.SampleDataPageSize | perf.SampleCodePageSize, 24},
		{perf.SampleCgroup | perf.SampleAux, 0},
	} {
		s.AddEvent(uint64(id), tt.typ, false, false)
		if got := s.events[uint64(id)].cgroupBack; got != tt.want {
			t.Errorf("%#x: %d, want %d", tt.typ, got, tt.want)
		}
	}
	if s.Active() {
		t.Error("active without a filter")
	}
}

// No more is held than is bounded.
func TestOverdue(t *testing.T) {
	s := &SampleFilter{held: []heldSample{{size: 8}}, bytes: make([]byte, 8), since: time.Now()}
	if s.Overdue() {
		t.Error("at once")
	}
	s.since = s.since.Add(-holdTime)
	if !s.Overdue() {
		t.Error("not after its time")
	}
	s.since, s.bytes = time.Now(), make([]byte, maxHeld)
	if !s.Overdue() || !s.Holding() {
		t.Error("not when it is too much")
	}
}
