// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// workload forks, execs and burns CPU for a moment.
const workload = `for n in 1 2 3; do /bin/true; (i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done) & done; wait`

// matrix is the kinds of recordings that perf makes.
var matrix = []struct {
	name  string
	args  []string
	pipe  bool
	group bool // perf prints one line per member of the group
	zstd  bool // rewrite it compressed, too
}{
	{name: "fp", args: []string{"-a", "-g", "-F", "5000"}, zstd: true},
	{name: "dwarf", args: []string{"--call-graph", "dwarf,4096", "-F", "2000"}},
	{name: "group", args: []string{"-a", "-F", "2000", "-e", "{cpu-clock,task-clock}:S"}, group: true},
	{name: "tracepoints", args: []string{"-e", "sched:sched_switch,raw_syscalls:sys_enter"}, zstd: true},
	{name: "namespaces", args: []string{"-a", "--namespaces", "--all-cgroups", "-F", "2000"}},
	{name: "buildid-mmap", args: []string{"--buildid-mmap", "-F", "2000"}},
	{name: "zstd", args: []string{"-g", "-z", "-F", "10000"}},
	{name: "zstd19", args: []string{"-g", "--compression-level=19", "-F", "10000"}},
	{name: "pipe", args: []string{"-F", "2000", "-e", "cpu-clock,sched:sched_switch"}, pipe: true},
	{name: "pipe-zstd", args: []string{"-z", "-F", "2000"}, pipe: true},
	{name: "per-thread", args: []string{"--per-thread", "-F", "5000"}},
	{name: "events", args: []string{"-e", "cpu-clock:u,page-faults,context-switches,cpu-migrations", "-c", "100000"}},
	{name: "no-time", args: []string{"-T", "--no-timestamp", "-F", "2000"}},
	{name: "clockid", args: []string{"-a", "-k", "CLOCK_MONOTONIC", "-F", "2000"}},
	{name: "data", args: []string{"-d", "-W", "--phys-data", "-F", "2000", "--switch-events"}},
}

func TestRealPerf(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("perf"))
	restoreTracefs(t)
	for _, m := range matrix {
		t.Run(m.name, func(t *testing.T) {
			file := record(t, m.args, m.pipe)
			compareWithPerf(t, file, m.pipe, m.group)
			want := script(t, file)
			rewrite(t, file, want, false, 0)
			rewrite(t, file, want, true, 0)
			if m.zstd {
				rewrite(t, file, want, false, 3)
				rewrite(t, file, want, true, 3)
			}
		})
	}
}

// restoreTracefs takes tracefs away again if perf mounts it.
func restoreTracefs(t *testing.T) {
	mounted := func() bool {
		b, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(b, []byte(" /sys/kernel/tracing "))
	}
	if mounted() {
		return
	}
	t.Cleanup(func() {
		if mounted() {
			if err := syscall.Unmount("/sys/kernel/tracing", 0); err != nil {
				t.Errorf("unmount tracefs: %v", err)
			}
		}
	})
}

