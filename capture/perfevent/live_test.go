// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// livePMUs are this machine's.
func livePMUs(t *testing.T) *PMUs {
	t.Helper()
	p := NewPMUs(nil)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// liveAttr is the attr of one event of this machine.
func liveAttr(t *testing.T, spec string) perf.Attr {
	t.Helper()
	groups, err := Parse(spec, livePMUs(t))
	if err != nil {
		t.Fatal(err)
	}
	return groups[0].Events[0].Attr
}

// opened opens an event and closes it with the test.
func opened(t *testing.T, a perf.Attr, target Target, group *sys.FD) *Event {
	t.Helper()
	ev, err := Open(&a, target, group)
	if err != nil {
		t.Fatalf("%v (%s)", err, hint.Of(err))
	}
	t.Cleanup(func() { ev.Close() })
	return ev
}

// ownThread keeps the test on one thread, which it then watches.
func ownThread(t *testing.T) Target {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return Target{PID: 0, CPU: Any}
}

// syscalls makes n system calls that nothing else in the process makes.
func syscalls(n int) {
	for range n {
		syscall.RawSyscall(syscall.SYS_GETPRIORITY, 0, 0, 0)
	}
}

// sysEnter is an attr that hits once for every getpriority.
func sysEnter(t *testing.T) perf.Attr {
	t.Helper()
	testutil.Require(t, testutil.Root)
	return liveAttr(t, "syscalls:sys_enter_getpriority")
}

func mustCounts(t *testing.T, ev *Event) perf.ReadValues {
	t.Helper()
	c, err := ev.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpenSoftwareEvent(t *testing.T) {
	testutil.CheckLeaks(t)
	target := ownThread(t)
	a := liveAttr(t, "task-clock:u")
	a.ReadFormat = perf.FormatTotalTimeEnabled | perf.FormatTotalTimeRunning | perf.FormatID
	ev := opened(t, a, target, nil)
	if ev.ID == 0 || ev.Attr.Type != perf.TypeSoftware || len(ev.Dropped) != 0 {
		t.Errorf("id %d, attr %+v, dropped %v", ev.ID, ev.Attr, ev.Dropped)
	}
	for mustCounts(t, ev).Counts[0].Value == 0 {
		syscalls(1000)
	}
	if err := ev.Disable(); err != nil {
		t.Fatal(err)
	}
	c := mustCounts(t, ev)
	if c.Counts[0].ID != ev.ID || c.TimeEnabled == 0 || c.TimeRunning == 0 || c.TimeRunning > c.TimeEnabled {
		t.Errorf("counts %+v, id %d", c, ev.ID)
	}
}

func TestOpenTracepointCountsExactly(t *testing.T) {
	testutil.CheckLeaks(t)
	ev := opened(t, sysEnter(t), ownThread(t), nil)
	syscalls(123)
	if got := mustCounts(t, ev).Counts[0].Value; got != 123 {
		t.Errorf("counted %d of 123 system calls", got)
	}
}

func TestGroupReadsTogether(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root)
	target := ownThread(t)
	groups, err := Parse("{task-clock,syscalls:sys_enter_getpriority}", livePMUs(t))
	if err != nil {
		t.Fatal(err)
	}
	const format = perf.FormatGroup | perf.FormatID | perf.FormatTotalTimeEnabled | perf.FormatTotalTimeRunning | perf.FormatLost
	leaderAttr, memberAttr := groups[0].Events[0].Attr, groups[0].Events[1].Attr
	leaderAttr.ReadFormat, memberAttr.ReadFormat = format, format
	leaderAttr.Flags |= perf.AttrDisabled
	leader := opened(t, leaderAttr, target, nil)
	member := opened(t, memberAttr, target, leader.FD())
	syscalls(10)
	if err := leader.EnableGroup(); err != nil {
		t.Fatal(err)
	}
	syscalls(7)
	if err := leader.DisableGroup(); err != nil {
		t.Fatal(err)
	}
	c := mustCounts(t, leader)
	if len(c.Counts) != 2 || c.Counts[0].ID != leader.ID || c.Counts[1].ID != member.ID {
		t.Fatalf("counts %+v of ids %d, %d", c, leader.ID, member.ID)
	}
	if c.Counts[1].Value != 7 || c.Counts[0].Value == 0 {
		t.Errorf("counted %d of 7 system calls in %d ns", c.Counts[1].Value, c.Counts[0].Value)
	}
}

func TestInheritCountsChildren(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("true"))
	target := ownThread(t)
	counts := map[perf.AttrFlags]uint64{}
	for _, flag := range []perf.AttrFlags{0, perf.AttrInherit} {
		a := liveAttr(t, "sched:sched_process_exec")
		a.Flags |= flag
		ev := opened(t, a, target, nil)
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
		counts[flag] = mustCounts(t, ev).Counts[0].Value
	}
	if counts[0] != 0 || counts[perf.AttrInherit] != 1 {
		t.Errorf("execs counted: %d without, %d with inherit, want 0 and 1", counts[0], counts[perf.AttrInherit])
	}
}

