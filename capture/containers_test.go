// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// server starts a container that burns CPU in function fn of /app/server.
func server(t testing.TB, name, fn string) (c *testutil.Container, prog string) {
	t.Helper()
	prog = testutil.SpinProgram(t, fn)
	return testutil.StartContainer(t, testutil.ContainerSpec{
		Name:  name,
		Files: map[string]string{"/app/server": prog},
		Args:  []string{"/app/server"},
		Ready: "ready",
	}), prog
}

func resolver(t testing.TB) *container.Resolver {
	t.Helper()
	r, err := container.NewResolver(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Two containers run different programs at one path. After they are gone,
// perf finds each one's function in what gantry kept.
func TestContainersWithOnePath(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "perf", "gcc"))
	testutil.CheckLeaks(t)
	a, progA := server(t, "alpha", "alpha_hot")
	b, progB := server(t, "beta", "beta_hot")
	store := t.TempDir()
	rec := record(t, Options{
		Target: Target{All: true}, CallGraph: FramePointers, Groups: groups(t, "cpu-clock"),
		Store: store, Resolver: resolver(t),
	})
	a.Delete(t)
	b.Delete(t)
	compareWithPerf(t, rec)
	if rec.res.Containers < 2 {
		t.Errorf("%d containers sampled, want two at least", rec.res.Containers)
	}

	out := perfRun(t, "--buildid-dir", filepath.Join(store, "containers"), "report", "-i", rec.path, "--stdio", "--no-children", "-g", "none", "--sort", "pid,dso,sym", "--comms", "server")
	for c, fn := range map[*testutil.Container]string{a: "alpha_hot", b: "beta_hot"} {
		if !regexp.MustCompile(fmt.Sprintf(`\b%d:server\s+server\s+\[\.\] %s\b`, c.PID, fn)).MatchString(out) {
			t.Errorf("no %s of process %d in:\n%s", fn, c.PID, out)
		}
	}
	checkKept(t, store, progA, progB)
	checkNames(t, rec, a, b)
}

func checkKept(t *testing.T, store string, progs ...string) {
	t.Helper()
	s, err := buildid.OpenStore(store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, prog := range progs {
		f, err := os.Open(prog)
		if err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		id, err := buildid.FromFile(f, info.Size())
		f.Close()
		if kept, _, lookErr := s.LookupContainer(id); err != nil || lookErr != nil {
			t.Errorf("%s (%v, %v) is not in the store", prog, id, cmp.Or(err, lookErr))
		} else if kept.Close(); s.Has(id) {
			t.Errorf("%s answers for the host, by the build-id %v", prog, id)
		}
	}
}

// checkNames looks at what the file itself says about the containers.
func checkNames(t *testing.T, rec *recording, list ...*testutil.Container) {
	t.Helper()
	c := read(t, rec.path)
	sampled := map[uint64]int{}
	for i := range c.samples {
		sampled[c.samples[i].Cgroup]++
	}
	paths := map[uint64]string{}
	namespaces := map[int32]bool{}
	for _, r := range c.records {
		switch r := r.(type) {
		case *perf.Cgroup:
			paths[r.ID] = r.Path
		case *perf.Namespaces:
			namespaces[r.PID] = true
		}
	}
	for _, want := range list {
		found, err := tableByID(&c.table, want.ID)
		if err != nil {
			t.Errorf("the file does not know container %s: %v", want.ID, err)
			continue
		}
		id := uint64(found.CgroupID)
		if sampled[id] == 0 || paths[id] != want.CgroupPath || !namespaces[int32(want.PID)] {
			t.Errorf("container %s: %d samples, CGROUP %q (want %q), NAMESPACES %v", want.ID, sampled[id], paths[id], want.CgroupPath, namespaces[int32(want.PID)])
		}
	}
}

// A container chosen by its cgroup is all there is in the file.
func TestOneContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tracefs, testutil.Tool("runc", "perf", "gcc"))
	testutil.CheckLeaks(t)
	a, _ := server(t, "chosen", "chosen_hot")
	_, _ = server(t, "other", "other_hot")
	// The program makes a system call for each turn, but nobody has to take the CPU
	// from it.
	for name, spec := range map[string]string{"clock": "cpu-clock", "tracepoint": "raw_syscalls:sys_enter"} {
		t.Run(name, func(t *testing.T) {
			rec := record(t, Options{Target: Target{Cgroups: []string{a.CgroupDir}}, Groups: groups(t, spec), Resolver: resolver(t)})
			compareWithPerf(t, rec)
			id, err := sys.CgroupID(a.CgroupDir)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range read(t, rec.path).samples {
				if s.Cgroup != id {
					t.Fatalf("sample of cgroup %d, want only %d", s.Cgroup, id)
				}
			}
			if rec.res.Containers != 1 {
				t.Errorf("%d containers, want 1", rec.res.Containers)
			}
		})
	}
}

