// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

//go:embed load/ring.c
var ringSource []byte

//go:embed load/lttng.h
var lttngSource []byte

const (
	ringRow = "tracing namespaces: events by a ring, 20 bytes with a time"
	// Targets: shares of LTTng's time, seconds of CPU time for a million events.
	ringTarget, goRingTarget = 0.25, 0.5
	readTarget               = 1.0
	// ringBursts have a million events.
	ringBursts = 50
)

// ringRows measures rings against LTTng-UST, and what reading them costs.
func (b *bench) ringRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(ringRow, b.rows) {
		return nil
	}
	fmt.Fprintf(b.log, "writing events to rings\n")
	dir := filepath.Join(b.dir, "rings")
	header, err := exec.CommandContext(ctx, b.gantry, "ns", "header").Output()
	if err != nil {
		return fmt.Errorf("gantry ns header: %w", err)
	}
	for _, err := range []error{
		os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, "userevents.h"), header, 0o666),
		os.WriteFile(filepath.Join(dir, "ring.c"), ringSource, 0o666),
		os.WriteFile(filepath.Join(dir, "lttng.h"), lttngSource, 0o666),
		gcc(dir, "ring", "ring.c", "-I"+dir),
		gcc(dir, "lttng", "ring.c", "-I"+dir, "-DLTTNG", "-llttng-ust", "-ldl"),
	} {
		if err != nil {
			return err
		}
	}
	peer, err := lttngRound(ctx, dir)
	if err != nil {
		return err
	}
	own, cpu, err := b.ringRound(ctx, dir, b.recordTrace)
	if err != nil {
		return err
	}
	_, perfCPU, err := b.ringRound(ctx, dir, b.recordSamples)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n| %s | median | of LTTng-UST's | target | |\n|---|---|---|---|---|\n", ringRow)
	fmt.Fprintf(w, "| LTTng-UST: ns an event | %.1f | 1 | | |\n", peer)
	fmt.Fprintf(w, "| gantry in C: ns an event | %.1f | %.2f | %.2f | %s |\n", own, own/peer, ringTarget,
		mark(own/peer <= ringTarget))
	if _, err := os.Stat("tracens/userevents"); err == nil { // in gantry's sources
		inGo, err := goRing(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "| gantry in Go: ns an event | %.1f | %.2f | %.2f | %s |\n", inGo, inGo/peer, goRingTarget,
			mark(inGo/peer <= goRingTarget))
	}
	fmt.Fprintf(w, "| reading a million into CTF, server and recorder: CPU s | %.2f | | %.0f | %s |\n", cpu, readTarget,
		mark(cpu <= readTarget))
	fmt.Fprintf(w, "| the same into perf.data | %.2f | | %.0f | %s |\n", perfCPU, readTarget,
		mark(perfCPU <= readTarget))
	return nil
}

// gcc compiles a file of a directory.
func gcc(dir, out, in string, flags ...string) error {
	args := append([]string{"-O2", "-o", filepath.Join(dir, out), filepath.Join(dir, in)}, flags...)
	if msg, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	return nil
}

// burstTimes runs a program that prints how long an event of each burst took, in
// nanoseconds, and returns the median.
func burstTimes(ctx context.Context, prog string, args ...string) (float64, error) {
	out, err := exec.CommandContext(ctx, prog, append(args, strconv.Itoa(ringBursts))...).Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", prog, err)
	}
	var list []float64
	for line := range strings.Lines(string(out)) {
		ns, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", prog, err)
		}
		list = append(list, ns)
	}
	return median(list), nil
}

// lttngRound writes the events by LTTng-UST, in a session of its own.
func lttngRound(ctx context.Context, dir string) (ns float64, err error) {
	env := append(os.Environ(), "LTTNG_HOME="+dir)
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = env
		if msg, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, msg)
		}
		return nil
	}
	daemon := exec.CommandContext(ctx, "lttng-sessiond", "--no-kernel", "--sig-parent")
	daemon.Env = env
	if err := daemon.Start(); err != nil {
		return 0, err
	}
	defer func() {
		// It ends with a status of its own when it is asked to.
		_ = daemon.Process.Signal(os.Interrupt)
		_ = daemon.Wait()
	}()
	deadline, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for run("lttng", "-n", "list") != nil {
		if err := pause(deadline, 100*time.Millisecond); err != nil {
			return 0, fmt.Errorf("lttng-sessiond does not answer: %w", err)
		}
	}
	for _, args := range [][]string{
		{"create", "bench", "--output=" + filepath.Join(dir, "lttng-trace")},
		{"enable-channel", "-u", "--subbuf-size=4M", "--num-subbuf=4", "all"},
		{"enable-event", "-u", "-c", "all", "gantry_bench:request"}, {"start"},
	} {
		if err := run("lttng", append([]string{"-n"}, args...)...); err != nil {
			return 0, err
		}
	}
	if err := os.Setenv("LTTNG_HOME", dir); err != nil {
		return 0, err
	}
	defer os.Unsetenv("LTTNG_HOME")
	ns, err = burstTimes(ctx, filepath.Join(dir, "lttng"), "-")
	return ns, errors.Join(err, run("lttng", "-n", "destroy", "bench"))
}

