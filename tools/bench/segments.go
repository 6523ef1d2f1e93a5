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
	segmentsRow    = "record cpu-clock 20 kHz -a -g, another file each second"
	segmentsRate   = 20000
	segmentsTarget = 1.05
)

// segmentsRows measures what it costs to go on in another file each second.
func (b *bench) segmentsRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(segmentsRow, b.rows) {
		return nil
	}
	fmt.Fprintf(b.log, "recording into one file and into many under load\n")
	cpu := make(map[bool][]float64)
	err := b.underLoad(ctx, func() error {
		for range max(b.size.recordRounds, 3) {
			for _, many := range []bool{false, true} {
				seconds, err := b.segmentsRound(ctx, many)
				if err != nil {
					return err
				}
				cpu[many] = append(cpu[many], seconds)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	one, many := median(cpu[false]), median(cpu[true])
	fmt.Fprintf(w, "\n| %s | one file, CPU s a second | many | ratio | target | |\n|---|---|---|---|---|---|\n",
		segmentsRow)
	fmt.Fprintf(w, "| gantry | %.4f | %.4f | %.2f | %.2f | %s |\n", one, many, many/one, segmentsTarget,
		mark(many/one <= segmentsTarget))
	return nil
}

// segmentsRound is the CPU time that a second of recording takes.
func (b *bench) segmentsRound(ctx context.Context, many bool) (cpu float64, err error) {
	path := filepath.Join(b.dir, "segments.data")
	args := []string{b.gantry, "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", strconv.Itoa(segmentsRate),
		"-o", path,
		"--duration", (settle + b.size.record + time.Second).String()}
	if many {
		args = append(args, "--switch-output=1s")
	}
	defer func() {
		list, e := filepath.Glob(path + "*")
		for _, name := range list {
			e = errors.Join(e, os.Remove(name))
		}
		err = errors.Join(err, e)
	}()
	run, err := startRun(ctx, b.dir, args...)
	if err != nil {
		return 0, err
	}
	measured, seconds, err := run.between(ctx, settle, b.size.record)
	_, waitErr := run.wait()
	return measured / seconds, errors.Join(err, waitErr)
}
