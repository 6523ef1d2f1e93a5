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
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// recording is a finished recording of a test.
type recording struct {
	path string
	res  *Result
}

// record records into a file of the test. Without a command it stops after a
// second.
func record(t testing.TB, o Options) *recording {
	t.Helper()
	rec, err := tryRecord(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func tryRecord(t testing.TB, o Options) (*recording, error) {
	t.Helper()
	if o.PMUs == nil {
		o.PMUs = perfevent.NewPMUs(nil)
		t.Cleanup(func() { o.PMUs.Close() })
	}
	o.CmdLine = []string{"gantry", "record"}
	if o.Command == nil {
		o.Duration = time.Second
	}
	return runWith(context.Background(), t, o)
}

// runWith records into a file of the test until the context ends, or what ends
// a recording by itself.
func runWith(ctx context.Context, t testing.TB, o Options) (*recording, error) {
	t.Helper()
	r, err := Open(o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	path := filepath.Join(t.TempDir(), "perf.data")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res, err := r.Run(ctx, Output{File: f})
	return &recording{path, res}, err
}

func groups(t testing.TB, specs ...string) []perfevent.Group {
	t.Helper()
	g, err := perfevent.ParseAll(specs, perfevent.NewPMUs(nil))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// busyLoop is a command that takes some time of one CPU.
func busyLoop() *Command {
	return &Command{Args: []string{"sh", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; :"}}
}

// perfRun runs the real perf, which must not complain.
func perfRun(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", args...) })
	if err != nil {
		t.Fatalf("perf %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	if stderr != "" {
		t.Errorf("perf %s complains:\n%s", strings.Join(args, " "), stderr)
	}
	return string(stdout)
}

// perfSamples is how many samples perf script prints, by event.
func perfSamples(t testing.TB, path string) map[string]uint64 {
	t.Helper()
	out := perfRun(t, "script", "-i", path, "-F", "event", "-G")
	n := make(map[string]uint64)
	for line := range strings.Lines(out) {
		if ev := strings.TrimSuffix(strings.TrimSpace(line), ":"); ev != "" {
			n[ev]++
		}
	}
	return n
}

func total(n map[string]uint64) (sum uint64) {
	for _, v := range n {
		sum += v
	}
	return sum
}

// contents is what gantry's own reader finds in a file.
type contents struct {
	feats   *perfdata.Features
	events  []*perf.Event
	types   map[perf.RecordType]int
	samples []perf.Sample
	eventOf []*perf.Event // of each sample
	records []perf.Record // sideband
	table   container.Table
}

// newOutput makes the file of a recording, which lasts as long as the test.
func newOutput(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "perf.data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t testing.TB, path string) *contents {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := &contents{types: map[perf.RecordType]int{}}
	var last uint64
	ordered := r.Ordered()
	for {
		rec, err := ordered.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		c.types[rec.Type]++
		if rec.HasTime {
			if rec.Time < last {
				t.Errorf("%v at %d: time goes back from %d to %d", rec.Type, rec.Offset, last, rec.Time)
			}
			last = rec.Time
		}
		if !rec.Type.Kernel() {
			continue
		}
		dec, err := perf.Decode(rec.Raw, r.Order(), rec.Event)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := dec.(*perf.Sample); ok {
			c.samples, c.eventOf = append(c.samples, *s), append(c.eventOf, rec.Event)
		} else {
			c.records = append(c.records, dec)
		}
	}
	for _, w := range r.Warnings() {
		t.Errorf("gantry's reader complains: %v", w)
	}
	c.feats, c.events = r.Features(), r.Events().List()
	if c.feats.Gantry != nil {
		if err := c.table.UnmarshalJSON(c.feats.Gantry); err != nil {
			t.Error(err)
		}
	}
	return c
}

// TestPerfReadsIt records what perf record can and lets perf read it.
func TestPerfReadsIt(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("perf"))
	for name, o := range map[string]Options{
		"whole machine":       {Command: busyLoop(), Target: Target{All: true}, Groups: groups(t, "cpu-clock")},
		"stacks":              {Command: busyLoop(), Target: Target{All: true}, CallGraph: FramePointers, Groups: groups(t, "cpu-clock")},
		"command":             {Command: busyLoop(), CallGraph: FramePointers, Groups: groups(t, "cpu-clock")},
		"dwarf":               {Command: busyLoop(), CallGraph: DWARF, Frequency: 499, Groups: groups(t, "cpu-clock")},
		"group":               {Command: busyLoop(), Target: Target{All: true}, Groups: groups(t, "{cpu-clock,page-faults}:S")},
		"group of samplers":   {Command: busyLoop(), Groups: groups(t, "{cpu-clock,page-faults}")},
		"group of a command":  {Command: busyLoop(), Groups: groups(t, "{task-clock,page-faults}:S")},
		"tracepoint":          {Command: busyLoop(), Target: Target{All: true}, Groups: groups(t, "sched:sched_switch")},
		"tracepoints":         {Command: busyLoop(), Groups: groups(t, "sched:sched_process_*", "raw_syscalls:sys_enter")},
		"multiple events":     {Command: busyLoop(), Target: Target{All: true}, CallGraph: FramePointers, Groups: groups(t, "cpu-clock,sched:sched_switch,page-faults")},
		"compressed":          {Command: busyLoop(), Target: Target{All: true}, CallGraph: FramePointers, Compress: 1, Groups: groups(t, "cpu-clock")},
		"period":              {Command: busyLoop(), Period: 500000, Groups: groups(t, "cpu-clock")},
		"terms":               {Command: busyLoop(), Groups: groups(t, "cpu-clock/call-graph=fp,freq=500/,page-faults/period=7/")},
		"one cpu":             {Command: busyLoop(), Target: Target{All: true, CPUs: []int{0}}, Groups: groups(t, "cpu-clock")},
		"the event by itself": {Command: busyLoop()},
	} {
		t.Run(name, func(t *testing.T) {
			testutil.CheckLeaks(t)
			rec := record(t, o)
			if rec.res.Child.Code != 0 || !rec.res.Child.Ran {
				t.Errorf("child %+v", rec.res.Child)
			}
			compareWithPerf(t, rec)
		})
	}
}

// compareWithPerf checks that perf reads a file without complaint, and finds
// the samples that gantry wrote, each as gantry's reader does.
func compareWithPerf(t *testing.T, rec *recording) {
	t.Helper()
	got := perfSamples(t, rec.path)
	c := read(t, rec.path)
	for _, ev := range c.events {
		// perf makes a sample of its own of each count in a leader's.
		if ev.Attr.SampleType&perf.SampleRead != 0 && ev.Attr.SampleCount == 0 {
			delete(got, ev.Name)
		}
	}
	if total(got) != rec.res.Samples || rec.res.Samples == 0 {
		t.Errorf("perf finds %d samples %v, gantry wrote %d", total(got), got, rec.res.Samples)
	}
	perfRun(t, "report", "-i", rec.path, "--no-inline", "--stdio") // or addr2line complains by way of it
	report := perfRun(t, "report", "-i", rec.path, "--stdio", "--header-only")
	if !strings.Contains(report, "# cpudesc") || !strings.Contains(report, "# cmdline") {
		t.Errorf("header is not complete:\n%s", report)
	}
	compareSamples(t, rec.path, c)
	if uint64(len(c.samples)) != rec.res.Samples {
		t.Errorf("gantry reads %d samples of %d", len(c.samples), rec.res.Samples)
	}
	for i := range c.samples {
		s := &c.samples[i]
		if s.Time < c.feats.SampleTime[0] || s.Time > c.feats.SampleTime[1] {
			t.Fatalf("sample at %d is outside of SAMPLE_TIME %v", s.Time, c.feats.SampleTime)
		}
	}
}

func TestTracepointFields(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("perf"))
	rec := record(t, Options{Command: busyLoop(), Groups: groups(t, "sched:sched_process_exec")})
	out := perfRun(t, "script", "-i", rec.path, "-F", "trace:comm,event,trace")
	want := regexp.MustCompile(`(?m)^\s*sh\s+sched:sched_process_exec: filename=\S*/sh pid=\d+ old_pid=\d+$`)
	if !want.MatchString(out) {
		t.Errorf("no match for %v in:\n%s", want, out)
	}
}

func TestPipe(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("perf"))
	r, err := Open(Options{Command: busyLoop(), CallGraph: FramePointers,
		PMUs: perfevent.NewPMUs(nil), Groups: groups(t, "cpu-clock,sched:sched_process_exec")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var stream bytes.Buffer
	res, err := r.Run(context.Background(), Output{Pipe: &stream})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"script", "-i", "-", "-F", "event", "-G"}, {"report", "-i", "-", "--stdio"}} {
		cmd := exec.Command("perf", args...)
		cmd.Stdin = bytes.NewReader(stream.Bytes())
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Errorf("perf %v: %v\n%s", args, err, &stderr)
		}
		if n := strings.Count(stdout.String(), "\n"); args[0] == "script" && uint64(n) != res.Samples {
			t.Errorf("perf finds %d samples, gantry wrote %d", n, res.Samples)
		}
	}
}

func TestRunningProcess(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf"))
	prog := testutil.StartReady(t, exec.Command(testutil.SpinProgram(t, "spin_in_peace")))
	for name, target := range map[string]Target{
		"process": {PIDs: []int{prog.Process.Pid}},
		"thread":  {TIDs: []int{prog.Process.Pid}},
	} {
		t.Run(name, func(t *testing.T) {
			rec := record(t, Options{Target: target, CallGraph: FramePointers, Groups: groups(t, "cpu-clock")})
			compareWithPerf(t, rec)
			out := perfRun(t, "report", "-i", rec.path, "--stdio", "--no-children", "-g", "none", "--sort", "pid,sym")
			if !regexp.MustCompile(strconv.Itoa(prog.Process.Pid) + `:\S+\s+\[\.\] spin_in_peace`).MatchString(out) {
				t.Errorf("no spin_in_peace of %d in:\n%s", prog.Process.Pid, out)
			}
		})
	}
	// The recording ends with the process, long before its time.
	r, err := Open(Options{Target: Target{PIDs: []int{prog.Process.Pid}}, Groups: groups(t, "cpu-clock")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "perf.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prog.In.Close() // ends it
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := r.Run(ctx, Output{File: f}); err != nil || ctx.Err() != nil {
		t.Errorf("recording of an ended process: %v, %v", err, ctx.Err())
	}
}

// testProcess is this test program again, running one test with a variable
// set.
func testProcess(test, variable string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable)
	return cmd
}

// recordForever records until it is killed, and says on stdout when there is
// something in the file, between two rounds.
func recordForever(t *testing.T, name string) {
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	passes := 0
	r, err := Open(Options{Groups: groups(t, "cpu-clock", "sched:sched_switch"), Frequency: 4000, Progress: func(p Progress) {
		if passes++; p.Samples > 0 && passes >= 3 {
			os.Stdout.WriteString("recording\n")
			<-make(chan struct{}) // until it is killed
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Run(context.Background(), Output{File: f}); err != nil {
		t.Fatal(err)
	}
}

// A recording that cannot begin leaves nothing behind, and lets go of what it
// was given.
func TestBeginFails(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents)
	res := resolver(t)
	store := t.TempDir()
	name := filepath.Join(t.TempDir(), "out")
	testutil.CheckLeaks(t)
	r, err := Open(Options{Groups: groups(t, "cpu-clock"), Store: store, Resolver: res})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.Run(context.Background(), Output{File: f}); err == nil {
		t.Error("a file that is open for reading was written")
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	res.Refresh(t.Context()) // which waits for no snapshot any more
}
