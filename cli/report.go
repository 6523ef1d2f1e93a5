// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/report"
)

// defaultFile is what record writes and the readers read.
const defaultFile = "perf.data"

// reportFlags are the flags of gantry report as they were typed.
type reportFlags struct {
	readFlags
	format               string
	sort, roots          string
	children, noChildren bool
	callGraph            string
	graph                report.GraphSpec
	noGraph              bool
	inline, noInline     bool
	title                string
	width                int
	opts                 report.Options
	percentage           string
	stdio, showNrSamples bool
	verbose, coverage    bool
}

func newReportCmd(e *env) *cobra.Command {
	f := new(reportFlags)
	cmd := &cobra.Command{
		Use:   "report [flags] [FILE]",
		Short: "show where the time went, by container, program and function",
		Long: `Read a recording and show where the samples fell. Files of gantry record and
of perf record are read alike, also from a pipe (-i -).`,
		Example: `  gantry report                                    everything, by container
  gantry report --sort container,sym -g none       functions per container
  gantry report --container web --no-children      one container
  gantry report -o flame.svg                       a flame graph
  gantry report --coverage                         what has no name, and why`,
		Args: f.readFlags.args,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(e, cmd) },
	}
	f.register(cmd)
	plainFlagErrors(cmd)
	complete(cmd, "format", false, report.FormatNames())
	complete(cmd, "sort", true, report.KeyNames(container.BuiltIn()))
	complete(cmd, "roots", true, report.KeyNames(container.BuiltIn()))
	complete(cmd, "call-graph", true, []string{"graph", "flat", "none", "caller", "callee"})
	complete(cmd, "percentage", false, []string{"absolute", "relative"})
	return cmd
}

func (f *reportFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	x := &f.opts.Filter
	f.readFlags.register(fl, x)
	fl.StringVar(&f.format, "format", "text", "text, json, folded, svg or pprof")
	fl.StringVarP(&f.sort, "sort", "s", "",
		"columns, a list of: "+strings.Join(report.KeyNames(nil), ", ")+
			", or a definition (default container,comm,dso,sym)")
	fl.BoolVar(&f.children, "children", false,
		"count callers with what they call (default if the recording has call chains)")
	fl.BoolVar(&f.noChildren, "no-children", false, "count only where the samples fell")
	fl.StringVarP(&f.callGraph, "call-graph", "g", "",
		"call graph below each line, a list of: graph, flat or none; caller or callee; a number of percent to cut "+
			"it (default graph,0.5,caller if there are call chains, callee with --no-children)")
	fl.Lookup("call-graph").NoOptDefVal = "graph"
	fl.BoolVar(&f.noGraph, "no-call-graph", false, "no call graph, as -g none")
	fl.BoolVar(&f.inline, "inline", false,
		"show calls that the compiler inlined, in call graphs and stacks (default for stacks recorded with "+
			"--call-graph dwarf, and for pprof)")
	fl.BoolVar(&f.noInline, "no-inline", false, "show no inlined calls")
	fl.Float64Var(&f.opts.PercentLimit, "percent-limit", 0, "hide lines below this share, in percent")
	fl.IntVar(&f.opts.MaxEntries, "max-entries", 0, "show at most this many lines per event (0 is all)")
	fl.StringVar(&f.percentage, "percentage", "absolute",
		"with filters: percent of everything (absolute) or of what is shown (relative)")
	fl.BoolVarP(&f.showNrSamples, "show-nr-samples", "N", false, "add a column with the number of samples")
	fl.StringSliceVarP(&x.Comm, "comm", "c", nil, "only threads of these names")
	fl.StringSliceVar(&x.DSO, "dso", nil, "only functions of these objects")
	fl.StringSliceVar(&x.Symbol, "symbol", nil, "only these functions")
	fl.StringSliceVar(&x.Event, "event", nil, "only these events")
	fl.BoolVar(&f.coverage, "coverage", false,
		"show how much has names, where they come from, and what is missing or lost, as text or json")
	fl.StringVar(&f.roots, "roots", "",
		"first levels of flame graphs and folded stacks, as --sort (default container,comm)")
	fl.StringVar(&f.title, "title", "", "title of a flame graph")
	fl.IntVar(&f.width, "width", 0, "columns to fit in (default: the terminal's, else unlimited)")
	fl.BoolVar(&f.stdio, "stdio", false, "text in a terminal as well, which else browses")
	fl.BoolVarP(&f.verbose, "verbose", "v", false,
		"name all binaries without symbols, also those that hardly matter, and how the recording began")
}

