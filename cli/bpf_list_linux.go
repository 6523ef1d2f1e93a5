// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// bpfListFlags are the flags of gantry bpf list.
type bpfListFlags struct {
	formatFlags
	stats timeValue
}

func newBPFListCmd(e *env) *cobra.Command {
	f := new(bpfListFlags)
	cmd := &cobra.Command{
		Use:   "list [flags] [ID]...",
		Short: "list the BPF programs that are loaded",
		Long: `List the BPF programs that are loaded: type, name, age, the process that holds
it and its container, and where it is attached. The kernel does not tell who
loaded a program; who holds it, or a link to it, is it as a rule.

With --stats the kernel counts runs and their time meanwhile, which costs each
run some 20 ns; CPU is percent of one CPU.`,
		Example: `  gantry bpf list
  gantry bpf list --stats 5s
  gantry bpf list --format json 42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.formatFlags.run(e, cmd, func(e *env) error { return f.list(e, cmd, args) })
		},
	}
	fl := cmd.Flags()
	f.formatFlags.register(cmd, "table", "wide", "json")
	fl.Var(&f.stats, "stats", "count runs for `TIME`: 5s")
	return cmd
}

func (f *bpfListFlags) list(e *env, cmd *cobra.Command, args []string) error {
	ids, err := bpfIDs(args)
	if err != nil {
		return usageError(cmd, err)
	}
	list, err := f.find(cmd.Context(), ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.ContainsFunc(list, func(p bpfProgram) bool { return p.ID == id }) {
			return hint.Wrap(fmt.Errorf("BPF program %d: %w", id, os.ErrNotExist),
				"'gantry bpf list' shows what is loaded")
		}
	}
	if err := f.describe(e, cmd.Context(), list); err != nil {
		return err
	}
	switch {
	case f.format == "json":
		return writeJSON(e.stdout, append([]bpfProgram{}, list...))
	case len(list) == 0:
		fmt.Fprintln(e.stderr, "gantry: no BPF program is loaded")
		return nil
	}
	width := 0
	if f.format == "table" {
		width = tableWidth(e.stdout)
	}
	return writeColumns(e.stdout, f.columns(list, time.Now()), width)
}

// bpfIDs reads ids.
func bpfIDs(args []string) ([]uint32, error) {
	var ids []uint32
	for _, a := range args {
		id, err := strconv.ParseUint(a, 10, 32)
		if err != nil || id == 0 {
			return nil, fmt.Errorf("%q is no id of a BPF program", a)
		}
		ids = append(ids, uint32(id))
	}
	return ids, nil
}

// find reads the programs that are loaded, with what they did in a while.
func (f *bpfListFlags) find(ctx context.Context, ids []uint32) ([]bpfProgram, error) {
	if f.stats == 0 {
		return readBPF(ids)
	}
	counting, err := sys.BPFCountRuns()
	if err != nil {
		return nil, bpfHint(err)
	}
	defer counting.Close()
	before, err := readBPF(ids)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	select {
	case <-time.After(time.Duration(f.stats)):
	case <-ctx.Done():
	}
	list, err := readBPF(ids)
	took := time.Since(begun)
	for i := range list {
		p := &list[i]
		for j := range before {
			if before[j].ID == p.ID {
				p.RunTime -= before[j].RunTime
				p.Runs -= before[j].Runs
			}
		}
		share := 100 * float64(p.RunTime) / float64(took)
		p.CPU = &share
	}
	return list, err
}

// readBPF reads the programs with these ids, or all.
func readBPF(ids []uint32) ([]bpfProgram, error) {
	boot, err := bootTime()
	if err != nil {
		return nil, err
	}
	var list []bpfProgram
	want := func(id uint32) bool { return len(ids) == 0 || slices.Contains(ids, id) }
	err = new(bpfprog.Reader).List(want, func(id uint32, d *bpfprog.Details, err error) error {
		p := bpfProgram{ID: id}
		if err != nil {
			p.Missed = err.Error()
		} else {
			p.fill(d)
			p.Loaded = boot.Add(time.Duration(d.LoadTime))
		}
		list = append(list, p)
		return nil
	})
	if errors.Is(err, os.ErrPermission) {
		err = bpfHint(err)
	}
	return list, err
}

// describe adds who holds the programs, and where they are attached.
func (f *bpfListFlags) describe(e *env, ctx context.Context, list []bpfProgram) error {
	if len(list) == 0 {
		return nil
	}
	fsys := procfs.FS{}
	held, err := bpfprog.Holders(fsys)
	if err != nil {
		return fmt.Errorf("find who holds BPF programs: %w", err)
	}
	var tree *procfs.CgroupTree
	if trees, err := fsys.CgroupTrees(); err == nil {
		tree = trees.Perf()
	}
	at, err := bpfprog.Links(tree)
	if err != nil && len(at) == 0 {
		fmt.Fprintf(e.stderr, "gantry: where programs are attached is not known: %v\n", err)
	}
	r, err := container.NewResolver(nil)
	if err != nil {
		return hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	warnContainers(e.stderr, r.Refresh(ctx))
	names := newBPFNames(r.Table())
	for i := range list {
		p := &list[i]
		p.Attached = append(at[p.ID], held.Attached[p.ID]...)
		for _, l := range held.Holders[p.ID] {
			p.Holders = append(p.Holders, *names.of(&l))
		}
	}
	return nil
}

func (f *bpfListFlags) columns(list []bpfProgram, now time.Time) []column {
	cols := []column{
		{title: "ID", right: true},
		{title: "TYPE"},
		{title: "NAME", cut: cutEnd},
		{title: "AGE", right: true},
		{title: "UID", right: true},
		{title: "SUBS", right: true},
		{title: "HOLDER", cut: cutEnd},
		{title: "CONTAINER", cut: cutEnd},
		{title: "RUNS", right: true},
		{title: "CPU", right: true},
		{title: "ATTACHED", cut: cutEnd},
	}
	for _, p := range list {
		holder, where, runs, share, age := "", "", "", "", ""
		if len(p.Holders) > 0 {
			holder, where = p.Holders[0].String(), p.Holders[0].Container
		}
		if p.Runs > 0 {
			runs = thousands(p.Runs)
		}
		if p.CPU != nil {
			share = fmt.Sprintf("%.2f%%", *p.CPU)
		}
		if !p.Loaded.IsZero() {
			age = ageText(now.Sub(p.Loaded))
		}
		for i, s := range []string{strconv.Itoa(int(p.ID)), p.Type, p.Name, age, strconv.Itoa(int(p.UID)),
			strconv.Itoa(len(p.Subprograms)), holder, where, runs, share, attachText(p.Attached)} {
			cols[i].cells = append(cols[i].cells, container.Printable(s))
		}
	}
	return slices.DeleteFunc(cols, func(c column) bool { return c.title != "ID" && c.empty() })
}
