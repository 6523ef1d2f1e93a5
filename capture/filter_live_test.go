// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// recordWhile records while work runs, which begins when all events are on.
func recordWhile(t testing.TB, o Options, work func()) *recording {
	t.Helper()
	begun := make(chan struct{})
	var once sync.Once
	o.CmdLine = []string{"gantry", "record"}
	o.Progress = func(Progress) { once.Do(func() { close(begun) }) }
	r, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(filepath.Join(t.TempDir(), "perf.data"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	wait.Go(func() {
		defer cancel()
		<-begun
		work()
	})
	res, err := r.Run(ctx, Output{File: f})
	cancel()
	once.Do(func() { close(begun) })
	wait.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return &recording{f.Name(), res}
}

// chosen are the containers that the selectors mean, and a resolver that was
// asked.
func chosen(t testing.TB, defs container.Definitions, selectors ...string) ([]container.Choice, *container.Resolver) {
	t.Helper()
	r := resolver(t)
	r.Refresh(context.Background())
	var list []container.Choice
	for _, s := range selectors {
		c, err := container.BuiltIn().With(defs).ParseChoice(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list, r
}

// samplesBy counts the samples of a file by event and process.
func samplesBy(t testing.TB, path string) map[string]map[int]int {
	t.Helper()
	out := make(map[string]map[int]int)
	c := read(t, path)
	names := make(map[uint64]string)
	for _, ev := range c.events {
		for _, id := range ev.IDs {
			names[id] = ev.Name
		}
	}
	for i := range c.samples {
		name := names[c.samples[i].ID]
		if out[name] == nil {
			out[name] = make(map[int]int)
		}
		out[name][int(c.samples[i].PID)]++
	}
	return out
}

const priority = "syscalls:sys_enter_getpriority"

// Samples of a clock, of a tracepoint and of a probe are those of the chosen
// container only: its own tasks and one that entered its namespaces. Meanwhile
// perf record of the tracepoint loses nothing.
func TestFilterContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tracefs, testutil.BTF,
		testutil.Tool("runc", "perf", "gcc", "nsenter"))
	prog := workerProgram(t)
	a, b, host := contained(t, prog, "a"), contained(t, prog, "b"), started(t, false, prog)
	insider := started(t, true, "nsenter", "-t", strconv.Itoa(a.pid), "-m", "-p", "/app/worker")
	probe := "uprobe:" + prog + ":hit"
	for name, o := range map[string]Options{"kernel": {}, "recorder": {NoBPF: true}} {
		t.Run(name, func(t *testing.T) {
			testutil.CheckLeaks(t)
			o.Target.Containers, o.Resolver = chosen(t, nil, a.inside.ID)
			o.Groups = groups(t, "cpu-clock", priority, probe)
			peer := startPerf(t, priority)
			rec := recordWhile(t, o, func() {
				for _, w := range []*worker{a, b, host, insider} {
					w.calls(t, 500)
				}
			})
			if n := peer.stop(t); n < 4*500 {
				t.Errorf("perf has %d records of 2000 calls", n)
			}
			by := samplesBy(t, rec.path)
			foreign := 0
			for event, got := range by {
				if event != "cpu-clock" && (got[a.pid] != 500 || got[insider.pid] != 500) || got[a.pid] == 0 || got[insider.pid] == 0 {
					t.Errorf("%s: %v, want 500 of %d and of %d, or some of a clock", event, got, a.pid, insider.pid)
				}
				if got[b.pid]+got[host.pid] != 0 {
					t.Errorf("%s: %v, want none of %d and %d", event, got, b.pid, host.pid)
				}
				foreign += total2(got) - got[a.pid] - got[insider.pid]
			}
			// Containers of other tests may start meanwhile. On a machine so busy
			// that nobody is asked for seconds, some of them is kept.
			if len(by) != 3 || foreign > int(rec.res.Filtered.Undecided) {
				t.Errorf("%d events; %v, filtered %+v", len(by), by, rec.res.Filtered)
			}
			checkFiltered(t, rec.res.Filtered, name)
			if name == "kernel" {
				compareWithPerf(t, rec)
			}
		})
	}
}

// A probe that is defined in tracefs is a tracepoint: gantry filters it, and perf
// loses nothing.
func TestFilterSharedProbe(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tracefs, testutil.BTF, testutil.Tool("runc", "perf", "gcc"))
	prog := workerProgram(t)
	shared := defineProbe(t, prog, "hit")
	a, host := contained(t, prog, "a"), started(t, false, prog)
	var o Options
	o.Target.Containers, o.Resolver = chosen(t, nil, a.inside.ID)
	o.Groups = groups(t, shared)
	peer := startPerf(t, shared)
	rec := recordWhile(t, o, func() {
		a.calls(t, 200)
		host.calls(t, 300)
	})
	if n := peer.stop(t); n != 500 {
		t.Errorf("perf has %d records of 500 calls", n)
	}
	if got := samplesBy(t, rec.path)[shared]; len(got) != 1 || got[a.pid] != 200 {
		t.Errorf("%v, want 200 of %d", got, a.pid)
	}
}

// defineProbe makes a probe of a function in tracefs for as long as the test
// runs, and gives its name.
func defineProbe(t *testing.T, prog, fn string) string {
	t.Helper()
	g := groups(t, "uprobe:"+prog+":"+fn)
	name := fmt.Sprintf("gantry_test_%d/%s", os.Getpid(), fn)
	write := func(line string) error {
		f, err := os.OpenFile("/sys/kernel/tracing/uprobe_events", os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteString(line + "\n")
		return err
	}
	if err := write(fmt.Sprintf("p:%s %s:%#x", name, prog, g[0].Events[0].Probe.Offset)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := write("-:" + name); err != nil {
			t.Error(err)
		}
	})
	return strings.Replace(name, "/", ":", 1)
}

// Only the binaries of the chosen container are kept.
func TestFilterBinaries(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.BTF, testutil.Tool("runc", "gcc"))
	a, mine := server(t, "a", "mine_hot")
	_, other := server(t, "b", "other_hot")
	o := Options{Store: t.TempDir(), Groups: groups(t, "cpu-clock")}
	o.Target.Containers, o.Resolver = chosen(t, nil, a.ID)
	record(t, o)
	checkKept(t, o.Store, mine)
	s, err := buildid.OpenStore(o.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := os.Open(other)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if id, err := buildid.FromFile(f, info.Size()); err != nil || s.Has(id) {
		t.Errorf("the other's %s is kept, %v", other, err)
	}
}

func checkFiltered(t *testing.T, f *Filtered, method string) {
	t.Helper()
	if f == nil || f.Method != method || f.Dropped == 0 || (f.Kernel == 0) != (method == "recorder") {
		t.Errorf("filtered: %+v", f)
	}
}

// peer is a perf record that runs beside gantry.
type peer struct {
	*testutil.Child
	path   string
	stderr bytes.Buffer
}

// startPerf records an event of the whole machine with perf, until it is
// stopped.
func startPerf(t *testing.T, event string) *peer {
	t.Helper()
	p := &peer{path: filepath.Join(t.TempDir(), "peer.data")}
	cmd := exec.Command("perf", "record", "-q", "-a", "-m", "4M", "-e", event, "-o", p.path, "--", "sh", "-c", "echo on; read end")
	cmd.Stderr = &p.stderr
	p.Child = testutil.StartReady(t, cmd)
	if p.First != "on\n" {
		t.Fatalf("perf record: %q\n%s", p.First, &p.stderr)
	}
	return p
}

// stop ends it and gives how many samples of workers it has.
func (p *peer) stop(t *testing.T) (n int) {
	t.Helper()
	p.End() // with the status of "read"
	// perf may complain of records out of order: BPF programs were loaded
	// while two recorded, and the kernel spoils those records (see package
	// perf, grown.go).
	text, stderr, err := testutil.RunPerf(t, func() *exec.Cmd { return exec.Command("perf", "script", "-i", p.path, "-F", "comm", "-G") })
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, stderr)
	}
	out := string(text)
	return strings.Count(out, "worker") + strings.Count(out, "prog")
}

