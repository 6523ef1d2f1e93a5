// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	recordRow   = "record cpu-clock 20 kHz -a -g"
	recordRate  = 20000
	recordShort = time.Second
)

// recorder is a tool that records, and what it cost.
type recorder struct {
	name string
	args func(path string, d time.Duration) []string

	// start is the CPU time of recording nothing for long: the intercept of
	// the line through a short and a long run. perMillion is its slope.
	start, perMillion []float64
	samples, lost     uint64
}

// recordRows measures the CPU time that recording costs per million samples
// after the start: the difference of a long and a short run.
func (b *bench) recordRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(recordRow, b.rows) {
		return nil
	}
	recorders := []*recorder{
		{name: "perf", args: func(path string, d time.Duration) []string {
			return b.perfRecordArgs(path, recordRate, d, "-B")
		}},
		{name: "gantry", args: func(path string, d time.Duration) []string {
			return []string{b.gantry, "record", "-a", "-g", "-e", "cpu-clock", "-F", strconv.Itoa(recordRate), "-o", path, "--duration", d.String()}
		}},
	}
	fmt.Fprintf(b.log, "recording with both at %d Hz under load\n", recordRate)
	err := b.underLoad(ctx, func() error {
		for range b.size.rounds + 1 { // a slope of small differences
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
	fmt.Fprintf(w, "\n| %s | start CPU s | CPU s per million samples | ratio | target | | samples | lost |\n", recordRow)
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	perf := median(recorders[0].perMillion)
	for _, r := range recorders {
		cells := "- | - | "
		if r.name == "gantry" {
			cells = verdict(perf, median(r.perMillion), 1)
		}
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %d | %d |\n", r.name, median(r.start), median(r.perMillion), cells, r.samples, r.lost)
	}
	return nil
}

// recordRound runs a recorder for a short and for a long time.
func (b *bench) recordRound(ctx context.Context, r *recorder) error {
	short, shortCost, err := b.record(ctx, r, recordShort)
	if err != nil {
		return err
	}
	long, longCost, err := b.record(ctx, r, b.size.record)
	if err != nil {
		return err
	}
	r.samples += short.samples + long.samples
	r.lost += short.lost + long.lost
	millions := (float64(long.samples) - float64(short.samples)) / 1e6
	if millions <= 0 {
		return fmt.Errorf("%s record: %d samples in %v, %d in %v", r.name, short.samples, recordShort, long.samples, b.size.record)
	}
	slope := (longCost.cpu - shortCost.cpu) / millions
	r.perMillion = append(r.perMillion, slope)
	r.start = append(r.start, shortCost.cpu-slope*float64(short.samples)/1e6)
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
