// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// taskTable has tasks observe a process table.
type taskTable struct{ Filter }

func newTaskTable() (*tasks, *proctable.Table) {
	procs := proctable.New(procfs.FS{}, 0)
	f := &taskTable{Filter{tasks: newTasks(host()), plan: new(Plan)}}
	procs.Subscribe(f)
	return f.tasks, procs
}

func TestTasks(t *testing.T) {
	tasks, procs := newTaskTable()
	idle := tasks.at(0, 0)
	a, b := tasks.id(with(t, "pid:10")), tasks.id(with(t, "pid:11"))
	fork := func(tid, parent int32, time uint64, misc perf.Misc) {
		r := &perf.Fork{Task: perf.Task{PID: tid, TID: tid, PPID: parent, PTID: parent, Time: time}}
		r.Misc = misc
		procs.Decoded(r)
	}
	exit := func(tid int32, time uint64) {
		procs.Decoded(&perf.Exit{Task: perf.Task{PID: tid, TID: tid, Time: time}})
	}
	exec := func(tid int32, time uint64) {
		r := &perf.Comm{PID: tid, TID: tid}
		r.Misc, r.SampleID.Time = perf.MiscCommExec, time
		procs.Decoded(r)
	}
	fork(100, 1, 5, perf.MiscStatusOnly)
	tasks.enter(100, 10, a)
	fork(101, 100, 20, 0)
	tasks.enter(100, 40, b)
	tasks.enter(100, 30, idle) // a record of another CPU comes late
	fork(102, 100, 50, 0)
	fork(103, 100, 35, 0)
	for _, tt := range []struct {
		tid  int32
		time uint64
		want nsID
	}{
		{100, 10, a}, {100, 29, a}, {100, 30, idle}, {100, 40, b}, {100, 1000, b}, {100, 1, 0},
		{101, 20, a}, {101, 99, a}, {102, 60, b}, {103, 60, idle}, {0, 5, idle}, {7, 5, 0},
	} {
		if got := tasks.at(tt.tid, tt.time); got != tt.want {
			t.Errorf("task %d at %d: %d, want %d", tt.tid, tt.time, got, tt.want)
		}
	}
	exit(101, 60)
	procs.Round()
	tasks.round(2e12)
	if tasks.at(101, 99) != a {
		t.Error("a task is forgotten in the round of its end")
	}
	procs.Round()
	tasks.round(3e12)
	if tasks.at(101, 99) != 0 {
		t.Error("a task that ended is remembered")
	}
	if n := len(tasks.byTID[100].spans); n != 1 || tasks.at(100, 4e12) != b {
		t.Errorf("%d spans", n)
	}
	// A thread that executes a program takes the number of the first, which
	// ends before; the records may come in any order.
	fork(104, 100, 3e12, 0)
	fork(105, 100, 3e12, 0)
	exit(104, 3e12+5)
	exec(104, 3e12+6)
	exec(105, 3e12+6)
	exit(105, 3e12+5)
	for range 4 {
		procs.Round()
		tasks.round(3e12)
	}
	if tasks.at(104, 4e12) != b || tasks.at(105, 4e12) != b {
		t.Error("a task that executed a program is forgotten")
	}
	// The number is used again before the round is over.
	exit(102, 70)
	fork(102, 0, 3e12, 0)
	for range 4 {
		procs.Round()
		tasks.round(4e12)
	}
	if tasks.at(102, 5e12) != idle {
		t.Error("a new task is forgotten with the old one")
	}
}

// Time namespaces are told of apart from the others, and in any order.
func TestClocks(t *testing.T) {
	tasks := newTasks(host())
	if got := tasks.clockAt(0, 5); got != host()[container.TimeNS] {
		t.Errorf("the idle task's is %d", got)
	}
	a := tasks.id(with(t, "pid:10"))
	tasks.enter(100, 10, a)
	tasks.enterClock(100, 30, 77) // of an execve
	tasks.enterClock(100, 10, 66) // of the record of its namespaces
	tasks.enterClock(100, 40, 0)  // could not be read
	tasks.enterClock(999, 40, 5)  // nobody knows it
	tasks.fork(&proctable.Event{PID: 101, TID: 101, PPID: 100, PTID: 100, Time: 20})
	for _, tt := range []struct {
		tid        int32
		time, want uint64
	}{{100, 10, 66}, {100, 29, 66}, {100, 30, 77}, {100, 99, 77}, {101, 50, 66}, {999, 50, 0}} {
		if got := tasks.clockAt(tt.tid, tt.time); got != tt.want {
			t.Errorf("task %d at %d: %d, want %d", tt.tid, tt.time, got, tt.want)
		}
	}
	for i := range uint64(1000) {
		tasks.enterClock(100, 100+i, i+1)
	}
	if n := len(tasks.byTID[100].clocks); n > maxClocks || tasks.clockAt(100, 2000) != 1000 {
		t.Errorf("%d are remembered, the last is %d", n, tasks.clockAt(100, 2000))
	}
}

func TestFifo(t *testing.T) {
	var q fifo[int]
	for i := range 5 {
		q.add(i)
		q.add(i)
	}
	if !q.remove(0) || q.remove(0) || q.remove(9) {
		t.Error("remove")
	}
	inUse := func(k int) bool { return k < 3 }
	var got []int
	for range 3 {
		got = append(got, q.oldest(inUse))
	}
	if !slices.Equal(got[:2], []int{3, 4}) || got[2] > 2 || len(q.in) != 1 {
		t.Errorf("%v, %v left", got, q.in)
	}
	for i := range 10000 { // what comes and goes leaves nothing behind
		q.add(100)
		q.add(100 + i)
		q.remove(100)
		q.remove(100 + i)
	}
	if len(q.order) > 100 {
		t.Errorf("%d keys are in order, %d in the map", len(q.order), len(q.in))
	}
}

func TestFifoTidy(t *testing.T) {
	var q fifo[int]
	for i := range 200 {
		q.add(i)
	}
	for i := range 198 {
		q.remove(i)
	}
	q.add(5) // behind 198 and 199, though it was there before them
	var got []int
	for range 3 {
		got = append(got, q.oldest(func(int) bool { return false }))
	}
	if !slices.Equal(got, []int{198, 199, 5}) {
		t.Error(got)
	}
}
