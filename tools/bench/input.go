// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Samples per second and CPU of the inputs.
const (
	longRate  = 24999
	shortRate = 9999
)

// inputs are the recordings that both tools read.
type inputs struct{ long, short *recording }

// makeInputs records the whole machine under load with perf, or reuses the
// recordings of an earlier run in the same directory.
func (b *bench) makeInputs(ctx context.Context) (*inputs, error) {
	in := &inputs{}
	var err error
	if in.long, err = b.makeInput(ctx, "long.perf.data", longRate, b.size.input); err != nil {
		return nil, err
	}
	in.short, err = b.makeInput(ctx, "short.perf.data", shortRate, b.size.short)
	return in, err
}

func (b *bench) makeInput(ctx context.Context, name string, rate int, d time.Duration) (*recording, error) {
	path := filepath.Join(b.dir, name)
	if rec, err := scan(path); err == nil {
		return rec, nil
	}
	fmt.Fprintf(b.log, "recording %v with perf at %d Hz under load\n", d, rate)
	return b.readable(ctx, path, func() error {
		return b.underLoad(ctx, func() error {
			_, err := measure(ctx, b.dir, b.perfRecordArgs(path, rate, d, "--buildid-mmap")...)
			return err
		})
	})
}

// maxRecordings is how often an input is recorded until perf can read it.
const maxRecordings = 5

// readable records until perf can read the file. Where others record as well,
// the kernel makes records of BPF programs that come and go too long, and perf
// ends at one: "failed to process type: 17 [Bad address]".
func (b *bench) readable(ctx context.Context, path string, record func() error) (*recording, error) {
	var err error
	for range maxRecordings {
		if err = record(); err != nil {
			return nil, err
		}
		if _, err = measure(ctx, b.dir, b.perf, "script", "-F", "time", "-i", path); err == nil {
			return scan(path)
		}
		fmt.Fprintf(b.log, "recording again: %v\n", err)
	}
	return nil, err
}

// underLoad calls f while the load runs.
func (b *bench) underLoad(ctx context.Context, f func() error) (err error) {
	dir := filepath.Join(b.dir, "load")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := startLoad(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	return f()
}

// perfRecordArgs leave the user's build-id cache alone. buildIDs says where
// build-ids come from.
func (b *bench) perfRecordArgs(path string, rate int, d time.Duration, buildIDs string) []string {
	return []string{b.perf, "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", strconv.Itoa(rate),
		"--all-cgroups", buildIDs, "-N", "-o", path, "--", "sleep", fmt.Sprint(d.Seconds())}
}
