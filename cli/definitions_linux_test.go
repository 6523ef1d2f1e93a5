// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// gantry runs a command line, which must succeed, and gives its output.
func gantry(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := Main(strings.NewReader(""), &stdout, &stderr, args); code != 0 {
		t.Fatalf("gantry %s: status %d\n%s", strings.Join(args, " "), code, stderr.String())
	}
	return stdout.String()
}

// workloads are four tasks, each of which burns CPU in a function of its own
// name.
type workloads struct {
	// a and b are the containers of a pod; edge is one of another pod that
	// uses the host's network.
	a, b, edge *testutil.Container
	pod        string
}

const (
	hostFn, aFn, bFn, edgeFn = "host_hot", "a_hot", "b_hot", "edge_hot"
)

func startWorkloads(t *testing.T) *workloads {
	t.Helper()
	w := &workloads{pod: "shop-" + testutil.RandomHex(8)}
	start := func(name, pod, fn string, namespaces []string, join map[string]*testutil.Container) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{
			Name: name, Files: map[string]string{"/app/server": testutil.SpinProgram(t, fn)},
			Args: []string{"/app/server"}, Ready: "ready",
			Namespaces: namespaces, Join: join,
			Annotations: map[string]string{"io.kubernetes.cri.container-name": name,
				"io.kubernetes.cri.sandbox-name": pod},
		})
	}
	w.a = start("a", w.pod, aFn, nil, nil)
	w.b = start("b", w.pod, bFn, nil, map[string]*testutil.Container{"network": w.a, "ipc": w.a})
	w.edge = start("edge", w.pod+"-edge", edgeFn, []string{"pid", "mount", "ipc", "uts", "cgroup"}, nil)
	host := exec.Command(testutil.SpinProgram(t, hostFn))
	stdin, err := host.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := host.Wait(); err != nil {
			t.Errorf("workload of the host: %v", err)
		}
	})
	return w
}

// identity is the text of a container's identity under a list of namespaces.
func identity(t *testing.T, c *testutil.Container, kinds ...string) string {
	t.Helper()
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s:%d", k, c.Namespace(t, k)))
	}
	return strings.Join(parts, ",")
}

// six are the namespaces of the definition in the RFC of 2017.
var six = []string{"uts", "ipc", "mnt", "pid", "net", "cgroup"}

// TestDefinitionsSplitARecording: one recording of four workloads, split by five
// definitions at once.
func TestDefinitionsSplitARecording(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc", "perf"))
	testutil.CheckLeaks(t)
	w := startWorkloads(t)
	dir := t.TempDir()
	file, store := filepath.Join(dir, "perf.data"), filepath.Join(dir, "store")
	gantry(t, "record", "-q", "-a", "-e", "cpu-clock", "-F", "1000", "--duration", "2s", "-o", file, "--buildid-dir",
		store,
		"--define", "six="+strings.Join(six, ","), "--define",
		"mine=pid;cgroup="+w.a.CgroupPath+";cgroup="+w.edge.CgroupPath)

	// Every sample of each function has the right identities.
	a, b, edge := w.pod+"/a", w.pod+"/b", w.pod+"-edge/edge"
	got := splits(t, file, store, []string{"container", "pod", "kernel-default", "six", "mine"})
	want := map[string][]string{
		hostFn: {"[host]", "[host]", "[host]", "[host]", "[host]"},
		aFn:    {a, w.pod, a, a, a},
		bFn:    {b, w.pod, b, b, "[host]"},
		edgeFn: {edge, w.pod + "-edge", edge, "[host]", edge},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The definitions of a reader, too.
	got = splits(t, file, store, []string{"net-only", "no-names"}, "--define", "net-only=net", "--define",
		"no-names=mnt,uts")
	want = map[string][]string{hostFn: {"[host]", "[host]"}, aFn: {w.pod, a}, bFn: {w.pod, b}, edgeFn: {"[host]", edge}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	w.checkSelectors(t, file, store)
	w.checkPerf(t)
}

// checkPerf splits a recording of perf, which knows no names and does not say
// which namespaces are the host's.
func (w *workloads) checkPerf(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "perf.data")
	cmd := func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "-a", "--namespaces", "--all-cgroups", "-e", "cpu-clock", "-F",
			"1000", "-o", file, "--", "sleep", "2")
	}
	if _, stderr, err := testutil.RunPerf(t, cmd); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	pod := identity(t, w.a, "net", "ipc")
	got := splits(t, file, t.TempDir(), []string{"container", "pod", "six", "mine"},
		"--define", "six="+strings.Join(six, ","), "--define",
		"mine=pid;cgroup="+w.a.CgroupPath+";cgroup="+w.edge.CgroupPath)
	want := map[string][]string{
		hostFn: {"[host]", "[host]", "[host]", "[host]"},
		aFn: {filepath.Base(w.a.CgroupPath), pod, identity(t, w.a, six...),
			identity(t, w.a, "pid") + ",cgroup:" + w.a.CgroupPath},
		bFn: {filepath.Base(w.b.CgroupPath), pod, identity(t, w.b, six...), "[host]"},
		edgeFn: {filepath.Base(w.edge.CgroupPath), "[host]", "[host]",
			identity(t, w.edge, "pid") + ",cgroup:" + w.edge.CgroupPath},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recording of perf: %s", diff)
	}
}