// record runs perf record. Where the machine cannot do what is asked, the test
// is skipped.
func record(t *testing.T, args []string, pipe bool) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "perf.data")
	stdout, stderr, err := runRecord(t, file, args, pipe)
	if err != nil && (strings.Contains(stderr, "not supported") || strings.Contains(stderr, "nknown option")) {
		testutil.NotHere(t, "perf record %v: %s", args, stderr)
	}
	if err != nil {
		t.Fatalf("perf record %v: %v\n%s", args, err, stderr)
	}
	if pipe {
		if err := os.WriteFile(file, stdout, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

func runRecord(t *testing.T, file string, args []string, pipe bool) (stdout []byte, stderr string, err error) {
	t.Helper()
	out := file
	if pipe {
		out = "-"
	}
	args = append([]string{"record", "--no-buildid-cache", "-o", out}, args...)
	args = append(args, "--", "sh", "-c", workload)
	cmd := func() *exec.Cmd { return exec.Command("perf", args...) }
	if pipe {
		return testutil.RunPerf(t, cmd)
	}
	return testutil.RecordPerf(t, file, cmd)
}

// stats is what perf report --stats says: records by type.
func stats(t *testing.T, file string) map[string]int {
	t.Helper()
	out, _ := runPerf(t, "report", "--stats", "-i", file)
	counts := make(map[string]int)
	re := regexp.MustCompile(`^ *(\S+) events: +(\d+)`)
	total := false
	for line := range strings.Lines(out) {
		m := re.FindStringSubmatch(line)
		if m == nil {
			if total && strings.Contains(line, "stats:") {
				break // those of each event follow
			}
			continue
		}
		var n int
		fmt.Sscan(m[2], &n)
		counts[m[1]] = n
		total = true
	}
	delete(counts, "TOTAL")
	return counts
}

func runPerf(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", args...) })
	if err != nil {
		t.Fatalf("perf %v: %v\n%s", args, err, stderr)
	}
	return string(out), stderr
}

// compareWithPerf reads the file in both orders and asks perf what is in it.
func compareWithPerf(t *testing.T, file string, pipe, group bool) {
	t.Helper()
	got, _, _ := readReal(t, file, false)
	ordered, times, late := readReal(t, file, true)
	if got["SAMPLE"] == 0 {
		t.Fatal("no samples: the test says nothing")
	}
	if diff := cmp.Diff(got, ordered); diff != "" {
		t.Errorf("records by type (-file order +time order):\n%s", diff)
	}
	if !group && times != nil {
		compareTimes(t, file, times, late)
	}
	if pipe { // perf report --stats cannot read what perf record wrote to a pipe
		return
	}
	want := stats(t, file)
	delete(want, "COMPRESSED")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records by type (-perf +gantry):\n%s", diff)
	}
}

// readReal reads what perf wrote: records by type, the times of the samples, and
// how many records came late.
func readReal(t *testing.T, file string, ordered bool) (got map[string]int, times []string, late int) {
	t.Helper()
	r, err := Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next := r.Next
	if ordered {
		next = r.Ordered().Next
	}
	got = make(map[string]int)
	for {
		rec, err := next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[rec.Type.String()]++
		if rec.Type == perf.RecordSample && rec.HasTime {
			times = append(times, fmt.Sprintf("%d.%09d", rec.Time/1e9, rec.Time%1e9))
		}
		v, err := perf.Decode(rec.Raw, r.Order(), rec.Event)
		if err != nil {
			t.Errorf("offset %d: %v", rec.Offset, err)
		}
		if s, ok := v.(*perf.Sample); ok && rec.Event.Attr.Type == perf.TypeTracepoint {
			checkTracepoint(t, r, rec.Event, s)
		}
	}
	for _, w := range r.Warnings() {
		if w.Kind != WarnOutOfOrder { // the kernel's doing; perf says so too
			t.Errorf("ordered %v: %v", ordered, w)
		}
		late += int(w.Count)
	}
	return got, times, late
}

// checkTracepoint: the format of the event is there, and all its fields are.
func checkTracepoint(t *testing.T, r *Reader, ev *perf.Event, s *perf.Sample) {
	t.Helper()
	f := r.tracing().Event(ev.Attr.Config)
	if f == nil {
		t.Fatalf("%s has no format", ev.Name)
	}
	if text := f.AppendFields(nil, s.Raw, r.Order()); f.System+":"+f.Name != ev.Name || len(text) == 0 || bytes.Contains(text, []byte("=?")) {
		t.Fatalf("%s: %q", ev.Name, text)
	}
}

// compareTimes compares the samples, one by one, with perf script's.
func compareTimes(t *testing.T, file string, got []string, late int) {
	t.Helper()
	out, stderr := runPerf(t, "script", "-i", file, "-F", "tid,time", "--ns", "-G")
	var want []string
	for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) == 2 {
			want = append(want, strings.TrimSuffix(f[1], ":"))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times of the samples (-perf +gantry):\n%.2000s", diff)
	}
	wantLate := 0
	if m := regexp.MustCompile(`(\d+) out of order events recorded`).FindStringSubmatch(stderr); m != nil {
		fmt.Sscan(m[1], &wantLate)
	}
	if late != wantLate {
		t.Errorf("%d records out of order, perf says %d", late, wantLate)
	}
}

