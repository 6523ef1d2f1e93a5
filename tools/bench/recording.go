// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	recordRow  = "record cpu-clock 20 kHz -a -g"
	recordRate = 20000
	// settle is how long a recorder has run when measuring begins: its start
	// is over.
	settle = 1500 * time.Millisecond
)

// recorder is a tool that records, and what it cost.
type recorder struct {
	name string
	args func(path string, d time.Duration) []string

	// perMillion is the CPU time while it records, by a million samples; start
	// is what it took beside that, at the start and the end.
	start, perMillion []float64
	samples, lost     uint64
	mapped, withID    uint64
}

// recordRows measures the CPU time that recording costs per million samples
// after the start.
func (b *bench) recordRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(recordRow, b.rows) {
		return nil
	}
	recorders := []*recorder{
		{name: "perf", args: func(path string, d time.Duration) []string {
			return b.perfRecordArgs(path, recordRate, d, "-B")
		}},
		{name: "gantry", args: func(path string, d time.Duration) []string {
			return []string{b.gantry, "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", strconv.Itoa(recordRate),
				"-o", path, "--duration", d.String()}
		}},
	}
	fmt.Fprintf(b.log, "recording with both at %d Hz under load\n", recordRate)
	err := b.underLoad(ctx, func() error {
		for range b.size.recordRounds {
			for _, r := range recorders {
				if err := b.recordRound(ctx, r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n| %s | start CPU s | CPU s per million samples | ratio | target | | samples | lost | files "+
		"mapped, with build-id |\n", recordRow)
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	perf := median(recorders[0].perMillion)
	for _, r := range recorders {
		cells, ids := "- | - | ", "-"
		if r.name == "gantry" {
			cells = verdict(perf, median(r.perMillion), 1)
			ids = fmt.Sprintf("%d, %d", r.mapped, r.withID)
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %d | %d | %s |\n", r.name, median(r.start), median(r.perMillion),
			cells, r.samples, r.lost, ids)
	}
	return nil
}

// recordTries is how often a recording may end before its CPU time was looked at,
// where this program was not given a CPU for a second.
const recordTries = 3

// recordRound runs a recorder and looks at its CPU time twice meanwhile.
func (b *bench) recordRound(ctx context.Context, r *recorder) error {
	for try := 1; ; try++ {
		if err := b.recordOnce(ctx, r); !errors.Is(err, errEnded) || try == recordTries {
			return err
		}
	}
}

func (b *bench) recordOnce(ctx context.Context, r *recorder) error {
	path := filepath.Join(b.dir, r.name+".perf.data")
	defer os.Remove(path)
	defer os.Remove(path + ".old")
	run, err := startRun(ctx, b.dir, r.args(path, settle+b.size.record+time.Second)...)
	if err != nil {
		return err
	}
	measured, seconds, err := run.between(ctx, settle, b.size.record)
	c, waitErr := run.wait()
	if err = errors.Join(err, waitErr); err != nil {
		return err
	}
	rec, err := scan(path)
	if err != nil {
		return err
	}
	if rec.samples == 0 {
		return fmt.Errorf("%s record: no samples", r.name)
	}
	r.samples += rec.samples
	r.lost += rec.lost
	r.mapped += rec.mapped
	r.withID += rec.withID
	// Every CPU is sampled at the rate, and what was lost cost little.
	kept := float64(rec.samples) / float64(rec.samples+rec.lost)
	perSample := measured / (recordRate * float64(onlineCPUs()) * seconds * kept)
	r.perMillion = append(r.perMillion, perSample*1e6)
	r.start = append(r.start, c.cpu-perSample*float64(rec.samples))
	return nil
}

func (b *bench) record(ctx context.Context, r *recorder, d time.Duration) (*recording, cost, error) {
	path := filepath.Join(b.dir, r.name+".perf.data")
	defer os.Remove(path)
	defer os.Remove(path + ".old")
	c, err := measure(ctx, b.dir, r.args(path, d)...)
	if err != nil {
		return nil, cost{}, err
	}
	rec, err := scan(path)
	return rec, c, err
}