// A container that starts while the recording goes on is recorded from its
// first system call on, if its name is one of those that are waited for.
func TestFilterLaterContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tracefs, testutil.BTF, testutil.Tool("runc", "gcc"))
	prog := workerProgram(t)
	for name, o := range map[string]Options{"kernel": {}, "recorder": {NoBPF: true}} {
		t.Run(name, func(t *testing.T) {
			pattern := "*-later" + testutil.RandomHex(6)
			o.Target.Containers, o.Resolver = chosen(t, nil, pattern)
			o.Groups = groups(t, "cpu-clock", priority)
			var mine, other *worker
			rec := recordWhile(t, o, func() {
				mine, other = contained(t, prog, pattern[2:]), contained(t, prog, "other")
				mine.calls(t, 300)
				other.calls(t, 300)
			})
			by := samplesBy(t, rec.path)
			if by[priority][mine.pid] != 300 || by["cpu-clock"][mine.pid] == 0 {
				t.Errorf("%v, want 300 calls of %d and some of its time", by, mine.pid)
			}
			// On a machine so busy that nobody is asked for seconds, a part of
			// the other's is kept, and counted.
			if n := by[priority][other.pid] + by["cpu-clock"][other.pid]; n > int(rec.res.Filtered.Undecided) {
				t.Errorf("%v, want none of %d: %+v", by, other.pid, rec.res.Filtered)
			}
		})
	}
}

