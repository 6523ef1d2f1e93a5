// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// TestNoteOmitted: what has no room in a stream is told, once.
func TestNoteOmitted(t *testing.T) {
	large := &perfdata.Features{BPFProgInfo: make([]byte, 1<<17)}
	w, err := perfdata.NewPipeWriter(io.Discard, []*perf.Event{sidebandEvent()}, &perfdata.WriterOptions{Features: large})
	if err != nil {
		t.Fatal(err)
	}
	large.BPFProgInfo[0]++ // it has changed since
	if err := w.Close(large); err != nil {
		t.Fatal(err)
	}
	r := new(session)
	r.noteOmitted(w)
	if n := r.result.Notes; len(n) != 1 || !strings.Contains(n[0], "BPF_PROG_INFO") {
		t.Errorf("notes are %q, want one about BPF_PROG_INFO", n)
	}
}

func TestChooseRings(t *testing.T) {
	clock := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWCPUClock, Flags: perf.AttrFreq, SampleCount: 4000}
	fast := clock
	fast.SampleCount = 20000
	dwarf := clock
	dwarf.SampleType = perf.SampleStackUser
	trace := perf.Attr{Type: perf.TypeTracepoint, SampleCount: 1}
	dummy := sidebandAttr(false)
	for _, tt := range []struct {
		name string
		o    Options
		attr perf.Attr
		cpus int
		want int
	}{
		{"clock", Options{}, clock, 2, smallRing},
		{"fast", Options{}, fast, 2, largeRing},
		{"dwarf", Options{}, dwarf, 2, largeRing},
		{"tracepoint", Options{}, trace, 2, largeRing},
		{"many cpus", Options{}, trace, 256, 2 << 20},
		{"very many cpus", Options{}, trace, 4096, smallRing},
		{"as told", Options{RingSize: 8192}, trace, 2, 8192},
		{"sideband alone", Options{}, dummy, 2, smallRing},
	} {
		got := chooseRings(&tt.o, []*perf.Event{perf.NewEvent(tt.attr, "e"), perf.NewEvent(dummy, "dummy")}, tt.cpus)
		if got.samples != tt.want || got.sideband != sidebandRing {
			t.Errorf("%s: %+v, want %d", tt.name, got, tt.want)
		}
	}
}

// Rings become smaller until they are permitted, those of samples only without
// an order for their size.
func TestShrinkRings(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		s := ringSizes{samples: largeRing, sideband: sidebandRing}
		tries := 1
		for s.shrink(ordered) {
			if tries++; tries > 20 || s.samples < smallestRing || s.sideband < smallestRing {
				t.Fatalf("ordered=%v: %+v after %d tries", ordered, s, tries)
			}
		}
		if ordered != (s.samples == largeRing) || s.sideband > smallestRing {
			t.Errorf("ordered=%v: the last try is %+v", ordered, s)
		}
	}
}

func TestSampleAttr(t *testing.T) {
	attr := func(o Options, spec string) perf.Attr {
		g := groups(t, spec)
		return o.sampleAttr(&g[0], &g[0].Events[0], true, false, false)
	}
	for _, tt := range []struct {
		name  string
		o     Options
		spec  string
		count uint64
		freq  bool
	}{
		{"default", Options{}, "cpu-clock", DefaultFrequency, true},
		{"slow kernel", Options{MaxFrequency: 1000}, "cpu-clock", 1000, true},
		{"-F", Options{Frequency: 99}, "cpu-clock", 99, true},
		{"-c", Options{Period: 5}, "cpu-clock", 5, false},
		{"term", Options{Frequency: 99}, "cpu-clock/period=7/", 7, false},
		{"breakpoint", Options{}, "mem:0x1000:w", 1, false},
	} {
		a := attr(tt.o, tt.spec)
		if a.SampleCount != tt.count || (a.Flags&perf.AttrFreq != 0) != tt.freq {
			t.Errorf("%s: count %d, flags %x", tt.name, a.SampleCount, a.Flags)
		}
		if a.SampleType&perf.RawSampleType != perf.RawSampleType || a.Flags&perf.AttrDisabled == 0 {
			t.Errorf("%s: sample type %x, flags %x", tt.name, a.SampleType, a.Flags)
		}
	}
	a := attr(Options{CallGraph: DWARF, StackSize: 1001}, "cpu-clock")
	if a.SampleStackUser != 1008 || a.SampleRegsUser == 0 || a.Flags&perf.AttrExcludeCallchainUser == 0 {
		t.Errorf("dwarf: %+v", a)
	}
}

func TestCommandErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"no-such-command-at-all": 127, filepath.Join(dir, "none"): 127, plain: 126, dir: 126} {
		_, err := newWorkload(&Command{Args: []string{name}})
		var ce *CommandError
		if !errors.As(err, &ce) || ce.ExitCode() != want || hint.Of(err) == "" {
			t.Errorf("%s: %v (hint %q), want exit status %d", name, err, hint.Of(err), want)
		}
	}
	if _, err := newWorkload(&Command{}); err == nil {
		t.Error("no error for no command")
	}
}

func TestOpenErrors(t *testing.T) {
	testutil.CheckLeaks(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		o    Options
		want error
	}{
		"cpu":     {Options{Target: Target{CPUs: []int{1 << 14}}}, perfevent.ErrNoCPU},
		"process": {Options{Target: Target{PIDs: []int{ended.Process.Pid}}}, perfevent.ErrNoTask},
		"thread":  {Options{Target: Target{TIDs: []int{ended.Process.Pid}}}, perfevent.ErrNoTask},
		"cgroup":  {Options{Target: Target{Cgroups: []string{t.TempDir() + "/none"}}}, os.ErrNotExist},
	} {
		r, err := Open(tt.o)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err == nil {
			r.Close()
		}
	}
}

// Close without Run, Close twice, Run after Close.
// A thread that is named twice is recorded once.
func TestThreadsOnce(t *testing.T) {
	self := os.Getpid()
	r := &Recorder{opts: Options{Target: Target{PIDs: []int{self, self}, TIDs: []int{self}}}}
	tids, err := r.threads()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, tid := range tids {
		if tid == self {
			n++
		}
	}
	if n != 1 {
		t.Errorf("thread %d is there %d times in %v", self, n, tids)
	}
}

// KillCommand and CommandRuns are harmless without a command.
func TestKillNothing(t *testing.T) {
	for _, r := range []*Recorder{{}, {child: new(workload)}} {
		r.KillCommand()
		if r.CommandRuns() {
			t.Errorf("%+v runs", r)
		}
	}
}

func TestCloseEarly(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents)
	testutil.CheckLeaks(t)
	r, err := Open(Options{Groups: groups(t, "cpu-clock")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(context.Background(), Output{Pipe: new(strings.Builder)}); err == nil {
		t.Error("no error from Run after Close")
	}
}

// However long nothing happened, a new container is asked about soon.
func TestNamesPause(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		took, ago time.Duration
		waiting   bool
		want      time.Duration
	}{
		{ms, ms, false, minRefresh - ms},
		{ms, time.Hour, false, settleTime},
		{100 * ms, 100 * ms, false, 1900 * ms},
		{100 * ms, 100 * ms, true, 150 * ms},
		{100 * ms, time.Second, false, time.Second},
		{time.Second, time.Second, true, time.Second},
		{time.Second, time.Minute, false, settleTime},
	} {
		if got := pauseFor(tt.took, tt.ago, tt.waiting); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestNamesWithoutResolver(t *testing.T) {
	n := newNames(nil, nil, 0)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	n.addCgroup(42, "/docker/"+id)
	// Before it is started: count does not wait for who looks for names.
	if got := n.count(map[uint64]uint64{42: 1, 43: 1}); got != 1 {
		t.Errorf("%d containers, want 1", got)
	}
	if _, ok, err := n.late(); ok || err != nil {
		t.Errorf("there is an answer before the question (%v)", err)
	}
	n.start()
	<-n.asked
	var section []byte
	for ok, err := false, error(nil); !ok; { // it may be asked again right now
		if section, ok, err = n.late(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Contains(section, []byte(id)) {
		t.Errorf("the answer does not know %s:\n%s", id, section)
	}
	table := n.wait()
	if c := table.ByCgroup(42); c == nil || c.ID != id || c.Kind != container.KindContainer {
		t.Errorf("container of cgroup 42 is %+v", c)
	}
}

// What a long recording could fill memory with is bounded, and what was left
// out is told.
func TestBounds(t *testing.T) {
	n := newNames(nil, nil, 0)
	for i := range uint64(maxQueue + 2) {
		n.addCgroup(i+1, "/x")
	}
	if len(n.queue) != maxQueue {
		t.Errorf("%d cgroups wait", len(n.queue))
	}
	n.take(false)
	if !n.table.Full || len(n.queue) != 0 {
		t.Errorf("full is %v, %d wait", n.table.Full, len(n.queue))
	}

	accounts := make(map[uint64]uint64)
	for id := range uint64(maxCounted + 2) {
		addCount(accounts, id, 1)
	}
	if len(accounts) != maxCounted || accounts[0] != 3 || accounts[1] != 1 {
		t.Errorf("%d accounts, %d in none's", len(accounts), accounts[0])
	}
}
