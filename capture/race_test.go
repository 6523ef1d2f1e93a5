// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// relaySource: each of argv[2] chains is a process that works for 2 ms, forks
// the next and ends. With "exec" the next executes the program first. It ends
// with its input.
const relaySource = `
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static void work(void) {
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		for (int i = 0; i < 1000; i++)
			sink += i * i;
		clock_gettime(CLOCK_MONOTONIC, &b);
	} while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < 2000000);
}

static void chain(char **argv, int *stop) {
	for (;;) {
		work();
		// fd 3 is closed at the end; the runner's memory is not there
		// after an exec.
		struct pollfd end = { .fd = 3, .events = POLLIN };
		if (stop ? *stop : poll(&end, 1, 0) != 0)
			_exit(0);
		if (fork())
			_exit(0);
		if (!stop)
			execv("/proc/self/exe", argv);
	}
}

int main(int argc, char **argv) {
	int *stop = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int exec = !strcmp(argv[1], "exec"), n = atoi(argv[2]);
	char *again[] = { argv[0], "next", argv[2], 0 };
	char c;

	if (!strcmp(argv[1], "next"))
		chain(again, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	dup2(0, 3);
	for (int i = 0; i < n; i++)
		if (!fork())
			chain(again, exec ? 0 : stop);
	if (!fork()) {
		while (read(0, &c, 1) > 0)
			;
		*stop = 1;
		_exit(0);
	}
	puts("ready");
	fflush(stdout);
	while (wait(0) > 0)
		;
	return 0;
}
`

// churnSource loads and unloads its arguments, which are libraries, and works
// in each for a moment.
const churnSource = `
#include <dlfcn.h>
#include <poll.h>
#include <stdio.h>

int main(int argc, char **argv) {
	struct pollfd end = { .fd = 0, .events = POLLIN };
	puts("ready");
	fflush(stdout);
	while (poll(&end, 1, 0) == 0) {
		for (int i = 1; i < argc; i++) {
			void *lib = dlopen(argv[i], RTLD_NOW);
			if (!lib) {
				fputs(dlerror(), stderr);
				return 1;
			}
			((void (*)(void))dlsym(lib, "work"))();
			dlclose(lib);
		}
	}
	return 0;
}
`

const librarySource = `
static volatile unsigned long sink;
void work(void) {
	for (int i = 0; i < 300000; i++)
		sink += i * i;
}
`

// raceTime is how long is recorded.
const raceTime = 1500 * time.Millisecond

// Processes that fork and end all the time must not lose their mappings, however
// the recording begins. perf's losses are printed beside.
func TestEveryUserSampleHasAMapping(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.BTF, testutil.Kernel("5.17"), testutil.Tool("gcc", "perf"))
	relay := testutil.CompileC(t, relaySource)
	churn := testutil.CompileC(t, churnSource, "-ldl")
	libs := []string{churn}
	for range 4 {
		libs = append(libs, testutil.CompileC(t, librarySource, "-shared", "-fPIC"))
	}
	for _, w := range []struct {
		name string
		args []string
	}{
		{"8 relay chains", []string{relay, "fork", "8"}},
		{"20 relay chains", []string{relay, "fork", "20"}},
		{"8 fork and exec chains", []string{relay, "exec", "8"}},
		{"libraries loaded and unloaded", libs},
	} {
		t.Run(w.name, func(t *testing.T) { raceAgainst(t, w.args) })
	}
}

func raceAgainst(t *testing.T, args []string) {
	startWorkload(t, args)
	theirs := filepath.Join(t.TempDir(), "perf.data")
	if _, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "-B", "-N", "-a", "-e", "cpu-clock", "-F", "999", "-o", theirs,
			"sleep", fmt.Sprint(raceTime.Seconds()))
	}); err != nil {
		t.Fatalf("perf record: %v\n%s", err, stderr)
	}
	r, err := Open(Options{Groups: groups(t, "cpu-clock"), Frequency: 999, Duration: raceTime})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := newOutput(t)
	res, err := r.Run(context.Background(), Output{File: f})
	if err != nil {
		t.Fatal(err)
	}
	if res.LostSideband > 0 || r.snapshot.Missed > 0 || len(r.snapshot.Refused) > 0 {
		t.Errorf("%d records of sideband were lost; snapshot %+v", res.LostSideband, r.snapshot)
	}
	perfs, mine, timelines := resolve(t, theirs), resolve(t, f.Name()), resolveByTimeline(t, f.Name())
	t.Logf("user samples without a mapping: perf %s, gantry %s; %d passes", perfs, mine, r.snapshot.Passes)
	if mine.samples < 100 || mine.lost > 0 || timelines.lost > 0 {
		t.Errorf("gantry: %s; by the timeline %s:\n%s", mine, timelines, mine.first)
	}
}