// A task is recorded from the moment on when it comes into a container: by going
// into namespaces, or by being moved into a cgroup.
func TestFilterEntering(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tracefs, testutil.BTF, testutil.Tool("gcc"))
	prog := workerProgram(t)
	jobs := testutil.NewCgroup(t, "/jobs/one")
	var defs container.Definitions
	for _, text := range []string{"spaces=net,uts", "job=cgroup=" + filepath.Dir(jobs.Path) + "/*"} {
		d, err := container.ParseDefinition(text)
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, d)
	}
	probe := "uprobe:" + prog + ":hit"
	for name, o := range map[string]Options{"kernel": {}, "recorder": {NoBPF: true}} {
		t.Run(name, func(t *testing.T) {
			outside, unshared, moved := started(t, false, prog), started(t, false, prog), started(t, false, prog)
			o.Target.Containers, o.Resolver = chosen(t, defs, "spaces:any", "job:any")
			o.Groups = groups(t, priority, probe)
			rec := recordWhile(t, o, func() {
				for _, w := range []*worker{outside, unshared, moved} {
					w.calls(t, 10)
				}
				unshared.calls(t, -1)
				jobs.Add(t, moved.pid)
				for _, w := range []*worker{outside, unshared, moved} {
					w.calls(t, 25)
				}
			})
			for event, got := range samplesBy(t, rec.path) {
				if got[outside.pid] != 0 || got[unshared.pid] != 25 || got[moved.pid] != 25 {
					t.Errorf("%s: %v, want 25 of %d and %d, none of %d", event, got, unshared.pid, moved.pid, outside.pid)
				}
			}
		})
	}
}

// eightNamespaces starts a worker in namespaces of its own, of every kind.
func eightNamespaces(t testing.TB, prog string) *worker {
	return started(t, true, "unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--user", "--cgroup", "--time", prog)
}

// identityOf is the text of the identity of a process under a definition.
func identityOf(t testing.TB, d *container.Definition, pid int) string {
	t.Helper()
	id := container.Identity{}
	for _, n := range d.Namespaces {
		ino, err := procfs.FS{}.Proc(pid).Namespace(n.String())
		if err != nil {
			t.Fatal(err)
		}
		id.Namespaces[n] = ino
	}
	return d.Text(id)
}

