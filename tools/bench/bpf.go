// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	bpfRow = "BPF programs"
	// bpfTarget is how many microseconds of CPU time a load may cost, of
	// recorder and loader together, where one follows the other.
	bpfTarget = 100
	fewLoads  = 300
	// callTarget is how much longer a system call may take, in percent.
	callTarget = 2
	// subprograms is how many the loaded program has.
	subprograms = 7
	callsAtOnce = 2_000_000
)

// lifetimes is how long after their load programs are closed, in rows of fewLoads.
var lifetimes = []time.Duration{0, 15 * time.Microsecond, 50 * time.Microsecond, 200 * time.Microsecond,
	time.Millisecond, 5 * time.Millisecond}

// late is how long a recorder may put off what it has to do about loads.
const late = 500 * time.Millisecond

// bpfRows measures which programs a recording knows of, what that costs for each
// load, and what it costs a system call.
func (b *bench) bpfRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(bpfRow, b.rows) {
		return nil
	}
	fmt.Fprintf(w, "\n| %s of %d subprograms, loads | closed after us | us from the return of the load to the "+
		"close: min, median, max | to its return | with details, names and lines | copied in the kernel | CPU us a "+
		"load more than with --no-bpf-event: recorder | loader | both, of single rounds | target | "+
		"|\n|---|---|---|---|---|---|---|---|---|---|---|\n",
		bpfRow, subprograms)
	if err := b.bpfLine(ctx, w, b.size.loads, 0, b.size.recordRounds); err != nil {
		return err
	}
	for _, life := range lifetimes {
		if b.size.loads < fewLoads {
			break // only tried out
		}
		if err := b.bpfLine(ctx, w, fewLoads, life, 1); err != nil {
			return err
		}
	}
	return b.callRows(ctx, w)
}

// bpfLine measures one line, in so many rounds.
func (b *bench) bpfLine(ctx context.Context, w io.Writer, n int, life time.Duration, rounds int) error {
	fmt.Fprintf(b.log, "loading %d BPF programs that live %v\n", n, life)
	r := bpfResult{details: n, copied: n}
	for range rounds {
		if err := b.bpfRound(ctx, n, life, &r); err != nil {
			return fmt.Errorf("load BPF programs: %w", err)
		}
	}
	word, target := "ok", "-"
	recorder, loader := median(r.recorder), median(r.loader)
	if n != fewLoads { // what is done once a second would count for more
		target = strconv.Itoa(bpfTarget)
	}
	if r.details < n || n != fewLoads && recorder+loader > bpfTarget {
		word = "**missed**"
	}
	_, err := fmt.Fprintf(w, "| %d x %d | %d | %s | %s | %d | %d | %.0f | %.0f | %s | %s | %s |\n", rounds, n,
		life.Microseconds(),
		spread(r.held), spread(r.gone), r.details, r.copied, recorder, loader, sums(r.recorder, r.loader), target, word)
	return err
}

// sums writes what two lists of microseconds come to, round by round: the least
// and the most.
func sums(a, b []float64) string {
	var list []float64
	for i := range a {
		list = append(list, a[i]+b[i])
	}
	return fmt.Sprintf("%.0f to %.0f", slices.Min(list), slices.Max(list))
}

// bpfResult is what became of some loads. Of details and copied it is that of the
// worst round. Times are microseconds of CPU time for each load, by round;
// recorder and loader are what --no-bpf-event saves.
type bpfResult struct {
	bpfLoads
	details, copied  int
	recorder, loader []float64
}

// bpfRound loads once with and once without the recording of BPF programs. A few loads
// take several times as long as the others, as the host takes the CPU away; so the
// loader's time is that of the median load.
func (b *bench) bpfRound(ctx context.Context, n int, life time.Duration, r *bpfResult) error {
	without, err := b.loadRecorded(ctx, n, life, nil, "--no-bpf-event")
	if err != nil {
		return err
	}
	with, err := b.loadRecorded(ctx, n, life, r)
	if err != nil {
		return err
	}
	r.recorder = append(r.recorder, (with.recorder-without.recorder)*1e6/float64(n))
	r.loader = append(r.loader, (with.loader-without.loader)*1e6)
	return nil
}

// loadCost is CPU time in seconds: the recorder's of all loads, and the loader's of
// the median load.
type loadCost struct{ recorder, loader float64 }