// startWorkload runs a program until the test ends.
func startWorkload(t *testing.T, args []string) {
	t.Helper()
	child := testutil.StartReady(t, exec.Command(args[0], args[1:]...))
	t.Cleanup(func() {
		if err := child.End(); err != nil {
			t.Error(err)
		}
	})
}

// resolved counts user samples, and those whose address lies in no mapping.
type resolved struct {
	samples, lost int
	first         string
}

func (r resolved) String() string {
	return fmt.Sprintf("%d of %d (%.1f %%)", r.lost, r.samples, 100*float64(r.lost)/float64(max(r.samples, 1)))
}

func (r *resolved) add(s *perf.Sample, found bool) {
	r.samples++
	if found {
		return
	}
	if r.lost++; r.lost <= 10 {
		r.first += fmt.Sprintf("%d: pid %d tid %d ip %#x\n", s.Time, s.PID, s.TID, s.IP)
	}
}

// userOf: it is a sample of user space. In a pid namespace the tasks of others
// have no number.
func userOf(s *perf.Sample) bool { return s.Misc.CPUMode() == perf.MiscUser && s.PID > 0 }

// span is a mapping.
type span struct{ start, end uint64 }

// resolve replays a file in the order of time: mappings, execs, and forks, whose
// children have the mappings of their parents. It is the same for both
// recorders and knows neither.
func resolve(t *testing.T, path string) (res resolved) {
	t.Helper()
	maps := make(map[int32][]span)
	for _, rec := range byTime(t, path) {
		switch rec := rec.(type) {
		case *perf.Fork:
			if rec.PID != rec.PPID && rec.Misc&(perf.MiscForkExec|perf.MiscStatusOnly) == 0 {
				maps[rec.PID] = slices.Clone(maps[rec.PPID])
			}
		case *perf.Comm:
			if rec.Misc&perf.MiscCommExec != 0 {
				maps[rec.PID] = nil
			}
		case *perf.Mmap2:
			maps[rec.PID] = append(maps[rec.PID], span{rec.Addr, rec.Addr + rec.Len})
		case *perf.Sample:
			if userOf(rec) {
				res.add(rec, slices.ContainsFunc(maps[rec.PID], func(m span) bool { return m.start <= rec.IP && rec.IP < m.end }))
			}
		}
	}
	return res
}

// byTime are the records of a file, sorted by time; what has none comes first.
func byTime(t *testing.T, path string) []perf.Record {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	type timed struct {
		time uint64
		rec  perf.Record
	}
	var list []timed
	for {
		raw, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !raw.Type.Kernel() {
			continue
		}
		rec, err := perf.Decode(raw.Raw, r.Order(), raw.Event)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, timed{raw.Time, rec})
	}
	slices.SortStableFunc(list, func(a, b timed) int { return cmp.Compare(a.time, b.time) })
	var recs []perf.Record
	for _, l := range list {
		recs = append(recs, l.rec)
	}
	return recs
}

// resolveByTimeline does it as gantry report does.
func resolveByTimeline(t *testing.T, path string) (res resolved) {
	t.Helper()
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	line := timeline.New()
	for ordered := r.Ordered(); ; {
		raw, err := ordered.Next()
		if errors.Is(err, io.EOF) {
			return res
		}
		if err != nil {
			t.Fatal(err)
		}
		if !raw.Type.Kernel() {
			continue
		}
		rec, err := perf.Decode(raw.Raw, r.Order(), raw.Event)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := rec.(*perf.Sample); ok {
			if userOf(s) {
				res.add(s, line.Thread(s.PID, s.TID).Process.Maps().Find(s.IP) != nil)
			}
			continue
		}
		line.Apply(rec, raw.Time)
	}
}
