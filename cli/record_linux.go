// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/tracens/samples"
)

// recordFlags are the flags of gantry record, as the user wrote them.
type recordFlags struct {
	events, cgroups            []string
	freq, ring, callGraph      string
	cpus, pids, tids           string
	output, buildIDDir         string
	namespaces                 string
	sources                    []*samples.Source
	period                     countValue
	compress                   levelValue
	duration                   timeValue
	all, graph, quiet, verbose bool
	noBuildID, wait, trim      bool
	noBPFEvent                 bool
	switching                  switchValue
	maxFiles                   int
	maxSize                    sizeValue
	definitions                definitionFlags
	selectors                  selectorFlags

	notes []string // found while reading the flags
}

func newRecordCmd(e *env) *cobra.Command {
	f := new(recordFlags)
	cmd := &cobra.Command{
		Use:   "record [flags] [--] [COMMAND [ARG]...]",
		Short: "record samples into a perf.data file",
		Long: `Record samples into a perf.data file, which gantry report and perf report read.

Without a target the whole machine is recorded until Ctrl-C, with a command
that command and its children. With a target and a command the target is
recorded for as long as the command runs. Samples of other containers are left
out in the kernel; those of containers that start later are in.`,
		Example: `  gantry record -g --duration 10s             the whole machine for ten seconds
  gantry record -g -- make -j4                a command and its children
  gantry record -g --container web            one container, by name or id
  gantry record -g --container 'web-*' --wait those that start later, too
  gantry record -g --container pod:any        whatever is in a pod
  gantry record -e sched:sched_switch -p 1234 a tracepoint of one process
  gantry record -e uprobe:/bin/bash:readline  calls of a function of a file
  gantry record -e cpu-clock,user_events.shop:request    user events as well
  gantry record -g -o - --duration 5s | gantry report -i -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.run(e, cmd, args)
			var command *capture.CommandError
			if errors.As(err, &command) {
				err = &exitError{code: command.ExitCode(), err: err}
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false) // what follows the command is its own
	f.register(cmd)
	return cmd
}

func (f *recordFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.events, "event", "e", nil,
		"`EVENT`s as perf spells them: cpu-clock, {a,b}:S, sched:sched_switch")
	fl.StringVar(&f.namespaces, "ns-dir", defaultNamespaces,
		"`DIR` of tracing namespaces, for user_events.NS:EVENT")
	fl.StringVarP(&f.freq, "freq", "F", "", "`HZ` samples a second, or max (default 4000)")
	fl.VarP(&f.period, "count", "c", "a sample every `N` events")
	fl.BoolVarP(&f.graph, "stacks", "g", false, "record stacks by frame pointers")
	fl.StringVar(&f.callGraph, "call-graph", "", "record stacks: `MODE` is fp or dwarf[,SIZE]")
	fl.BoolVar(&f.trim, "trim-stacks", false, "with --call-graph dwarf: leave out what is empty of each stack")
	fl.BoolVarP(&f.all, "all-cpus", "a", false, "the whole machine (the default)")
	fl.StringVarP(&f.pids, "pid", "p", "", "these processes and the children they will have: `PIDS` by comma")
	fl.StringVarP(&f.tids, "tid", "t", "", "these threads: `TIDS` by comma")
	fl.StringVarP(&f.cpus, "cpu", "C", "", "only these `CPUS`: 0-3,8")
	f.selectors.register(fl)
	fl.BoolVar(&f.wait, "wait", false, "accept a --container that does not run yet")
	fl.StringArrayVar(&f.cgroups, "cgroup", nil, "only the cgroup with this `PATH` and those below it")
	f.definitions.register(fl)
	fl.StringVarP(&f.output, "output", "o", "perf.data", "write to `FILE`, or - for a stream to standard output")
	fl.Var(&f.duration, "duration", "stop after `TIME`: 5s, 2m")
	fl.Var(&f.switching, "switch-output", "go on in another file after a time or size: `=30s`, =100M; at SIGUSR2")
	fl.Lookup("switch-output").NoOptDefVal = switchSignal
	fl.IntVar(&f.maxFiles, "max-files", 0, "with --switch-output: keep the last `N` files")
	fl.Var(&f.maxSize, "max-size", "stop when all files together have this `SIZE`: 2G")
	fl.StringVarP(&f.ring, "mmap-pages", "m", "", "a CPU's ring for samples: `SIZE` such as 4M, or pages")
	fl.VarP(&f.compress, "compression-level", "z", "compress with zstd, level 1 to 22: -z=3")
	fl.Lookup("compression-level").NoOptDefVal = "1"
	fl.StringVar(&f.buildIDDir, "buildid-dir", "", "keep binaries of containers in `DIR` (default ~/.debug)")
	fl.BoolVar(&f.noBuildID, "no-buildid-cache", false, "do not keep binaries")
	fl.BoolVar(&f.noBPFEvent, "no-bpf-event", false, "do not record BPF programs that come and go")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing but errors")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "say more about what is recorded, kept and lost")
}

func (f *recordFlags) run(e *env, cmd *cobra.Command, args []string) error {
	opts, err := f.options(e, cmd, args)
	if err != nil {
		return err
	}
	defer opts.PMUs.Close()
	defer closeSources(f.sources)
	release, note := useAgent(opts)
	defer release()
	if note != "" {
		f.notes = append(f.notes, note)
	}
	say := newRecordReport(e.stderr, f)
	parts := &segments{flags: f, say: say}
	parts.options(opts)
	var watched func(capture.Progress)
	opts.Progress = func(p capture.Progress) { say.progress(p); watched(p) }
	r, err := capture.Open(*opts)
	if err != nil {
		return f.levelHint(args, err)
	}
	defer r.Close()
	out, err := f.open(e)
	if err != nil {
		return err
	}
	parts.out = out
	// Only now: an error is one line and its hint.
	for _, n := range append(f.notes, r.Notes()...) {
		say.note(n)
	}
	if len(args) == 0 && f.duration == 0 {
		say.endless()
	}
	if len(args) > 0 {
		defer watchSignals(cmd.Context(), r, say)()
	}
	ctx, watched, stop := parts.watch(cmd.Context(), r.Cut)
	res, err := r.Run(ctx, out.Output)
	stop()
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		failure := say.failure(res, err, f.output)
		if nothing(res, err, f.output) {
			failure = errors.Join(failure, out.putBack(f.output))
		}
		return failure
	}
	into, err := parts.end()
	if err != nil {
		return err
	}
	say.result(res, into)
	pruneStore(e.stderr, f.definitions.config, opts.Store)
	return childStatus(res, res.TimeUp || say.ended)
}

// levelHint: in "-z 3" the 3 is taken for the command.
func (f *recordFlags) levelHint(args []string, err error) error {
	var command *capture.CommandError
	if !errors.As(err, &command) || f.compress == 0 || len(args) == 0 {
		return err
	}
	if _, e := strconv.Atoi(args[0]); e != nil {
		return err
	}
	return hint.Wrap(err, fmt.Sprintf("write -z=%s if it is the level of compression", args[0]))
}

// childStatus passes the command's status on. A command that was ended because the time
// was up, or the file large enough, has done nothing wrong.
func childStatus(res *capture.Result, enough bool) error {
	if c := &res.Child; c.Ran && c.Code != 0 && !(c.Stopped && enough) {
		return &exitError{code: c.Code}
	}
	return nil
}

// recordReport is what gantry record says on stderr.
type recordReport struct {
	w              io.Writer
	quiet, verbose bool
	live           bool // stderr is a terminal
	ended          bool // by --max-size
	shown          time.Time

	mu    sync.Mutex // the progress line may be overtaken by a signal
	width int
}

func newRecordReport(w io.Writer, f *recordFlags) *recordReport {
	return &recordReport{w: w, quiet: f.quiet, verbose: f.verbose, live: !f.quiet && terminalWidth(w) > 0}
}

func (r *recordReport) note(s string) {
	if !r.quiet {
		fmt.Fprintf(r.w, "gantry: %s\n", s)
	}
}

// endless says how a recording ends that nothing else will end.
func (r *recordReport) endless() {
	if r.live {
		r.note("recording, Ctrl-C ends it")
	}
}

// longRecording is from when on progress is shown.
const longRecording = 3 * time.Second

func (r *recordReport) progress(p capture.Progress) {
	if !r.live || p.Elapsed < longRecording || time.Since(r.shown) < time.Second {
		return
	}
	r.shown = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	line := fmt.Sprintf("[ %s  %s samples  %s  %s lost  %s ]", p.Elapsed.Round(time.Second),
		thousands(p.Samples), byteSize(p.Bytes), thousands(p.Lost), plural(p.Containers, "container", "containers"))
	fmt.Fprintf(r.w, "\r%-*s", r.width, line)
	r.width = len(line)
}

// clear removes the progress line.
func (r *recordReport) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.width > 0 {
		fmt.Fprintf(r.w, "\r%*s\r", r.width, "")
		r.width = 0
	}
}

// failure is err with how many samples there are nevertheless.
func (r *recordReport) failure(res *capture.Result, err error, output string) error {
	r.clear()
	var command *capture.CommandError
	if res == nil || errors.As(err, &command) {
		return err
	}
	n, err2 := countSamples(output)
	if err2 != nil {
		return fmt.Errorf("%w (about %s samples were written)", err, thousands(res.Written))
	}
	return fmt.Errorf("%w (%s samples can be read)", err, thousands(n))
}

// maxCounted bounds the file whose samples are counted after an error.
const maxCounted = 256 << 20

// countSamples reads a file that was not written to its end.
func countSamples(path string) (n uint64, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxCounted {
		return 0, fmt.Errorf("count samples of %s: %w: no file, or too large", path, errors.ErrUnsupported)
	}
	in, err := perfdata.Open(path, nil)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for {
		rec, err := in.Next()
		if err != nil {
			return n, nil // what comes after it nobody can read
		}
		if rec.Type == perf.RecordSample {
			n++
		}
	}
}

func (r *recordReport) result(res *capture.Result, output string) {
	r.clear()
	if r.quiet {
		return
	}
	for _, n := range res.Notes {
		r.note(n)
	}
	if r.verbose {
		warnContainers(r.w, res.Warnings)
	}
	if res.Samples == 0 && res.Lost == 0 && !res.Foreign {
		r.note("no samples: what was recorded did not run in that time, or its events did not happen")
	}
	r.losses(res)
	r.filtered(res.Filtered)
	r.binaries(&res.Binaries)
	into := output
	if output == "-" {
		into = "standard output"
	}
	from := ""
	if res.Containers > 0 {
		from = " from " + plural(res.Containers, "container", "containers")
	}
	fmt.Fprintf(r.w, "[ gantry record: captured %s (%s samples, %s lost)%s into %s ]\n",
		byteSize(res.Bytes), thousands(res.Samples), thousands(res.Lost), from, into)
}

// maxLosers is how many containers with losses are named.
const maxLosers = 5

func (r *recordReport) losses(res *capture.Result) {
	if res.LostSideband > 0 {
		r.note(fmt.Sprintf("%s records about tasks and mappings were lost: some functions may have no name",
			thousands(res.LostSideband)))
	}
	if res.Lost == 0 {
		return
	}
	r.note(fmt.Sprintf("%s samples were lost (%.1f %%): larger rings (-m) or fewer samples (-F) help",
		thousands(res.Lost), 100*float64(res.Lost)/float64(res.Lost+res.Samples)))
	for i, l := range res.LostBy {
		if i == maxLosers && !r.verbose {
			r.note(fmt.Sprintf("  and %d more (-v)", len(res.LostBy)-i))
			return
		}
		r.note(fmt.Sprintf("  %s while %s ran", thousands(l.Lost), l.Label))
	}
}

// filtered says what was left out, and what could not be told apart.
func (r *recordReport) filtered(s *capture.Filtered) {
	if s == nil {
		return
	}
	if s.Undecided > 0 {
		r.note(fmt.Sprintf("%s of containers that had no name in time: kept, and gantry report --container leaves "+
			"them out",
			plural(int(s.Undecided), "sample", "samples")))
	}
	if !r.verbose {
		return
	}
	r.note(fmt.Sprintf("samples of other tasks left out: %s in the kernel, %s by the recorder", thousands(s.Kernel),
		thousands(s.Dropped)))
	if s.Unknown > 0 {
		r.note(fmt.Sprintf("%s samples dropped: container unknown (no record of the task, which exited before "+
			"/proc was read)",
			thousands(s.Unknown)))
	}
}

func (r *recordReport) binaries(b *binaries.Summary) {
	if r.verbose {
		r.note(fmt.Sprintf("binaries: %d of the host, %d of containers kept; %s kept", b.Host, b.Kept,
			plural(b.Code, "perf map or jitdump", "perf maps and jitdumps")))
	}
	missing := 0
	var why []string
	for reason, n := range b.Missing {
		missing += n
		why = append(why, fmt.Sprintf("%s: %d", reason, n))
	}
	if missing == 0 {
		return
	}
	slices.Sort(why)
	r.note(fmt.Sprintf("%s not kept (%s)", plural(missing, "binary", "binaries"), strings.Join(why, ", ")))
}