func TestEnableOnExec(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("sh", "true"))
	cmd := testutil.StartReady(t, exec.Command("sh", "-c", "echo ready; read line; exec true"))
	a := liveAttr(t, "raw_syscalls:sys_enter")
	a.ReadFormat = perf.FormatTotalTimeEnabled
	a.Flags |= perf.AttrDisabled | perf.AttrEnableOnExec
	ev := opened(t, a, Target{PID: cmd.Process.Pid, CPU: Any}, nil)
	if c := mustCounts(t, ev); c.TimeEnabled != 0 {
		t.Errorf("enabled for %d ns before the exec", c.TimeEnabled)
	}
	if err := cmd.End(); err != nil {
		t.Fatal(err)
	}
	if c := mustCounts(t, ev); c.TimeEnabled == 0 || c.Counts[0].Value == 0 {
		t.Errorf("after the exec: %+v", c)
	}
}

func TestCgroupCountsOnlyItsOwn(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2)
	cg := testutil.NewCgroup(t, "/parent/child")
	dir, err := sys.Open(cg.Dir, os.O_RDONLY|sys.ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	a := liveAttr(t, "syscalls:sys_enter_getpriority")
	a.Flags |= perf.AttrInherit
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	var events []*Event
	for _, cpu := range cpus {
		events = append(events, opened(t, a, Target{CPU: cpu, Cgroup: dir}, nil))
	}
	syscalls(50) // outside
	cmd := exec.Command("sh", "-c", "read line; nice -n 0 true")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cg.Add(t, cmd.Process.Pid)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var inside uint64
	for _, ev := range events {
		inside += mustCounts(t, ev).Counts[0].Value
	}
	if inside == 0 || inside >= 50 {
		t.Errorf("counted %d system calls in the cgroup, want those of nice only", inside)
	}
}

func TestBreakpoint(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root)
	target := ownThread(t)
	value := new(uint64)
	a := perf.Attr{Type: perf.TypeBreakpoint, BPType: breakpointWrite, Config1: addressOf(value), Config2: 8,
		Flags: perf.AttrExcludeKernel | perf.AttrExcludeHV}
	ev, err := Open(&a, target, nil)
	if errors.Is(err, ErrNoPMU) || errors.Is(err, ErrNoSpace) {
		testutil.NotHere(t, "no breakpoint: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	for i := range uint64(5) {
		store(value, i)
	}
	if got := mustCounts(t, ev).Counts[0].Value; got != 5 {
		t.Errorf("breakpoint hit %d times, want 5", got)
	}
}

//go:noinline
func store(p *uint64, v uint64) { *p = v }

func TestUprobe(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, `
#include <stdio.h>
__attribute__((noinline)) void hit(void) { __asm__ volatile(""); }
int main(void) { getchar(); for (int i = 0; i < 9; i++) hit(); return 0; }`)
	groups, err := Parse(`uprobe/path="`+prog+`",offset=`+symbolOffset(t, prog, "hit")+`/`, livePMUs(t))
	if err != nil {
		t.Fatal(err)
	}
	s := groups[0].Events[0]
	cmd := exec.Command(prog)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ev := opened(t, s.Attr, Target{PID: cmd.Process.Pid, CPU: Any, Probe: s.Probe}, nil)
	stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := mustCounts(t, ev).Counts[0].Value; got != 9 {
		t.Errorf("uprobe hit %d times, want 9", got)
	}
}