func (f *reportFlags) run(e *env, cmd *cobra.Command) error {
	name, err := formatOf(f.output, f.format, cmd.Flags().Changed("format"), report.FormatNames())
	if err != nil {
		return usageError(cmd, err)
	}
	format, err := report.ParseFormat(name)
	if err != nil {
		return usageError(cmd, withHint(err, didYouMean(name, report.FormatNames())))
	}
	if err := f.check(e, cmd, format); err != nil {
		return err
	}
	if f.browses(e, cmd, format) {
		return f.browse(e, cmd)
	}
	r, err := f.open(e, cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	f.adapt(hasCallchains(r.Events()))
	o := &f.opts
	if f.output == "-" && o.Width == 0 {
		o.Width = terminalWidth(e.stdout)
	}
	s := analysis.NewSession(r.Reader, r.options)
	open := isMoreSpecific(r.Reader)
	if err := f.parseKeys(s.Definitions(), open); err != nil {
		return usageError(cmd, err)
	}
	if err := f.choose(cmd, s, open); err != nil {
		return err
	}
	relaxGC(f.coverage || o.NeedsStacks(format))
	p, err := s.Collect(f.collects(format, r.Events()))
	if err != nil {
		return fmt.Errorf("%s: %w", f.input, err)
	}
	if err := f.parseKeys(s.Definitions(), false); err != nil {
		return usageError(cmd, err)
	}
	if err := f.choose(cmd, s, open); err != nil {
		return err
	}
	if len(p.Events) == 0 {
		fmt.Fprintf(e.stderr, "gantry: %s: no samples\n", f.input)
	}
	err = writeOutput(e, f.output, func(w io.Writer) error { return f.write(w, format, p) })
	explainWarnings(e.stderr, f.input, s)
	r.sources.explain(e.stderr)
	explainSnapshot(e.stderr, f.input, r.Features().Gantry, f.verbose)
	explainFilter(e.stderr, f.input, r.Features().Gantry, f.verbose)
	f.explainAmbiguous(e.stderr)
	return cmp.Or(err, f.explain(e, format, p, s, r.Events()))
}

func (f *reportFlags) write(w io.Writer, format report.Format, p *profile.Profile) error {
	if f.coverage {
		return report.WriteCoverage(w, format, p, &f.opts)
	}
	return report.Write(w, format, p, &f.opts)
}

// collects says what the report needs of the recording.
func (f *reportFlags) collects(format report.Format, evs *perf.Events) analysis.CollectOptions {
	o := &f.opts
	if f.coverage {
		return analysis.CollectOptions{
			Fields: o.Filter.Fields() | profile.FieldContainer, Definitions: o.Filter.Definitions(),
			Symbols: true, Stacks: true, Reasons: true,
		}
	}
	return analysis.CollectOptions{
		Fields: o.Fields(format), Definitions: o.Definitions(format), Symbols: o.NeedsSymbols(format),
		Stacks:    o.NeedsStacks(format),
		Addresses: format == report.FormatPprof, Lines: o.NeedsLines(format),
		Inline: f.inlines(format, evs),
	}
}

// check refuses what is wrong without a look at the recording.
func (f *reportFlags) check(e *env, cmd *cobra.Command, format report.Format) error {
	if err := f.parse(); err != nil {
		return usageError(cmd, err)
	}
	if err := f.checkCoverage(cmd, format); err != nil {
		return usageError(cmd, err)
	}
	if format != report.FormatPprof {
		return nil
	}
	return refuseTerminal(e, f.output, "name a file with -o cpu.pb.gz")
}

// checkCoverage refuses what makes no difference to a coverage.
func (f *reportFlags) checkCoverage(cmd *cobra.Command, format report.Format) error {
	if !f.coverage {
		return nil
	}
	if format != report.FormatText && format != report.FormatJSON {
		return fmt.Errorf("--coverage is text or json, not %s", report.FormatNames()[format])
	}
	for _, name := range []string{
		"sort", "children", "no-children", "call-graph", "no-call-graph", "inline", "no-inline", "percent-limit",
		"percentage",
		"show-nr-samples", "roots", "title",
	} {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--coverage has no use for --%s: leave one of them out", name)
		}
	}
	return nil
}