// ringRecorder starts a recorder of the namespaces at a directory. ended is given what it
// said, and checks that it has all events.
type ringRecorder func(ctx context.Context, dir, mount string) (r *process, ended func(said string) error, err error)

// recordTrace records into CTF.
func (b *bench) recordTrace(ctx context.Context, dir, mount string) (*process, func(string) error, error) {
	trace := filepath.Join(dir, "trace")
	if err := os.RemoveAll(trace); err != nil {
		return nil, nil, err
	}
	r, err := startRun(ctx, b.dir, b.gantry, "ns", "record", "--dir", mount, "-o", trace, "bench")
	return r, func(said string) error {
		if !strings.Contains(said, " 1000000 events, 0 lost ") {
			return fmt.Errorf("not all events were recorded: %s", said)
		}
		return nil
	}, err
}

// recordSamples records into perf.data, which needs the event to be there. It begins after the
// program: the first bursts, while what runs is looked at, are not in it.
func (b *bench) recordSamples(ctx context.Context, dir, mount string) (*process, func(string) error, error) {
	deadline, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join(mount, "bench/root/events/request")); err == nil {
			break
		}
		if err := pause(deadline, 10*time.Millisecond); err != nil {
			return nil, nil, fmt.Errorf("the program registers no event: %w", err)
		}
	}
	r, err := startRun(ctx, b.dir, b.gantry, "record", "--ns-dir", mount, "-e", "user_events.bench:request", "-o",
		filepath.Join(dir, "request.data"))
	return r, func(said string) error {
		if !regexp.MustCompile(`\((9[0-9]{2}|1,000),000 samples, 0 lost\)`).MatchString(said) {
			return fmt.Errorf("not all events were recorded: %s", said)
		}
		return nil
	}, err
}

// ringRound writes a million events to a ring that is recorded: nanoseconds an event, and
// CPU seconds of the server and the recorder.
func (b *bench) ringRound(ctx context.Context, dir string, record ringRecorder) (ns, cpu float64, err error) {
	mount := filepath.Join(dir, "namespaces")
	server, err := startRun(ctx, b.dir, b.gantry, "ns", "mount", mount)
	if err != nil {
		return 0, 0, err
	}
	defer func() {
		_ = server.cmd.Process.Signal(os.Interrupt)
		used, waitErr := server.wait()
		cpu += used.cpu
		err = errors.Join(err, waitErr, os.RemoveAll(mount+".state"))
	}()
	if err := awaitMount(ctx, mount); err != nil {
		return 0, 0, err
	}
	if err := os.Mkdir(filepath.Join(mount, "bench"), 0o755); err != nil {
		return 0, 0, err
	}
	// The program waits until the recorder has enabled its event.
	var times struct {
		ns  float64
		err error
	}
	done := make(chan struct{})
	running, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		times.ns, times.err = burstTimes(running, filepath.Join(dir, "ring"), filepath.Join(mount, "bench/root"))
	}()
	recorder, ended, err := record(ctx, dir, mount)
	if err != nil {
		return 0, 0, err
	}
	<-done
	_ = recorder.cmd.Process.Signal(os.Interrupt)
	used, waitErr := recorder.wait()
	return times.ns, used.cpu, errors.Join(times.err, waitErr, ended(recorder.stderr.String()))
}

// goRing runs the benchmark of the Go package: nanoseconds an event.
func goRing(ctx context.Context) (float64, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRing$", "./tracens/userevents").
		CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("go test: %w\n%s", err, out)
	}
	found := regexp.MustCompile(`([0-9.]+) ns/event`).FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("no result in %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}