// A container that starts, runs and ends while the recording goes on is known
// by name, and its binary is kept.
func TestShortContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	store := t.TempDir()
	r, err := Open(Options{Target: Target{All: true}, Groups: groups(t, "cpu-clock"), Store: store, Resolver: resolver(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := os.Create(t.TempDir() + "/perf.data")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var c *testutil.Container
	var prog string
	// The machine may run other containers: wait for this one's name.
	var id atomic.Value
	known := make(chan struct{}, 1)
	passes := 0
	r.opts.Progress = func(Progress) {
		want, _ := id.Load().(string)
		if want == "" {
			return
		}
		// The pass before this may have read the rings before the program began:
		// its container is not to be gone before it is looked at.
		if passes++; passes < 2 || !r.names.mu.TryLock() {
			return
		}
		defer r.names.mu.Unlock()
		if c, err := tableByID(r.names.table, want); err == nil && c.Name == want {
			select {
			case known <- struct{}{}:
			default:
			}
		}
	}
	go func() {
		defer cancel()
		c, prog = server(t, "short", "short_hot")
		id.Store(c.ID)
		<-known
		c.Delete(t)
	}()
	res, err := r.Run(ctx, Output{File: f})
	if err != nil {
		t.Fatal(err)
	}
	checkKept(t, store, prog)
	checkNames(t, &recording{f.Name(), res}, c)
}

func TestKilledRecorderLeavesAFile(t *testing.T) {
	if name := os.Getenv("GANTRY_TEST_RECORD_FOREVER"); name != "" {
		recordForever(t, name)
		return
	}
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs, testutil.Tool("perf"))
	name := t.TempDir() + "/perf.data"
	cmd := testProcess("TestKilledRecorderLeavesAFile", "GANTRY_TEST_RECORD_FOREVER="+name)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	for got := ""; !strings.Contains(got, "recording"); {
		n, err := stdout.Read(buf)
		if err != nil {
			cmd.Wait()
			t.Fatalf("recorder ended: %v", err)
		}
		got += string(buf[:n])
	}
	cmd.Process.Kill()
	cmd.Wait()
	for event, n := range perfSamples(t, name) {
		if n == 0 || event != "cpu-clock" && event != "sched:sched_switch" {
			t.Errorf("perf finds %d samples of %s", n, event)
		}
	}
	perfRun(t, "report", "-i", name, "--stdio")
	if text := perfRun(t, "script", "-i", name, "-F", "trace:event,trace"); !strings.Contains(text, "prev_comm=") {
		t.Error("perf does not print the fields of tracepoints")
	}
	feats := read(t, name).feats
	if feats.TracingData == nil || feats.Hostname == "" || feats.ClockData == nil {
		t.Errorf("features are %+v", feats)
	}
}

// tableByID returns the one container with an id.
func tableByID(t *container.Table, id string) (*container.Container, error) {
	list, err := t.Select(container.ByName(id))
	if err != nil {
		return nil, err
	}
	return list[0], nil
}
