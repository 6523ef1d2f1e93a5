// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	startRow    = "record start-up"
	snapshotRow = "snapshot"
	startTarget = 0.6
	// snapshotTarget is against what perf takes to tell what runs.
	snapshotTarget = 1. / 5
)

//go:embed load/idle.c
var idleSource []byte

// beside calls f while n idle processes run, of 35 mappings each, 11 of which
// are executable.
func (b *bench) beside(ctx context.Context, n int, f func() error) (err error) {
	dir := filepath.Join(b.dir, "load")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	program := filepath.Join(dir, "idle")
	if err := os.WriteFile(program+".c", idleSource, 0o666); err != nil {
		return err
	}
	if msg, err := exec.Command("gcc", "-O2", "-static", "-o", program, program+".c").CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	cmd := exec.CommandContext(ctx, program, strconv.Itoa(n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close(), cmd.Wait()) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("idle processes: %w", err)
	}
	if line != "ready 35 11\n" {
		return fmt.Errorf("idle processes: %q: not the number of mappings and executable ones that was meant", line)
	}
	return f()
}

// startRows measures a recording of nothing beside many processes.
func (b *bench) startRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(startRow, b.rows) {
		return nil
	}
	n := b.size.tasks[0]
	fmt.Fprintf(b.log, "starting both beside %d processes\n", n)
	file := filepath.Join(b.dir, "start.perf.data")
	defer os.Remove(file)
	defer os.Remove(file + ".old")
	var full, bare, gantry samples
	tools := []tool{
		{&full, []string{b.perf, "record", "-q", "-a", "-e", "cpu-clock", "-o", file, "--", "true"}},
		{&bare, []string{b.perf, "record", "-q", "-B", "-N", "-a", "-e", "cpu-clock", "-o", file, "--", "true"}},
		{&gantry, []string{b.gantry, "record", "-q", "-a", "-e", "cpu-clock", "-o", file, "--", "true"}},
	}
	if err := b.beside(ctx, n, func() error { return b.inTurn(ctx, tools) }); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n| %s beside %d processes: CPU s | perf | gantry | ratio | target | |\n"+
		"|---|---|---|---|---|---|\n", startRow, n)
	g := gantry.median().cpu
	for _, t := range []struct {
		name string
		cost *samples
	}{{"perf record -a -- true", &full}, {"perf record -B -N -a -- true", &bare}} {
		p := t.cost.median().cpu
		fmt.Fprintf(w, "| %s | %.3f | %.3f | %s |\n", t.name, p, g, verdict(p, g, startTarget))
	}
	return nil
}

// tool is a command that is measured several times.
type tool struct {
	cost *samples
	argv []string
}

// inTurn runs each command once a round.
func (b *bench) inTurn(ctx context.Context, tools []tool) error {
	for range b.size.recordRounds {
		for _, t := range tools {
			c, err := measure(ctx, b.dir, t.argv...)
			if err != nil {
				return err
			}
			t.cost.add(c)
		}
	}
	return nil
}

// snapshotRows measures what it costs to tell what runs: for perf what
// --synth=all takes above --synth=no, for gantry what gantry snapshot takes
// above itself where it sees nobody else, in a pid namespace of its own. All of
// them run beside the processes, in turn: what a command costs that reads no
// process differs from minute to minute by as much as telling of a thousand.
func (b *bench) snapshotRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(snapshotRow, b.rows) {
		return nil
	}
	file := filepath.Join(b.dir, "snapshot.perf.data")
	defer os.Remove(file)
	defer os.Remove(file + ".old")
	snapshot := []string{b.gantry, "snapshot", "-q", "-o", file}
	synth := func(what string) []string {
		return []string{b.perf, "record", "-q", "-B", "-N", "-a", "-e", "cpu-clock", "--synth=" + what, "-o", file,
			"--", "true"}
	}
	alone := []string{"unshare", "--fork", "--pid", "--mount-proc"}
	fmt.Fprintf(w, "\n| %s: CPU s | perf --synth=all - --synth=no | gantry snapshot - one of nobody else | ratio | "+
		"target | | of single rounds | gantry snapshot |\n", snapshotRow)
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	for _, n := range b.size.tasks {
		fmt.Fprintf(b.log, "taking snapshots of %d processes\n", n)
		var all, no, gantry, nobody, nothing samples
		tools := []tool{
			{&all, synth("all")}, {&gantry, snapshot}, {&no, synth("no")},
			{&nobody, append(alone, snapshot...)}, {&nothing, append(alone, "true")},
		}
		times := max(1, b.size.tasks[1]/n) // the fewer there are, the more the rest differs
		err := b.beside(ctx, n, func() error {
			for range times {
				if err := b.inTurn(ctx, tools); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		p, g, ratios := all.less(no), gantry.less(nobody.less(nothing)), []float64{}
		for i := range p.cpu {
			ratios = append(ratios, p.cpu[i]/g.cpu[i])
		}
		span := "-" // of a few processes the difference may come to nothing
		if slices.Min(ratios) > 0 {
			span = fmt.Sprintf("1/%.1f to 1/%.1f", slices.Min(ratios), slices.Max(ratios))
		}
		fmt.Fprintf(w, "| %d processes | %.3f | %.3f | %s | %s | %.3f |\n", n, p.median().cpu, g.median().cpu,
			verdict(p.median().cpu, g.median().cpu, snapshotTarget), span, gantry.median().cpu)
	}
	return nil
}

// less is the difference to what else ran in the same rounds.
func (s samples) less(other samples) (d samples) {
	for i, cpu := range s.cpu {
		d.cpu = append(d.cpu, cpu-other.cpu[i])
	}
	d.rss = s.rss
	return d
}