// explain says what the report itself does not: that the filter left nothing,
// and which binaries have no symbols. That nothing is left is an error.
func (f *reportFlags) explain(e *env, format report.Format, p *profile.Profile, s *analysis.Session,
	events *perf.Events) (err error) {
	sel := report.Select(p, format, &f.opts)
	if filter := f.opts.Filter.String(); sel.Samples == 0 && filter != "" && len(p.Events) > 0 {
		err = explainEmpty(e.stderr, f.input, filter, s, events)
	}
	switch {
	case f.verbose:
		explainFailures(e.stderr, s.Unresolved(), 0)
	case f.coverage: // which has them
	default:
		explainFailures(e.stderr, worthNaming(s.Unresolved(), sel.Nameless, sel.Samples), mostFailures)
	}
	return err
}

// relaxGC trades memory for CPU: a report lives for a second, and most of what
// it allocates it keeps. Without stacks there is little of it: at 1600 percent,
// which begins at 64 MiB, a usual report ends before anything is collected.
func relaxGC(stacks bool) {
	if os.Getenv("GOGC") != "" {
		return
	}
	percent := 1600
	if stacks {
		percent = 200
	}
	debug.SetGCPercent(percent)
}

// parse checks the flags that need no recording.
func (f *reportFlags) parse() (err error) {
	o := &f.opts
	if f.children && f.noChildren {
		return errors.New("choose one of --children and --no-children")
	}
	if f.inline && f.noInline {
		return errors.New("choose one of --inline and --no-inline")
	}
	if err := f.parseKeys(nil, true); err != nil {
		return err
	}
	switch f.percentage {
	case "absolute":
	case "relative":
		o.Relative = true
	default:
		return fmt.Errorf("--percentage is absolute or relative, not %q", f.percentage)
	}
	if err := f.checkNumbers(); err != nil {
		return err
	}
	if f.callGraph != "" {
		if f.graph, err = report.ParseGraphSpec(f.callGraph); err != nil {
			return err
		}
	}
	o.ShowSamples, o.Title, o.Width = f.showNrSamples, f.title, f.width
	return f.readFlags.parse()
}

// parseKeys reads --sort and --roots: what of them are definitions, only the
// recording tells.
func (f *reportFlags) parseKeys(defs container.Definitions, open bool) (err error) {
	if f.sort != "" {
		if f.opts.Sort, err = report.ParseKeys(f.sort, defs, open); err != nil {
			return withHint(err, cmp.Or(perfKeyHint(f.sort), keyHint(f.sort, defs)))
		}
	}
	if f.roots != "" {
		f.opts.Roots, err = report.ParseKeys(f.roots, defs, open)
		err = withHint(err, keyHint(f.roots, defs))
	}
	return err
}

// keyHint suggests the sort key that is most like one that does not exist.
func keyHint(keys string, defs container.Definitions) string {
	names := report.KeyNames(defs)
	for key := range strings.SplitSeq(keys, ",") {
		if key = strings.TrimSpace(key); !slices.Contains(names, key) {
			return didYouMean(key, names)
		}
	}
	return ""
}