// checkSelectors selects by the numbers of namespaces.
func (w *workloads) checkSelectors(t *testing.T, file, store string) {
	for _, tt := range []struct {
		selector string
		want     []string
	}{
		{"pod:any", []string{aFn, bFn}},
		{"pod:" + identity(t, w.a, "net", "ipc"), []string{aFn, bFn}},
		{identity(t, w.b, "ipc", "net"), []string{aFn, bFn}},
		{"six:" + identity(t, w.a, six...), []string{aFn}},
		{"six:" + identity(t, w.b, six...), []string{bFn}},
		{"kernel-default:" + identity(t, w.edge, "pid", "cgroup"), []string{edgeFn}},
		{"kernel-default:any", []string{aFn, bFn, edgeFn}},
		{"container:cgroup:" + w.b.CgroupPath, []string{bFn}},
		{"mine:any", []string{aFn, edgeFn}},
		{"mine:" + identity(t, w.a, "pid") + ",cgroup:" + w.a.CgroupPath, []string{aFn}},
		{w.pod + "-edge", []string{edgeFn}},
	} {
		out := gantry(t, "report", "-i", file, "--buildid-dir", store, "--sort", "sym", "--format", "json",
			"--container", tt.selector)
		var got []string
		for _, r := range reportRows(t, out) {
			if fn := r.Keys["sym"].(string); slices.Contains([]string{hostFn, aFn, bFn, edgeFn}, fn) {
				got = append(got, fn)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.selector, got, tt.want)
		}
	}
}

// reportRow is a row of a report in JSON.
type reportRow struct {
	Keys    map[string]any
	Samples int
}

func reportRows(t *testing.T, out string) []reportRow {
	t.Helper()
	var doc struct {
		Events []struct{ Rows []reportRow }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Events) != 1 {
		t.Fatalf("%v in %.200s", err, out)
	}
	return doc.Events[0].Rows
}

// splits is what the samples of the workloads' functions are under definitions.
// Of each function all samples must be in one container.
func splits(t *testing.T, file, store string, defs []string, args ...string) map[string][]string {
	t.Helper()
	args = append([]string{"report", "-i", file, "--buildid-dir", store, "--format", "json", "--sort",
		"sym," + strings.Join(defs, ",")}, args...)
	got := make(map[string][]string)
	for _, r := range reportRows(t, gantry(t, args...)) {
		fn := r.Keys["sym"].(string)
		if !slices.Contains([]string{hostFn, aFn, bFn, edgeFn}, fn) {
			continue
		}
		var texts []string
		for _, d := range defs {
			texts = append(texts, r.Keys[d].(string))
		}
		if got[fn] != nil {
			t.Errorf("%s is both %q and %q", fn, got[fn], texts)
		}
		got[fn] = texts
	}
	t.Logf("functions found: %q", slices.Sorted(maps.Keys(got)))
	return got
}

// movingSource runs a function in each of the places that its tasks go to.
const movingSource = `
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static unsigned long used(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000ul + t.tv_nsec / 1000000;
}

// The line makes each one's code its own: gcc folds functions that are alike.
#define WORK(fn) \
	__attribute__((noinline)) void fn(unsigned long n) { \
		__asm__ volatile("" : : "r"(__builtin_frame_address(0))); \
		for (unsigned long i = 0; i < n; i++) \
			sink += i * __LINE__; \
	} \
	static void run_##fn(void) { \
		for (unsigned long start = used(); used() - start < 200;) \
			fn(1000 * 1000); \
	}

WORK(before_hot)
WORK(after_hot)
WORK(child_hot)
WORK(thread_hot)
WORK(beside_hot)

static int elsewhere;

static void *thread(void *unused) {
	if (unshare(CLONE_NEWNET) != 0)
		elsewhere = -1;
	run_thread_hot();
	return NULL;
}

int main(void) {
	run_before_hot();
	if (unshare(CLONE_NEWUTS | CLONE_NEWIPC) != 0)
		return 1;
	run_after_hot();
	pid_t pid = fork();
	if (pid == 0) {
		run_child_hot();
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	pthread_t t;
	if (pthread_create(&t, NULL, thread, NULL) != 0)
		return 2;
	run_beside_hot();
	pthread_join(t, NULL);
	return elsewhere;
}
`

// TestDefinitionsFollowTasks: a sample belongs to where its thread was when it
// was taken.
func TestDefinitionsFollowTasks(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, movingSource, "-static", "-pthread")
	file := filepath.Join(t.TempDir(), "perf.data")
	gantry(t, "record", "-q", "-e", "cpu-clock", "-F", "1000", "-o", file, "--no-buildid-cache", "--define",
		"two=uts,ipc", "--define", "one=net", "--", prog)
	rows := reportRows(t, gantry(t, "report", "-i", file, "--format", "json", "--sort", "sym,two,one"))
	var s struct{ two, one []string }
	for fn, want := range map[string][2]bool{
		"before_hot": {}, "after_hot": {true, false}, "child_hot": {true, false}, "thread_hot": {true, true},
		"beside_hot": {true, false},
	} {
		n := 0
		for _, r := range rows {
			if r.Keys["sym"] != fn {
				continue
			}
			n++
			two, one := r.Keys["two"].(string), r.Keys["one"].(string)
			if strings.HasPrefix(two, "uts:") != want[0] || strings.HasPrefix(one, "net:") != want[1] {
				t.Errorf("%s: %s, %s", fn, two, one)
			}
			s.two, s.one = append(s.two, two), append(s.one, one)
		}
		if n != 1 {
			t.Errorf("%s is in %d places, want 1", fn, n)
		}
	}
	slices.Sort(s.two)
	slices.Sort(s.one)
	if two, one := slices.Compact(s.two), slices.Compact(s.one); len(two) != 2 || len(one) != 2 {
		t.Errorf("places %q and %q", two, one)
	}
}