// Of 66 containers under a definition of all eight namespaces, 64 are chosen by
// their identities.
func TestFilterIdentities(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.BTF, testutil.Tool("gcc", "unshare"))
	prog := workerProgram(t)
	eight, err := container.ParseDefinition("eight=uts,ipc,mnt,pid,net,cgroup,user,time")
	if err != nil {
		t.Fatal(err)
	}
	defs := container.Definitions{eight}
	var selectors []string
	var workers []*worker
	for i := range 66 {
		w := eightNamespaces(t, prog)
		workers = append(workers, w)
		if i < 64 {
			selectors = append(selectors, "eight:"+identityOf(t, &eight, w.pid))
		}
	}
	probe := "uprobe:" + prog + ":hit"
	for name, o := range map[string]Options{"kernel": {}, "recorder": {NoBPF: true}} {
		t.Run(name, func(t *testing.T) {
			o.Target.Containers, o.Resolver = chosen(t, defs, selectors...)
			o.Groups = groups(t, "page-faults", priority, probe)
			rec := recordWhile(t, o, func() {
				for _, w := range workers {
					w.calls(t, 3)
				}
			})
			by := samplesBy(t, rec.path)
			for _, event := range []string{priority, probe} {
				for i, w := range workers {
					want := 3
					if i >= 64 {
						want = 0
					}
					if got := by[event][w.pid]; got != want {
						t.Errorf("%s: %d of worker %d, want %d", event, got, i, want)
					}
				}
				if len(by[event]) != 64 {
					t.Errorf("%s: of %d processes", event, len(by[event]))
				}
			}
		})
	}
	t.Run("any", func(t *testing.T) {
		var o Options
		o.Target.Containers, o.Resolver = chosen(t, defs, "eight:any")
		o.Groups = groups(t, priority, probe)
		host := started(t, false, prog)
		var later *worker
		rec := recordWhile(t, o, func() {
			later = eightNamespaces(t, prog)
			for _, w := range []*worker{host, workers[0], workers[65], later} {
				w.calls(t, 3)
			}
		})
		by := samplesBy(t, rec.path)
		for _, event := range []string{priority, probe} {
			got := by[event]
			for _, w := range []*worker{workers[0], workers[65], later} {
				if got[w.pid] != 3 {
					t.Errorf("%s: %v, want 3 of %d", event, got, w.pid)
				}
			}
			if got[host.pid] != 0 {
				t.Errorf("%s: %v of the host", event, got)
			}
		}
	})
}

// A probe in a file follows a command with its children, and the processes
// that are named with theirs; forks go on working.
func TestProbesOfTasks(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc", "perf"))
	prog := workerProgram(t)
	probe := "uprobe:" + prog + ":hit"
	script := `for i in 1 2; do echo 7 | "$1"; done`
	other := started(t, false, prog)
	t.Run("command", func(t *testing.T) {
		begun := make(chan struct{})
		go func() { defer close(begun); other.calls(t, 5) }()
		rec := record(t, Options{Groups: groups(t, probe, "cpu-clock"), Command: &Command{Args: []string{"sh", "-c", script, "sh", prog}}})
		<-begun
		if rec.res.Child.Code != 0 {
			t.Errorf("status %d", rec.res.Child.Code)
		}
		got := samplesBy(t, rec.path)[probe]
		if len(got) != 2 || total2(got) != 14 || got[other.pid] != 0 {
			t.Errorf("%v, want 7 of two processes", got)
		}
		compareWithPerf(t, rec)
	})
	t.Run("process", func(t *testing.T) {
		cmd := testutil.StartReady(t, exec.Command("sh", "-c", "echo ready; read go; "+script, "sh", prog))
		rec := recordWhile(t, Options{Groups: groups(t, probe), Target: Target{PIDs: []int{cmd.Process.Pid}}}, func() {
			other.calls(t, 5)
			io.WriteString(cmd.In, "\n")
			rest, err := io.ReadAll(cmd.Out)
			if err != nil || strings.Count(string(rest), "done") != 2 {
				t.Errorf("%q, %v", rest, err)
			}
		})
		if got := samplesBy(t, rec.path)[probe]; len(got) != 2 || total2(got) != 14 || got[other.pid] != 0 {
			t.Errorf("%v, want 7 of two processes", got)
		}
	})
}

func total2(n map[int]int) (sum int) {
	for _, v := range n {
		sum += v
	}
	return sum
}

// The recording says how it was filtered.
func TestFilterProvenance(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.BTF)
	var o Options
	o.Target.Containers, o.Resolver = chosen(t, nil, "pod:any", "no-such-*")
	o.Groups = groups(t, "cpu-clock")
	rec := recordWhile(t, o, func() {})
	c := read(t, rec.path)
	want := `"filter":{"selectors":["pod:any","no-such-*"],"method":"kernel","kernel_dropped":`
	if !bytes.Contains(c.feats.Gantry, []byte(want)) {
		t.Errorf("no %s in %s", want, c.feats.Gantry)
	}
	if slices.ContainsFunc(c.records, func(r perf.Record) bool { _, ok := r.(*perf.Lost); return ok }) {
		t.Error("something was lost")
	}
}
