// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// snapshotFlags are the flags of gantry snapshot.
type snapshotFlags struct {
	selectors   selectorFlags
	pids        string
	format      string
	output      string
	maps, quiet bool
	definitions definitionFlags
}

func newSnapshotCmd(e *env) *cobra.Command {
	f := new(snapshotFlags)
	cmd := &cobra.Command{
		Use:   "snapshot [flags]",
		Short: "tell what runs now, as a recording begins",
		Long: `Tell what runs now: processes, threads, namespaces and what they have mapped
executable, as gantry record tells it when a recording begins.

With -o FILE, the status records themselves are written into a perf.data file,
which gantry script --raw and perf script --show-mmap-events print.`,
		Example: `  gantry snapshot                        the processes of this machine
  gantry snapshot --maps --container web and what those of one have mapped
  gantry snapshot --format json -p 1     one process with all that is known
  gantry snapshot -o perf.data           status records into a file`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			return f.run(e, cmd)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.selectors.register(fl)
	fl.StringVarP(&f.pids, "pid", "p", "", "only these processes: `PIDS` by comma")
	fl.StringVar(&f.format, "format", "text",
		"text, json, or data: status records as perf.data (the format of -o FILE)")
	fl.StringVarP(&f.output, "output", "o", "", "`FILE` to write, - for standard output")
	fl.BoolVar(&f.maps, "maps", false, "in text, list what is mapped executable too")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but errors")
	f.definitions.register(fl)
	complete(cmd, "format", false, snapshotFormats())
	return cmd
}

func (f *snapshotFlags) run(e *env, cmd *cobra.Command) error {
	if err := f.parseFormat(cmd); err != nil {
		return usageError(cmd, err)
	}
	file := f.format == "data"
	if f.maps && f.format != "text" {
		return usageError(cmd, fmt.Errorf("--maps is for text; %s has the mappings anyway", f.format))
	}
	if err := f.selectors.parse(); err != nil {
		return usageError(cmd, err)
	}
	pids, err := numberList(f.pids)
	if err != nil {
		return usageError(cmd, fmt.Errorf("-p: %w", err))
	}
	if len(pids) > 0 && f.selectors.given() {
		return usageError(cmd, errors.New("-p cannot be combined with --container"))
	}
	defs, err := f.definitions.load(cmd)
	if err != nil {
		return err
	}
	r, err := container.NewResolver(&container.ResolverOptions{Sockets: f.definitions.sockets})
	if err != nil {
		return hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	var warnings []container.Warning
	if !file || f.selectors.given() { // a file gets the names when it is written
		warnings = r.Refresh(cmd.Context())
	}
	if err := cmd.Context().Err(); err != nil {
		return fmt.Errorf("find containers: %w", err)
	}
	chosen, err := newTaskChoice(r, defs, &f.selectors)
	if err != nil {
		return blindError(err, warnings)
	}
	scope := snapshot.Scope{PIDs: pids, All: len(pids) == 0}
	var source *snapshot.Choice
	if scope.All {
		source = snapshot.Choose(procfs.FS{})
	} else {
		source = snapshot.ChooseProc(procfs.FS{})
	}
	defer source.Close()
	f.refusals(e, source)
	if file {
		return f.write(e, cmd.Context(), &capture.SnapshotOptions{
			Source: source, Scope: scope, Want: chosen.want(), CmdLine: append([]string{"gantry"}, os.Args[1:]...),
			Version: version, Resolver: r, Definitions: defs,
		})
	}
	return writeOutput(e, f.output, func(w io.Writer) error {
		to := *e
		to.stdout = w
		return f.show(&to, cmd.Context(), source, scope, chosen)
	})
}

func snapshotFormats() []string { return []string{"text", "json", "data"} }

// parseFormat settles what is written where: -o FILE alone has records. Up to
// gantry 0.1 -o was text or json, too.
func (f *snapshotFlags) parseFormat(cmd *cobra.Command) (err error) {
	given := cmd.Flags().Changed("format")
	switch {
	case !given && (f.output == "text" || f.output == "json"):
		f.format, f.output = f.output, ""
	case !given && f.output != "":
		f.format = "data"
		if format, err := formatOf(f.output, "data", false, snapshotFormats()); err == nil {
			f.format = format
		}
	}
	if !slices.Contains(snapshotFormats(), f.format) {
		return withHint(fmt.Errorf("unknown format %q: text, json or data", f.format),
			didYouMean(f.format, snapshotFormats()))
	}
	if given {
		_, err = formatOf(f.output, f.format, true, snapshotFormats())
	}
	if f.output == "" {
		if f.output = "-"; f.format == "data" {
			f.output = defaultFile
		}
	}
	return err
}

// refusals says that there is a better way to look.
func (f *snapshotFlags) refusals(e *env, c *snapshot.Choice) {
	for _, no := range c.Refused {
		if no.Method == snapshot.ByBPF && !f.quiet {
			fmt.Fprintf(e.stderr, "gantry: what runs is read from /proc, which can miss short processes: %s\n", no.Why)
			if c.Hint != "" {
				fmt.Fprintf(e.stderr, "hint: %s\n", c.Hint)
			}
		}
	}
}

// write writes the records into a file.
func (f *snapshotFlags) write(e *env, ctx context.Context, o *capture.SnapshotOptions) error {
	rec := recordFlags{output: f.output}
	out, err := rec.open(e)
	if err != nil {
		return err
	}
	relaxGC(false) // what is read is written, and not kept
	res, err := capture.WriteSnapshot(ctx, o, out.Output)
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return errors.Join(err, out.putBack(f.output))
	}
	if err := f.nobody(o.Scope, &res.Stats); err != nil {
		return errors.Join(err, out.putBack(f.output))
	}
	f.summary(e, &res.Stats, " into "+into(f.output))
	return nil
}

// into is where records go, for people.
func into(output string) string {
	if output == "-" {
		return "standard output"
	}
	return filepath.Clean(output)
}

// show shows the snapshot as text or JSON.
func (f *snapshotFlags) show(e *env, ctx context.Context, source snapshot.Source, scope snapshot.Scope,
	chosen *taskChoice) error {
	v := &snapshotView{choice: chosen, at: make(map[int32]*processView)}
	stats, err := source.Take(ctx, scope, v.sink())
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	v.Stats = stats
	v.sort()
	if err := f.nobody(scope, &stats); err != nil {
		return err
	}
	if f.format == "json" {
		return v.writeJSON(e.stdout)
	}
	if err := v.writeText(e.stdout, f.maps); err != nil {
		return err
	}
	f.summary(e, &stats, "")
	return nil
}

// nobody: none of the chosen processes is there.
func (f *snapshotFlags) nobody(scope snapshot.Scope, stats *snapshot.Stats) error {
	switch {
	case stats.Processes > 0:
		return nil
	case !scope.All && stats.Denied > 0:
		return hint.Wrap(errors.New("the processes belong to another user"), "run as root")
	case !scope.All:
		return hint.Wrap(errors.New("none of the processes runs"), "choose one that runs (ps -e)")
	}
	return hint.Wrap(errors.New("nothing of what was chosen runs"), "'gantry containers' lists what runs")
}

// summary says what was found.
func (f *snapshotFlags) summary(e *env, s *snapshot.Stats, more string) {
	if f.quiet {
		return
	}
	fmt.Fprintf(e.stderr, "[ gantry snapshot: %s, %s, %s, by %s%s ]\n", plural(s.Processes, "process", "processes"),
		plural(s.Threads, "more thread", "more threads"), plural(s.Mappings, "mapping", "mappings"), s.Method, more)
	for _, n := range []struct {
		n   int
		why string
	}{{s.Gone, "ended meanwhile"}, {s.Denied, "cannot be read by this user"}, {s.Unreadable, "cannot be read"}} {
		if n.n > 0 {
			fmt.Fprintf(e.stderr, "gantry: %s %s\n", plural(n.n, "process", "processes"), n.why)
		}
	}
	if len(s.HeldUp) > 0 {
		fmt.Fprintf(e.stderr, "gantry: the mappings of %s are not known (%s): they are locked, as while one waits "+
			"for a "+
			"file system\n", plural(len(s.HeldUp), "process", "processes"), pidList(s.HeldUp))
	}
	if s.TimedOut > 0 {
		fmt.Fprintf(e.stderr, "gantry: no build-id of %s: the file system did not answer in time\n",
			plural(s.TimedOut, "mapped file", "mapped files"))
	}
}
