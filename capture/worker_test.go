// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// workerSource reads numbers, and for each n calls getpriority and the function
// hit n times, then burns a little CPU and says "done". For a -1 it first goes
// into network and UTS namespaces of its own.
const workerSource = `
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) int hit(int n) { __asm__ volatile(""); return n; }

static long used(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void burn(void) {
	for (long end = used() + 20; used() < end;)
		;
}

int main(void) {
	char line[32];
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		int n = atoi(line);
		if (n < 0 && unshare(CLONE_NEWNET | CLONE_NEWUTS) != 0)
			return 1;
		for (int i = n; i > 0; i--) {
			syscall(SYS_getpriority, 0, 0);
			hit(i);
		}
		burn();
		puts("done");
		fflush(stdout);
	}
	return 0;
}
`

// worker is a running worker program.
type worker struct {
	pid    int
	in     io.Writer
	out    *bufio.Reader
	inside *testutil.Container // nil: a process of the test
}

// calls has the worker make so many calls.
func (w *worker) calls(t testing.TB, n int) {
	line := fmt.Sprintf("%d\n", n)
	if w.inside != nil {
		w.inside.Write(t, line)
		w.inside.ReadLine(t)
		return
	}
	if _, err := io.WriteString(w.in, line); err != nil {
		t.Error(err)
	}
	if got, err := w.out.ReadString('\n'); err != nil || got != "done\n" {
		t.Errorf("worker %d says %q: %v", w.pid, got, err)
	}
}

// contained starts the worker program in a container, as a link to the same
// file, so that a probe in it means all of them.
func contained(t testing.TB, prog, name string) *worker {
	t.Helper()
	c := testutil.CreateContainer(t, testutil.ContainerSpec{
		Name: name, Files: map[string]string{"/app/worker": prog}, Args: []string{"/app/worker"}, Ready: "ready"})
	inside := c.Rootfs + "/app/worker"
	if err := os.Remove(inside); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(prog, inside); err != nil {
		t.Fatal(err)
	}
	c.Start(t)
	return &worker{pid: c.PID, inside: c}
}

// started starts a command that becomes the worker program, as a child of one
// that is the command itself if forks.
func started(t testing.TB, forks bool, args ...string) *worker {
	t.Helper()
	cmd := testutil.StartReady(t, exec.Command(args[0], args[1:]...))
	w := &worker{pid: cmd.Process.Pid, in: cmd.In, out: cmd.Out}
	if cmd.First != "ready\n" {
		t.Fatalf("%v: %q", args, cmd.First)
	}
	if forks {
		kids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", w.pid))
		if err != nil {
			t.Fatal(err)
		}
		if w.pid, err = strconv.Atoi(strings.TrimSpace(string(kids))); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// workerProgram compiles the worker, next to where containers are made.
func workerProgram(t testing.TB) string {
	t.Helper()
	return testutil.CompileC(t, workerSource, "-static")
}
