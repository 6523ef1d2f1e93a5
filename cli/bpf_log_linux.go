// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture/bpfprog"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// bpfLogFlags are the flags of gantry bpf log.
type bpfLogFlags struct {
	input string
	formatFlags
	follow bool
}

func newBPFLogCmd(e *env) *cobra.Command {
	f := new(bpfLogFlags)
	cmd := &cobra.Command{
		Use:   "log [flags]",
		Short: "tell when BPF programs were loaded and unloaded",
		Long: `Tell when BPF programs were loaded and unloaded, and by whom: in a recording, or
with --follow on the running system, until Ctrl-C.

A line has the time, load or unload, the program's id, type and name, who loaded
it and its container; and why its details are missing, if they are.`,
		Example: `  gantry bpf log                    of perf.data
  gantry bpf log -i web.data --format json
  gantry bpf log --follow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if f.follow && cmd.Flags().Changed("input") {
				return usageError(cmd, errors.New("--follow is of the running system, -i of a recording"))
			}
			return f.formatFlags.run(e, cmd, func(e *env) error {
				if f.follow {
					return f.live(e, cmd)
				}
				return f.read(e)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.input, "input", "i", "perf.data", "read from `FILE`, or - for standard input")
	fl.BoolVar(&f.follow, "follow", false, "of the running system, as it happens")
	f.formatFlags.register(cmd, "text", "json")
	fl.Lookup("format").Usage = "text, or json, an object a line"
	return cmd
}

// bpfLogEntry is a line of the log.
type bpfLogEntry struct {
	Time   time.Time `json:"time"`
	Action string    `json:"action"` // load, unload
	bpfProgram
}

func (f *bpfLogFlags) write(w io.Writer, x *bpfLogEntry) error {
	if f.format == "json" {
		return json.NewEncoder(w).Encode(x)
	}
	var tail string
	if x.Loader != nil {
		tail = "  by " + x.Loader.String()
		if x.Loader.Container != "" {
			tail += " in " + container.Printable(x.Loader.Container)
		}
	}
	if x.Missed != "" {
		tail += "  no details: " + container.Printable(x.Missed)
	}
	_, err := fmt.Fprintf(w, "%s  %-6s  %6d  %-16s %s%s\n", x.Time.Local().Format("2006-01-02 15:04:05.000000"),
		x.Action, x.ID,
		cmp.Or(x.Type, "?"), container.Printable(cmp.Or(x.Name, x.Tag)), tail)
	return err
}

// entry makes a line of what is known of a program.
func (n *bpfNames) entry(l *perfdata.BPFProgramLife, d *bpfprog.Details, wall func(uint64) time.Time) bpfProgram {
	p := bpfProgram{ID: l.ID, Name: l.Name, Tag: l.Tag, UID: l.UID, Before: l.Before, Attached: l.Attached,
		Route: l.Route, Missed: l.Missed}
	if l.Type != 0 {
		p.Type = perfdata.BPFTypeName(l.Type)
	}
	if d != nil {
		p.fill(d)
	}
	p.Loader = n.of(l.Loader)
	if l.Loaded != 0 {
		p.Loaded = wall(l.Loaded)
	}
	if l.Unloaded != 0 {
		p.Unloaded = wall(l.Unloaded)
	}
	return p
}

// live follows the running system.
func (f *bpfLogFlags) live(e *env, cmd *cobra.Command) error {
	r, err := container.NewResolver(nil)
	if err != nil {
		return hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	warnContainers(e.stderr, r.Refresh(cmd.Context()))
	mono, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	began := time.Now().Add(-mono)
	boot, err := sys.ClockBoottime.Now()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	t := &bpfLogger{f: f, to: e.stdout, ctx: ctx, cancel: cancel, containers: r, names: newBPFNames(r.Table()),
		wall: func(ns uint64) time.Time { return began.Add(time.Duration(ns)) }, programs: bpfprog.NewProgramTable()}
	w, err := bpfprog.OpenWatcher(bpfprog.WatchOptions{Table: t.programs, Load: t.load, Unload: t.unload})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Start(uint64(max(boot-mono, 0))); err != nil {
		return err
	}
	if err := w.Refused(); err != nil {
		fmt.Fprintf(e.stderr, "gantry: BPF programs that live less than a millisecond may be missed: %v\n", err)
	}
	if err := w.ReadAll(); err != nil {
		fmt.Fprintf(e.stderr, "gantry: %v\n", bpfHint(err))
	}
	fmt.Fprintln(e.stderr, "gantry: following BPF programs; Ctrl-C ends it")
	err = w.Run(ctx)
	sumUpBPF(e.stderr, t.programs.Tally())
	return errors.Join(err, t.failed)
}

// sumUpBPF says what of programs could not be told.
func sumUpBPF(w io.Writer, t bpfprog.Tally) {
	for _, n := range t.Notes {
		fmt.Fprintf(w, "gantry: BPF programs: %s\n", container.Printable(n))
	}
	if n := t.Lost + t.Forgot; n > 0 {
		fmt.Fprintf(w, "gantry: %s records of BPF programs were lost\n", thousands(n))
	}
}

// bpfLogger writes loads and unloads as they happen.
type bpfLogger struct {
	f          *bpfLogFlags
	to         io.Writer
	ctx        context.Context
	cancel     context.CancelFunc // when writing has failed
	containers *container.Resolver
	names      *bpfNames
	wall       func(uint64) time.Time
	programs   *bpfprog.ProgramTable
	failed     error
}

func (t *bpfLogger) load(id uint32) { t.log("load", id) }

func (t *bpfLogger) unload(id uint32) { t.log("unload", id) }

func (t *bpfLogger) log(action string, id uint32) {
	p, ok := t.programs.Program(id)
	if !ok || t.failed != nil {
		return
	}
	x := bpfLogEntry{Action: action, bpfProgram: t.names.entry(&p.BPFProgramLife, p.Details, t.wall)}
	x.Time = x.Loaded
	if action == "unload" {
		x.Time = x.Unloaded
		t.programs.Forget(id)
	}
	if l := p.Loader; l != nil && l.Cgroup != 0 && x.Loader.Container == "" {
		t.containers.Refresh(t.ctx) // a new one
		x.Loader = t.names.of(l)
	}
	t.write(&x)
}

func (t *bpfLogger) write(x *bpfLogEntry) {
	if t.failed = t.f.write(t.to, x); t.failed != nil {
		t.cancel()
	}
}

// read tells of a recording.
func (f *bpfLogFlags) read(e *env) error {
	rec, err := readBPFRecording(e, f.input)
	if err != nil {
		return err
	}
	var list []bpfLogEntry
	for _, p := range rec.programs {
		if !p.Loaded.IsZero() && !p.Before {
			list = append(list, bpfLogEntry{p.Loaded, "load", p.bpfProgram})
		}
		if !p.Unloaded.IsZero() {
			list = append(list, bpfLogEntry{p.Unloaded, "unload", p.bpfProgram})
		}
	}
	slices.SortStableFunc(list, func(a, b bpfLogEntry) int { return a.Time.Compare(b.Time) })
	for i := range list {
		if err := f.write(e.stdout, &list[i]); err != nil {
			return err
		}
	}
	if len(list) == 0 {
		fmt.Fprintln(e.stderr, "gantry: no BPF program was loaded or unloaded")
	}
	return nil
}
