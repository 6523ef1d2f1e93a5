// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
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

// lifetimes is for how long programs live, at least, in rows of fewLoads.
var lifetimes = []time.Duration{0, 100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}

// bpfRows measures which programs a recording knows of, what that costs for each
// load, and what it costs a system call.
func (b *bench) bpfRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(bpfRow, b.rows) {
		return nil
	}
	fmt.Fprintf(w, "\n| %s of %d subprograms, loads | lived us, median | with details | copied in the kernel | CPU us a load more than with --no-bpf-event: recorder | loader | target | |\n|---|---|---|---|---|---|---|---|\n",
		bpfRow, subprograms)
	if err := b.bpfLine(ctx, w, b.size.loads, 0, bpfTarget); err != nil {
		return err
	}
	for _, life := range lifetimes {
		if b.size.loads < fewLoads {
			break // only tried out
		}
		if err := b.bpfLine(ctx, w, fewLoads, life, 0); err != nil {
			return err
		}
	}
	return b.callRows(ctx, w)
}

// bpfLine measures one line. target is that of the CPU time of a load, 0 is none.
func (b *bench) bpfLine(ctx context.Context, w io.Writer, n int, life time.Duration, target float64) error {
	fmt.Fprintf(b.log, "loading %d BPF programs that live %v\n", n, life)
	r, err := b.bpfRound(ctx, n, life)
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	word, text := "ok", "-"
	if target != 0 {
		text = fmt.Sprint(target)
	}
	if r.details < n || target != 0 && r.recorder+r.loader > target {
		word = "**missed**"
	}
	_, err = fmt.Fprintf(w, "| %d | %.0f | %d | %d | %.0f | %.0f | %s | %s |\n", n, r.lived, r.details, r.copied, r.recorder, r.loader, text, word)
	return err
}

// sevenParts is a program of seven subprograms.
func sevenParts() *ebpf.ProgramSpec {
	integer := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	named := func(ins asm.Instruction, name string) asm.Instruction {
		f := &btf.Func{Name: name, Type: &btf.FuncProto{Return: integer, Params: []btf.FuncParam{{Name: "n", Type: integer}}}}
		return btf.WithFuncMetadata(ins.WithSymbol(name), f)
	}
	main := asm.Instructions{named(asm.Mov.Imm(asm.R0, 0), "bench_main")}
	var parts asm.Instructions
	for i := range subprograms - 1 {
		name := fmt.Sprintf("bench_part%d", i+1)
		main = append(main, asm.Mov.Imm(asm.R1, int32(i)), asm.Call.Label(name))
		parts = append(parts, named(asm.Mov.Reg(asm.R0, asm.R1), name))
		for j := range 20 {
			parts = append(parts, asm.Add.Imm(asm.R0, int32(i*100+j)))
		}
		parts = append(parts, asm.Return())
	}
	return &ebpf.ProgramSpec{
		Name: "bench_main", Type: ebpf.SocketFilter, License: "MIT",
		Instructions: append(append(main, asm.Mov.Imm(asm.R0, 0), asm.Return()), parts...),
	}
}

// loadAndUnload loads a program so often, each when the one before is gone.
func loadAndUnload(ctx context.Context, n int, life time.Duration) error {
	spec := sevenParts()
	for range n {
		p, err := ebpf.NewProgram(spec)
		if err != nil {
			return err
		}
		for begun := time.Now(); time.Since(begun) < life; {
		}
		if err := errors.Join(p.Close(), ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

// bpfResult is what became of some loads. Times are microseconds; recorder and loader
// are what --no-bpf-event saves each of CPU time.
type bpfResult struct {
	details, copied  int
	lived            float64
	recorder, loader float64
}

func (b *bench) bpfRound(ctx context.Context, n int, life time.Duration) (r bpfResult, err error) {
	without, err := b.loadRecorded(ctx, n, life, &bpfResult{}, "--no-bpf-event")
	if err != nil {
		return r, err
	}
	with, err := b.loadRecorded(ctx, n, life, &r)
	r.recorder = (with.recorder - without.recorder) * 1e6 / float64(n)
	r.loader = (with.loader - without.loader) * 1e6 / float64(n)
	return r, err
}

// loadCost is CPU time in seconds.
type loadCost struct{ recorder, loader float64 }

// loadRecorded loads programs while they are recorded, and says in r what the
// recording knows of them.
func (b *bench) loadRecorded(ctx context.Context, n int, life time.Duration, r *bpfResult, flags ...string) (c loadCost, err error) {
	path := filepath.Join(b.dir, "bpf.data")
	defer func() { err = errors.Join(err, os.RemoveAll(path), os.RemoveAll(path+".old")) }()
	args := append([]string{b.gantry, "record", "-q", "-a", "-e", "dummy", "--no-buildid-cache", "-o", path}, flags...)
	run, err := startRun(ctx, b.dir, args...)
	if err != nil {
		return c, err
	}
	var own time.Duration
	cpu, seconds, err := run.during(ctx, settle, func() error {
		own, err = ownTime(func() error { return loadAndUnload(ctx, n, life) })
		return err
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
	c = loadCost{recorder: cpu - idle*seconds/idleSeconds, loader: own.Seconds()}
	return c, b.readLog(ctx, path, r)
}

// ownTime is the CPU time of this process while f runs.
func ownTime(f func() error) (time.Duration, error) {
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()), err
}

// readLog counts what the recording knows of the programs of this process.
func (b *bench) readLog(ctx context.Context, path string, r *bpfResult) error {
	text, err := exec.CommandContext(ctx, b.gantry, "bpf", "log", "-o", "json", "-i", path).Output()
	if err != nil {
		return err
	}
	var lived []float64
	for line := range bytes.Lines(text) {
		var p struct {
			Action           string
			Loaded, Unloaded time.Time
			Name, Route      string
			Subprograms      []any
			Loader           struct{ PID int }
		}
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		if p.Action != "load" || p.Loader.PID != os.Getpid() || len(p.Subprograms) != subprograms || p.Name != "bench_main" {
			continue
		}
		r.details++
		if p.Route == "kernel" {
			r.copied++
		}
		lived = append(lived, p.Unloaded.Sub(p.Loaded).Seconds()*1e6)
	}
	if len(lived) > 0 {
		r.lived = median(lived)
	}
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
