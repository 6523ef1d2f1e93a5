// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	dumpReport = "report of dumped stacks"
	dumpLoss   = "record dumped stacks at 5 kHz"
	dumpRate   = 1999
	lossRate   = 4999
	dumpsInput = "dumps.perf.data"

	// Rings of the loss rows, in KiB a CPU. Beside it gantry has one of
	// 512 KiB for sideband, and perf one of 512 KiB for BPF programs.
	dumpRing = 1024
)

// dumpRows measures stacks that are recorded as memory (--call-graph dwarf):
// what unwinding them costs, and how many samples a recorder loses.
func (b *bench) dumpRows(ctx context.Context, w io.Writer) error {
	if strings.Contains(dumpReport, b.rows) {
		if err := b.dumpReports(ctx, w); err != nil {
			return err
		}
	}
	if strings.Contains(dumpLoss, b.rows) {
		return b.dumpLosses(ctx, w)
	}
	return nil
}

func (b *bench) dumpReports(ctx context.Context, w io.Writer) error {
	in, err := b.dumpInput(ctx)
	if err != nil {
		return fmt.Errorf("make the input of dumped stacks: %w", err)
	}
	perf := []string{"report", "--stdio", "--no-inline", "--no-children", "-g", "caller", "--sort", "comm,dso,sym"}
	gantry := []string{"report", "--no-inline", "--no-children", "--call-graph=caller", "--sort", "comm,dso,sym"}
	fmt.Fprintf(w, "\nDumped stacks: %.0f MB, %d samples.\n\n", float64(in.bytes)/1e6, in.samples)
	return b.printRows(ctx, w, []row{
		{name: dumpReport, input: in, perf: perf, gantry: gantry, cpu: 1. / 4},
	})
}

//go:embed load/library.cc
var librarySource []byte

// dumpInput has perf record compilers, whose stacks are deep and which have no
// frame pointers, or reuses the recording of an earlier run. Programs that perf
// cannot unwind, such as those in Go, would be cheap for it.
func (b *bench) dumpInput(ctx context.Context) (*recording, error) {
	path := filepath.Join(b.dir, dumpsInput)
	if rec, err := scan(path); err == nil {
		return rec, nil
	}
	source := filepath.Join(b.dir, "library.cc")
	if err := os.WriteFile(source, librarySource, 0o666); err != nil {
		return nil, err
	}
	// By the work, not by the time: what counts is the number of samples.
	n := 1 + int(b.size.input/(2*time.Second))
	fmt.Fprintf(b.log, "recording %d runs of a compiler with perf, stacks dumped\n", n)
	return b.readable(ctx, path, func() error {
		_, err := measure(ctx, b.dir, b.perf, "record", "-q", "--call-graph", "dwarf", "-e", "cpu-clock", "-F",
			strconv.Itoa(dumpRate),
			"-m", "4M", "--buildid-mmap", "-N", "-o", path,
			"--", "sh", "-c", fmt.Sprintf("for i in $(seq %d); do g++ -O2 -c -o /dev/null '%s' || exit; done", n,
				source))
		return err
	})
}

func (b *bench) dumpRecordArgs(path string, d time.Duration) []string {
	return []string{b.perf, "record", "-q", "-a", "--call-graph", "dwarf", "-e", "cpu-clock", "-F",
		strconv.Itoa(lossRate),
		"-m", strconv.Itoa(dumpRing) + "K", "--buildid-mmap", "-N", "-o", path, "--", "sleep", fmt.Sprint(d.Seconds())}
}

// dumpLosses records with both tools in turn and prints what was lost.
func (b *bench) dumpLosses(ctx context.Context, w io.Writer) error {
	recorders := []*recorder{
		{name: "perf", args: func(path string, d time.Duration) []string {
			return b.dumpRecordArgs(path, d)
		}},
		{name: "gantry", args: func(path string, d time.Duration) []string {
			return []string{b.gantry, "record", "-q", "-a", "--call-graph", "dwarf", "-e", "cpu-clock", "-F",
				strconv.Itoa(lossRate),
				"-m", strconv.Itoa(dumpRing) + "K", "--no-buildid-cache", "-o", path, "--duration", d.String()}
		}},
	}
	var seconds [2]float64
	fmt.Fprintf(b.log, "recording dumped stacks with both at %d Hz under load\n", lossRate)
	err := b.underLoad(ctx, func() error {
		for range b.size.rounds {
			for i, r := range recorders {
				rec, c, err := b.record(ctx, r, b.size.record)
				if err != nil {
					return err
				}
				r.samples += rec.samples
				r.lost += rec.lost
				seconds[i] += c.cpu
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	share := func(r *recorder) float64 { return float64(r.lost) / float64(max(r.samples+r.lost, 1)) }
	fmt.Fprintf(w, "\n| %s | samples | lost | share | ratio | target | | CPU s |\n|---|---|---|---|---|---|---|---|\n",
		dumpLoss)
	for i, r := range recorders {
		cells := "- | - | "
		if r.name == "gantry" {
			cells = verdict(share(recorders[0]), share(r), 1./10)
		}
		fmt.Fprintf(w, "| %s | %d | %d | %.2f %% | %s | %.1f |\n", r.name, r.samples, r.lost, 100*share(r), cells,
			seconds[i])
	}
	return nil
}