func TestOpenErrors(t *testing.T) {
	testutil.CheckLeaks(t)
	target := ownThread(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	soft := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock, Flags: perf.AttrExcludeKernel | perf.AttrExcludeHV}
	unknown := soft
	unknown.Config = 4711
	future := soft
	future.SampleType = 1 << 40
	regs := soft
	regs.SampleType, regs.SampleRegsUser = perf.SampleRegsUser, 1<<63 // no such register
	for name, c := range map[string]struct {
		attr   perf.Attr
		target Target
		want   error
	}{
		"exited task":        {soft, Target{PID: gone.Process.Pid, CPU: Any}, ErrNoTask},
		"unknown software":   {unknown, target, ErrNoPMU},
		"future sample type": {future, target, ErrInvalid},
		"impossible regs":    {regs, target, ErrInvalid},
		"any task, any cpu":  {soft, Target{PID: Any, CPU: Any}, ErrInvalid},
		"no such tracepoint": {perf.Attr{Type: perf.TypeTracepoint, Config: 1 << 30}, target, ErrInvalid},
	} {
		ev, err := Open(&c.attr, c.target, nil)
		var open *OpenError
		if !errors.Is(err, c.want) || !errors.As(err, &open) || hint.Of(err) == "" {
			t.Errorf("%s: got %v (hint %q), want %v", name, err, hint.Of(err), c.want)
		}
		ev.Close()
	}
}

func TestOpenWithoutPMU(t *testing.T) {
	a := liveAttr(t, "cycles:u")
	ev, err := Open(&a, ownThread(t), nil)
	if err == nil {
		ev.Close()
		testutil.NotHere(t, "this machine has a hardware PMU")
	}
	if !errors.Is(err, ErrNoPMU) {
		t.Errorf("got %v, want ErrNoPMU", err)
	}
}

func TestTooManyFiles(t *testing.T) {
	testutil.CheckLeaks(t)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := old
	low.Cur = 3
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err := Open(&perf.Attr{Type: perf.TypeSoftware, Config: perf.SWDummy, Flags: perf.AttrExcludeKernel | perf.AttrExcludeHV}, Target{CPU: Any}, nil)
	if restore := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); restore != nil {
		t.Fatal(restore)
	}
	if !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("got %v, want ErrTooManyFiles", err)
	}
}

// asNobody runs f on a thread without any privilege, which is then thrown
// away. f must not end the test.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	testutil.Require(t, testutil.Root)
	done := make(chan error, 1)
	go nobodyThread(f, done)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func nobodyThread(f func(), done chan<- error) {
	runtime.LockOSThread()
	// The main thread cannot be thrown away, and /proc/self is about it.
	if syscall.Gettid() == syscall.Getpid() {
		inner := make(chan error, 1)
		go nobodyThread(f, inner)
		done <- <-inner
		runtime.UnlockOSThread()
		return
	}
	// Never unlocked: the thread ends with this goroutine.
	const nobody = 65534
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
		done <- errno
		return
	}
	f()
	done <- nil
}

func TestUnprivileged(t *testing.T) {
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err != nil || level[0] != '2' {
		testutil.NotHere(t, "kernel.perf_event_paranoid is %q, %v, not 2", level, err)
	}
	asNobody(t, func() {
		a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock}
		ev, err := Open(&a, Target{CPU: Any}, nil)
		if !errors.Is(err, ErrPermission) || !errors.Is(err, fs.ErrPermission) || hint.Of(err) == "" {
			t.Errorf("kernel: %v (hint %q), want a permission error", err, hint.Of(err))
		}
		ev.Close()

		ev, err = Open(&a, Target{CPU: Any, Flags: AllowUserOnly}, nil)
		if err != nil || len(ev.Dropped) != 1 || ev.Dropped[0] != FeatureKernel || ev.Attr.Flags&perf.AttrExcludeKernel == 0 {
			t.Errorf("user only: %+v, %v", ev, err)
		}
		ev.Close()

		a.Flags = perf.AttrExcludeKernel | perf.AttrExcludeHV
		if _, err = Open(&a, Target{PID: Any, CPU: 0}, nil); !errors.Is(err, ErrPermission) {
			t.Errorf("a whole cpu: %v, want a permission error", err)
		}
		a.Flags |= perf.AttrNamespaces
		ev, err = Open(&a, Target{CPU: Any}, nil)
		if err != nil || len(ev.Dropped) != 1 || ev.Dropped[0] != FeatureNamespaces {
			t.Errorf("namespaces: %+v, %v", ev, err)
		}
		ev.Close()
	})
}