// printed is what perf script prints, and its complaints.
type printed struct{ out, complaints string }

func script(t *testing.T, file string) printed {
	t.Helper()
	// Without symbols: a program may vanish between two runs.
	out, complaints := runPerf(t, "script", "--ns", "-F", "-sym,-symoff", "--show-task-events", "--show-mmap-events", "--show-namespace-events",
		"--show-cgroup-events", "--show-switch-events", "--show-lost-events", "--show-bpf-events", "--show-round-events",
		"-i", file)
	return printed{out, complaints}
}

// rewrite writes what it reads, as a file or as a stream, and asks perf whether
// that is the same.
func rewrite(t *testing.T, file string, want printed, pipe bool, level int) {
	t.Helper()
	name := fmt.Sprintf("rewritten (pipe %v, zstd %d)", pipe, level)
	out := filepath.Join(t.TempDir(), "rewritten.data")
	copyData(t, file, out, pipe, level)
	got := script(t, out)
	if diff := cmp.Diff(strings.Split(want.out, "\n"), strings.Split(got.out, "\n")); diff != "" {
		t.Errorf("%s: perf script prints something else (-original +rewritten):\n%.2000s", name, diff)
	}
	if diff := cmp.Diff(want.complaints, got.complaints); diff != "" {
		t.Errorf("%s: perf script says (-original +rewritten):\n%s", name, diff)
	}
	if level == 0 {
		return
	}
	report := func(file string) printed {
		out, complaints := runPerf(t, "report", "--stdio", "--no-children", "--sort", "comm", "-g", "none", "-i", file)
		out, _, _ = strings.Cut(out, "# (Tip: ") // a different one each time
		return printed{out, complaints}
	}
	if a, b := report(file), report(out); a != b {
		t.Errorf("%s: perf report prints\n%s\nand not\n%s", name, b, a)
	}
}

// TestKilledInPerf: perf reads a file that has no more than its rounds.
func TestKilledInPerf(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("perf"))
	from := record(t, []string{"-a", "-F", "2000", "-e", "cpu-clock"}, false)
	to := filepath.Join(t.TempDir(), "killed.data")
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := Open(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := NewWriter(f, r.Events().List(), nil)
	if err != nil {
		t.Fatal(err)
	}
	copyRecords(t, r, w)
	if err := w.FinishRound(); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(bytes.Repeat([]byte{1}, bufSize)); err != nil { // half a record
		t.Fatal(err)
	}
	// Of a busy machine perf says what was lost, in both.
	want, wantStderr := runPerf(t, "script", "-i", from, "-F", "comm,tid,cpu,time,event,ip")
	got, stderr := runPerf(t, "script", "-i", to, "-F", "comm,tid,cpu,time,event,ip")
	if want != got || stderr != wantStderr {
		t.Errorf("perf script says %s and prints (-original +killed):\n%.1000s", stderr,
			cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// copyData copies a recording record by record.
func copyData(t *testing.T, from, to string, pipe bool, level int) {
	t.Helper()
	r, err := Open(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	opts := &WriterOptions{Order: r.Order(), Compress: level, Features: r.Features()}
	var w *Writer
	if pipe {
		w, err = NewPipeWriter(f, r.Events().List(), opts)
	} else {
		w, err = NewWriter(f, r.Events().List(), opts)
	}
	if err != nil {
		t.Fatal(err)
	}
	copyRecords(t, r, w)
	if err := w.Close(r.Features()); err != nil {
		t.Fatal(err)
	}
}

func copyRecords(t *testing.T, r *Reader, w *Writer) {
	t.Helper()
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch rec.Type {
		case perf.RecordHeaderAttr, perf.RecordHeaderFeature, perf.RecordHeaderTracingData, perf.RecordHeaderBuildID:
		case perf.RecordFinishedRound:
			err = w.FinishRound()
		default:
			err = w.Write(rec.Raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