// loadRecorded loads programs while they are recorded, and says in r, unless that is
// nil, what the recording knows of them.
func (b *bench) loadRecorded(ctx context.Context, n int, life time.Duration, r *bpfResult, flags ...string) (c loadCost,
	err error) {
	path := filepath.Join(b.dir, "bpf.data")
	defer func() { err = errors.Join(err, os.RemoveAll(path), os.RemoveAll(path+".old")) }()
	args := append([]string{b.gantry, "record", "-q", "-a", "-e", "dummy", "--no-buildid-cache", "-o", path}, flags...)
	run, err := startRun(ctx, b.dir, args...)
	if err != nil {
		return c, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("b%d_%d_%d", os.Getpid()%1000, life.Microseconds()%10000, i)
	}
	if err := run.begun(ctx, path); err != nil {
		run.cmd.Process.Signal(os.Interrupt)
		_, waitErr := run.wait()
		return c, errors.Join(err, waitErr)
	}
	var loads bpfLoads
	cpu, seconds, err := run.during(ctx, settle, func() error {
		loads, err = loadAndUnload(ctx, names, life)
		return errors.Join(err, pause(ctx, late))
	})
	var idle, idleSeconds float64
	if err == nil {
		idle, idleSeconds, err = run.between(ctx, settle, settle)
	}
	run.cmd.Process.Signal(os.Interrupt)
	_, waitErr := run.wait()
	if err := errors.Join(err, waitErr); err != nil {
		return c, err
	}
	c = loadCost{recorder: cpu - idle*seconds/idleSeconds, loader: medianOf(loads.cpu).Seconds()}
	if r == nil {
		return c, nil
	}
	r.held, r.gone = append(r.held, loads.held...), append(r.gone, loads.gone...)
	return c, b.readPrograms(ctx, path, names, r)
}

// dumpedProgram is a program of gantry bpf dump, as far as it counts here.
type dumpedProgram struct {
	Name, Route string
	Subprograms []struct{ Symbol string }
	Lines       []struct{ Text string }
}

// whole tells that all functions are there by name, each with its line.
func (p *dumpedProgram) whole() bool {
	if len(p.Subprograms) != subprograms || len(p.Lines) < subprograms {
		return false
	}
	for i, s := range p.Subprograms {
		line := "int " + partName(i) + "(int n)"
		if !strings.HasSuffix(s.Symbol, "_"+partName(i)) ||
			!slices.ContainsFunc(p.Lines, func(l struct{ Text string }) bool { return l.Text == line }) {
			return false
		}
	}
	return true
}

func medianOf(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

// readPrograms counts what the recording knows of the programs of these names.
func (b *bench) readPrograms(ctx context.Context, path string, names []string, r *bpfResult) error {
	text, err := exec.CommandContext(ctx, b.gantry, "bpf", "dump", "-o", "json", "-i", path).Output()
	if err != nil {
		return err
	}
	var list []dumpedProgram
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	wanted := make(map[string]bool)
	for _, name := range names {
		wanted[name] = true
	}
	details, copied := 0, 0
	for _, p := range list {
		if !wanted[p.Name] || !p.whole() {
			continue
		}
		delete(wanted, p.Name)
		details++
		if p.Route == "kernel" {
			copied++
		}
	}
	r.details, r.copied = min(r.details, details), min(r.copied, copied)
	return nil
}

// callRows measures what the recording of BPF programs adds to a system call.
func (b *bench) callRows(ctx context.Context, w io.Writer) error {
	fmt.Fprintf(b.log, "measuring system calls\n")
	cases := []struct {
		name string
		args []string
	}{
		{"without a recorder", nil},
		{"recorded, --no-bpf-event", []string{"--no-bpf-event"}},
		{"recorded", []string{}},
	}
	took := make([][]float64, len(cases))
	for range b.size.recordRounds {
		for i, c := range cases {
			ns, err := b.callCost(ctx, c.args)
			if err != nil {
				return err
			}
			took[i] = append(took[i], ns)
		}
	}
	fmt.Fprintf(w, "\n| getppid, CPU ns a call | median | to --no-bpf-event | target | |\n|---|---|---|---|---|\n")
	base := median(took[1])
	for i, c := range cases {
		ns := median(took[i])
		more, target, word := "-", "-", ""
		if i == len(cases)-1 {
			more, target, word = fmt.Sprintf("%+.1f %%", 100*(ns/base-1)), fmt.Sprintf("%d %%", callTarget), "ok"
			if ns/base-1 > callTarget/100. {
				word = "**missed**"
			}
		}
		fmt.Fprintf(w, "| %s | %.1f | %s | %s | %s |\n", c.name, ns, more, target, word)
	}
	return nil
}

// callCost is the CPU time of a system call in nanoseconds, while a recorder with
// these flags runs; nil is none.
func (b *bench) callCost(ctx context.Context, flags []string) (ns float64, err error) {
	if flags == nil {
		return calls()
	}
	path := filepath.Join(b.dir, "calls.data")
	defer func() { err = errors.Join(err, os.RemoveAll(path), os.RemoveAll(path+".old")) }()
	args := append([]string{b.gantry, "record", "-q", "-a", "-e", "dummy", "--no-buildid-cache", "-o", path}, flags...)
	run, err := startRun(ctx, b.dir, args...)
	if err != nil {
		return 0, err
	}
	if err = pause(ctx, settle); err == nil {
		ns, err = calls()
	}
	run.cmd.Process.Signal(os.Interrupt)
	_, waitErr := run.wait()
	return ns, errors.Join(err, waitErr)
}

// calls makes system calls that do next to nothing.
func calls() (ns float64, err error) {
	const thread = 1 // RUSAGE_THREAD
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after syscall.Rusage
	if err := syscall.Getrusage(thread, &before); err != nil {
		return 0, err
	}
	for range callsAtOnce {
		syscall.RawSyscall(syscall.SYS_GETPPID, 0, 0, 0)
	}
	err = syscall.Getrusage(thread, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	return float64(used) / callsAtOnce, err
}
