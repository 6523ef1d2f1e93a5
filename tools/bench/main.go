// SPDX-License-Identifier: Apache-2.0

// Command bench measures gantry against the machine's perf, on files that it
// has perf record itself, and prints the ratios as a Markdown table. Nothing
// in it passes or fails by a clock: it exits non-zero only if a run failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// size is how much is recorded and how often each row is measured.
type size struct {
	input  time.Duration // length of the recording that is read
	short  time.Duration // length of the one for what perf is slowest at
	rounds int
	record time.Duration // for how long recording is measured
	// recordRounds is how often: more than other rows, because the load is
	// never the same twice.
	recordRounds int
	// tasks are the numbers of idle processes that start-up and snapshot are
	// measured with.
	tasks [2]int
	// starts is how many containers are started, one after the other.
	starts int
	// loads is how many BPF programs are loaded, one after the other; fewer
	// for those that live longer, and none if it is small.
	loads int
}

var sizes = map[string]size{
	"tiny": { // only to try it out
		input: time.Second, short: time.Second, rounds: 1,
		record: time.Second, recordRounds: 1, tasks: [2]int{50, 100}, starts: 5, loads: 20,
	},
	"small": {
		input: 16 * time.Second, short: 10 * time.Second, rounds: 2,
		record: 3 * time.Second, recordRounds: 5, tasks: [2]int{2000, 10000}, starts: 100, loads: 1000,
	},
	"medium": {
		input: 40 * time.Second, short: 10 * time.Second, rounds: 3,
		record: 5 * time.Second, recordRounds: 10, tasks: [2]int{2000, 10000}, starts: 100, loads: 1000,
	},
	"large": {
		input: 90 * time.Second, short: 20 * time.Second, rounds: 3,
		record: 10 * time.Second, recordRounds: 15, tasks: [2]int{2000, 10000}, starts: 100, loads: 1000,
	},
}

// options are the flags.
type options struct {
	size         size
	gantry, perf string
	dir          string
	rows         string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Stderr, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, stdout, stderr io.Writer, args []string) (err error) {
	o, err := parseFlags(stderr, args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("recording the whole machine needs root: run it as root or through sudo")
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "gantry-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	}
	b := &bench{options: *o, log: stderr}
	b.printMachine(stdout)
	for _, rows := range []func(context.Context, io.Writer) error{b.readRows, b.dumpRows, b.symbolRows, b.recordRows,
		b.segmentsRows,
		b.startsRows, b.namesRows, b.startRows, b.snapshotRows, b.filterRows, b.bpfRows, b.insideRows,
		b.userEventsRows, b.ringRows, b.crowdRows} {
		if err := rows(ctx, stdout); err != nil {
			return err
		}
	}
	return nil
}

func parseFlags(stderr io.Writer, args []string) (*options, error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	name := fs.String("size", "small", "small, medium or large")
	o := &options{}
	fs.StringVar(&o.gantry, "gantry", "./gantry", "the gantry to measure")
	fs.StringVar(&o.perf, "perf", "perf", "the perf to measure")
	fs.StringVar(&o.dir, "dir", "", "keep the recordings here, and reuse an input that is there")
	fs.StringVar(&o.rows, "rows", "", "only the rows whose name contains this")
	rounds := fs.Int("rounds", 0, "how often each row is measured (default by size)")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	s, ok := sizes[*name]
	if !ok {
		return nil, fmt.Errorf("no size %q: small, medium or large", *name)
	}
	if *rounds > 0 {
		s.rounds, s.recordRounds = *rounds, *rounds
	}
	o.size = s
	var err error
	if o.gantry, err = filepath.Abs(o.gantry); err != nil {
		return nil, err
	}
	if o.perf, err = exec.LookPath(o.perf); err != nil {
		return nil, err
	}
	return o, nil
}

// bench is one run of the benchmark.
type bench struct {
	options
	log io.Writer
}

func (b *bench) printMachine(w io.Writer) {
	var u syscall.Utsname
	release := "unknown kernel"
	if syscall.Uname(&u) == nil {
		release = utsString(u.Release[:])
	}
	version, err := exec.Command(b.perf, "--version").Output()
	if err != nil {
		version = []byte("perf\n")
	}
	fmt.Fprintf(w, "%s; Linux %s, %d CPUs; median of %d rounds in alternation\n\n",
		trimLine(version), release, onlineCPUs(), b.size.rounds)
}