// checkNumbers refuses what no report can do.
func (f *reportFlags) checkNumbers() error {
	if p := f.opts.PercentLimit; !(p >= 0 && p <= 100) {
		return fmt.Errorf("--percent-limit %v is no share: use 0 to 100", p)
	}
	if err := notNegative("--max-entries", f.opts.MaxEntries); err != nil {
		return err
	}
	return notNegative("--width", f.width)
}

// adapt fills in what the flags leave to the recording.
func (f *reportFlags) adapt(callchains bool) {
	o := &f.opts
	o.Children = f.children || callchains && !f.noChildren
	o.CallGraphLimit = f.graph.Limit
	switch {
	case f.noGraph || f.callGraph == "" && !callchains:
		o.CallGraph = report.CallGraphNone
	case f.graph.Set:
		o.CallGraph = f.graph.Kind
	case o.Children:
		o.CallGraph = report.CallGraphCaller
	default:
		o.CallGraph = report.CallGraphCallee
	}
}

// joinGraph joins "-g caller" to "-g=caller" behind the word report: the
// value of -g is optional, as perf has it, and pflag takes one only if it is
// joined. Reports take no arguments, so that what is no flag is the value. The
// shell asks for completions of the same line.
func joinGraph(args []string) []string {
	words := args
	if len(words) > 0 && strings.HasPrefix(words[0], cobra.ShellCompRequestCmd) {
		words = words[1:]
	}
	if len(words) == 0 || words[0] != "report" {
		return args
	}
	out := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		if (args[i] == "-g" || args[i] == "--call-graph") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			out = append(out, args[i]+"="+args[i+1])
			i++
			continue
		}
		out = append(out, args[i])
	}
	return out
}

// inlines reports whether inlined calls are shown. As in perf, that is so for
// stacks that were unwound from memory, unless it is asked for.
func (f *reportFlags) inlines(format report.Format, evs *perf.Events) bool {
	if f.inline || f.noInline {
		return f.inline
	}
	return format == report.FormatPprof || hasDumps(evs)
}

// hasDumps reports whether user stacks were recorded as memory.
func hasDumps(evs *perf.Events) bool {
	for _, ev := range evs.List() {
		if ev.Attr.SampleType&perf.SampleStackUser != 0 {
			return true
		}
	}
	return false
}

func hasCallchains(evs *perf.Events) bool {
	for _, ev := range evs.List() {
		if ev.Attr.SampleType&perf.SampleCallchain != 0 {
			return true
		}
	}
	return false
}

// openRecording opens a recording for reading; "-" is stdin.
func openRecording(path string, stdin io.Reader) (*perfdata.Reader, error) {
	if path == "-" && stdin != os.Stdin {
		return perfdata.NewPipeReader(stdin, nil)
	}
	if isText(path) {
		return openText(path)
	}
	r, err := perfdata.Open(path, nil)
	if err == nil {
		return r, nil
	}
	if os.IsNotExist(err) {
		return nil, hint.Wrap(fmt.Errorf("no recording: %w", err),
			"record one with 'gantry record', or name it with -i FILE, or -i - for standard input")
	}
	if os.IsPermission(err) {
		return nil, hint.Wrap(err, "recordings belong to who made them: use sudo, or chown the file")
	}
	if errors.Is(err, syscall.EMFILE) {
		return nil, err
	}
	if path == "-" {
		return nil, hint.Wrap(err,
			"give what 'gantry record -o -' or 'perf record -o -' writes, or the path of a file with -i")
	}
	return nil, hint.Wrap(err, "give a file made by 'gantry record' or 'perf record'")
}

// terminalWidth is the number of columns of w, 0 if it is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// isTerminal tells a terminal, also one that does not know its size.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// refuseTerminal refuses to write bytes that are no text to a terminal.
func refuseTerminal(e *env, path, text string) error {
	if path != "-" || !isTerminal(e.stdout) {
		return nil
	}
	return hint.Wrap(errors.New("standard output is a terminal"), text)
}
