// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// forgetful is a snapshot that sees nobody the first time, while a process is
// forked, and later those that it is asked for.
type forgetful struct {
	stdin  io.Writer
	stdout *bufio.Reader
	child  int
	blind  bool // it never sees the child
	asked  [][]int
}

func (f *forgetful) Close() error { return nil }

func (f *forgetful) Take(_ context.Context, scope snapshot.Scope, sink snapshot.Sink) (snapshot.Stats, error) {
	if scope.All {
		return snapshot.Stats{Method: "looking away"}, f.fork()
	}
	f.asked = append(f.asked, scope.PIDs)
	for _, pid := range scope.PIDs {
		if f.blind && pid == f.child {
			continue
		}
		now, err := sys.ClockMonotonic.Now()
		if err != nil {
			return snapshot.Stats{}, err
		}
		rec := &perf.Fork{Task: perf.Task{PID: int32(pid), TID: int32(pid), PPID: 1, PTID: 1}}
		rec.Misc = perf.MiscStatusOnly | perf.MiscForkExec
		rec.SampleID = perf.SampleIDInfo{PID: int32(pid), TID: int32(pid), Time: uint64(now)}
		if err := sink.Record(rec); err != nil {
			return snapshot.Stats{}, err
		}
	}
	return snapshot.Stats{}, nil
}

// fork makes the shell fork a child that executes nothing.
func (f *forgetful) fork() error {
	if _, err := io.WriteString(f.stdin, "go\n"); err != nil {
		return err
	}
	line, err := f.stdout.ReadString('\n')
	if err != nil {
		return err
	}
	f.child, err = strconv.Atoi(strings.TrimSpace(line))
	return err
}

// recordForgetfully records while such a snapshot is taken.
func recordForgetfully(t *testing.T, blind bool) (*forgetful, *snapshot.Result) {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.PerfEvents)
	shell := exec.Command("sh", "-c", "read x; (read pid rest </proc/self/stat; echo $pid; read y); :")
	stdin, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		shell.Wait()
	})
	f := &forgetful{stdin: stdin, stdout: bufio.NewReader(stdout), blind: blind}
	r, err := Open(Options{Target: Target{All: true}, Snapshot: f, Command: &Command{Args: []string{"true"}}, Groups: groups(t, "cpu-clock")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Run(context.Background(), Output{Pipe: io.Discard}); err != nil {
		t.Fatal(err)
	}
	if len(f.asked) == 0 || !slices.Contains(f.asked[0], f.child) {
		t.Errorf("child %d was not asked for: %v", f.child, f.asked)
	}
	return f, &r.snapshot
}

// times is how often the child was asked for.
func (f *forgetful) times() (n int) {
	for _, pids := range f.asked {
		if slices.Contains(pids, f.child) {
			n++
		}
	}
	return n
}

// Others may be forked by parents that nobody saw, so that there are more
// passes.
func TestSnapshotIsTakenAgain(t *testing.T) {
	f, stats := recordForgetfully(t, false)
	if stats.Method != "looking away" || stats.Passes < 2 || f.times() != 1 {
		t.Errorf("%+v, asked %d times", stats, f.times())
	}
}

func TestSnapshotGivesUp(t *testing.T) {
	f, stats := recordForgetfully(t, true)
	if stats.Passes != snapshot.MaxPasses || stats.Missed == 0 || f.times() != snapshot.MaxPasses-1 {
		t.Errorf("%+v, asked %d times", stats, f.times())
	}
}
