// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is one line of the table: the same work for both tools on one file.
type row struct {
	name         string
	perf, gantry []string
	// cpu and rss are the ratios gantry/perf to reach; 0 is no target.
	cpu, rss float64
	// input is what both read.
	input *recording
	// slow is set for what takes perf most of a minute; it has half the rounds.
	slow bool
	// home is that of both; "" is an empty one.
	home string
}

func readingRows(in *inputs) []row {
	perf := func(args ...string) []string { return append([]string{"report", "--stdio"}, args...) }
	gantry := func(args ...string) []string { return append([]string{"report"}, args...) }
	return []row{
		{
			name:   "report comm,dso,sym, no stacks",
			input:  in.long,
			perf:   perf("-g", "none", "--no-children", "--sort", "comm,dso,sym"),
			gantry: gantry("--call-graph=none", "--no-children", "--sort", "comm,dso,sym"),
			cpu:    1. / 5,
		},
		{
			name:   "report container (perf: cgroup)",
			input:  in.long,
			perf:   perf("-g", "none", "--no-children", "--sort", "cgroup"),
			gantry: gantry("--call-graph=none", "--no-children", "--sort", "container"),
			cpu:    1. / 4,
		},
		{
			name:   "report with stacks, --no-children",
			input:  in.long,
			perf:   perf("-g", "--no-children", "--sort", "comm,dso,sym"),
			gantry: gantry("--call-graph=caller", "--no-children", "--sort", "comm,dso,sym"),
			cpu:    1. / 6, rss: 1. / 6,
		},
		{
			name:   "report with stacks and children",
			input:  in.short,
			slow:   true,
			perf:   perf("-g", "--children", "--sort", "comm,dso,sym"),
			gantry: gantry("--call-graph=caller", "--children", "--sort", "comm,dso,sym"),
			cpu:    1. / 15, rss: 1. / 6,
		},
		{
			name:   "script with stacks",
			input:  in.long,
			perf:   []string{"script"},
			gantry: []string{"script"},
			cpu:    1. / 5,
		},
	}
}

// readRows measures the rows that read a file, if any of them is wanted.
func (b *bench) readRows(ctx context.Context, w io.Writer) error {
	unwanted := func(r row) bool { return !strings.Contains(r.name, b.rows) }
	if len(slices.DeleteFunc(readingRows(&inputs{}), unwanted)) == 0 {
		return nil
	}
	in, err := b.makeInputs(ctx)
	if err != nil {
		return fmt.Errorf("make the inputs: %w", err)
	}
	home, err := b.homeOfUser(ctx)
	if err != nil {
		return fmt.Errorf("make a home with a build-id store: %w", err)
	}
	fmt.Fprintf(w, "Input: %s. With children, which perf needs 20 kB a sample for: %s.\n\n", in.long, in.short)
	rows := slices.DeleteFunc(readingRows(in), unwanted)
	for i := range rows {
		rows[i].home = home
	}
	return b.printRows(ctx, w, rows)
}

// homeOfUser makes the home directory of who has recorded before: perf, like
// gantry, keeps the kernel's symbols in ~/.debug, where both look for them.
func (b *bench) homeOfUser(ctx context.Context) (string, error) {
	home := filepath.Join(b.dir, "home")
	if _, err := os.Stat(filepath.Join(home, ".debug")); err == nil {
		return home, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(home, "perf.data")
	defer os.Remove(file)
	_, err := measure(ctx, home, b.perf, "record", "-q", "-a", "-e", "cpu-clock", "-o", file, "--", "true")
	return home, err
}

// printRows measures rows and prints them as they come.
func (b *bench) printRows(ctx context.Context, w io.Writer, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(w, "| work | perf CPU s | gantry CPU s | ratio | target | | perf RSS MB | gantry RSS MB | ratio | "+
		"target | | gantry us/sample |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, r := range rows {
		perf, gantry, err := b.alternate(ctx, &r)
		if err != nil {
			return err
		}
		p, g := perf.median(), gantry.median()
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %s | %.0f | %.0f | %s | %.2f |\n", r.name,
			p.cpu, g.cpu, verdict(p.cpu, g.cpu, r.cpu), p.rss, g.rss, verdict(p.rss, g.rss, r.rss),
			g.cpu*1e6/float64(max(r.input.samples, 1)))
	}
	return nil
}

// alternate measures a row with one tool and the other in turn.
func (b *bench) alternate(ctx context.Context, r *row) (perf, gantry samples, err error) {
	rounds := b.size.rounds
	if r.slow {
		rounds = (rounds + 1) / 2
	}
	for range rounds {
		for _, tool := range []struct {
			name string
			args []string
			cost *samples
		}{{b.perf, r.perf, &perf}, {b.gantry, r.gantry, &gantry}} {
			argv := slices.Concat([]string{tool.name}, tool.args, []string{"-i", r.input.path})
			c, err := measure(ctx, cmp.Or(r.home, b.dir), argv...)
			if err != nil {
				return perf, gantry, err
			}
			tool.cost.add(c)
		}
	}
	return perf, gantry, nil
}

// verdict is three cells: the ratio, the target, and whether it was reached.
func verdict(perf, gantry, target float64) string {
	ratio := "-"
	if gantry > 0 {
		ratio = fmt.Sprintf("1/%.1f", perf/gantry)
	}
	if target == 0 {
		return ratio + " | - | "
	}
	mark := "missed"
	if gantry <= perf*target {
		mark = "ok"
	}
	if target == 1 {
		return ratio + " | 1 | " + mark
	}
	return fmt.Sprintf("%s | 1/%.3g | %s", ratio, 1/target, mark)
}
