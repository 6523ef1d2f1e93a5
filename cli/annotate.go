// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/view/annotate"
	"github.com/gantry-tools/gantry/view/report"
)

// annotateFlags are the flags of gantry annotate as they were typed.
type annotateFlags struct {
	readFlags
	format  string
	stdio   bool
	objdump string
	opts    annotate.Options
}

func newAnnotateCmd(e *env) *cobra.Command {
	f := new(annotateFlags)
	cmd := &cobra.Command{
		Use:   "annotate [flags] [SYMBOL...]",
		Short: "show functions instruction by instruction, with source and samples",
		Long: `Show the machine code of functions with the samples that fell on each
instruction, the source lines it was made of, and where it leads. SYMBOL is the
name of a function, with * for any text; without one, all functions with at
least 1 % of the samples are shown, the heaviest first.

Binaries are found by their build-id. BPF programs are shown as they were when
they ran, also after they were unloaded.`,
		Example: `  gantry annotate main.work                     one function
  gantry annotate --container web               of one container
  gantry annotate 'bpf_prog_*_handle_exec'      a BPF program
  gantry annotate --format json work            for other programs`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(e, cmd, args) },
	}
	f.register(cmd)
	plainFlagErrors(cmd)
	complete(cmd, "format", false, []string{"text", "json"})
	return cmd
}

func (f *annotateFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	x := &f.opts.Filter
	f.readFlags.register(fl, x)
	fl.StringVar(&f.format, "format", "text", "text or json")
	fl.StringSliceVarP(&x.Symbol, "symbol", "s", nil, "the same as SYMBOL")
	fl.Float64Var(&f.opts.PercentLimit, "percent-limit", 0,
		"hide functions below this share of their event, in percent (default 1 without SYMBOL, else 0)")
	fl.StringSliceVar(&x.Event, "event", nil, "only these events")
	fl.StringSliceVarP(&x.DSO, "dso", "d", nil, "only functions of these objects")
	fl.StringSliceVar(&x.Comm, "comm", nil, "only threads of these names")
	fl.BoolVar(&f.opts.NoSource, "no-source", false, "show no text of source lines, only file and number")
	fl.StringVar(&f.objdump, "objdump", defaultObjdump,
		"`PROGRAM` that shows instructions unknown to gantry, none for none")
	fl.IntVar(&f.opts.Width, "width", 0, "columns to fit in (default: the terminal's, else unlimited)")
	fl.BoolVar(&f.stdio, "stdio", false, "plain text, as always (for users of perf)")
}

func (f *annotateFlags) run(e *env, cmd *cobra.Command, args []string) error {
	if err := f.parse(cmd, args); err != nil {
		return usageError(cmd, err)
	}
	r, err := f.open(e, cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	o := &f.opts
	if f.output == "-" && o.Width == 0 {
		o.Width = terminalWidth(e.stdout)
	}
	s := analysis.NewSession(r.Reader, r.options)
	if err := f.choose(cmd, s, isMoreSpecific(r.Reader)); err != nil {
		return err
	}
	p, err := s.Collect(analysis.CollectOptions{
		Fields: o.Filter.Fields(), Definitions: o.Filter.Definitions(), Symbols: true, Addresses: true, Places: true,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", f.input, err)
	}
	if err := f.choose(cmd, s, false); err != nil {
		return err
	}
	o.Skid = skids(r.Events())
	if o.Disassemble, err = f.disassembler(); err != nil {
		return err
	}
	list, hidden := annotate.Functions(p, s, o)
	arch := perf.ArchOf(s.Machine())
	err = writeOutput(e, f.output, func(w io.Writer) error { return f.write(e, w, list, arch) })
	explainWarnings(e.stderr, f.input, s)
	r.sources.explain(e.stderr)
	f.explainAmbiguous(e.stderr)
	return cmp.Or(err, f.explain(e, p, s, len(list), hidden))
}

// parse checks the flags.
func (f *annotateFlags) parse(cmd *cobra.Command, args []string) error {
	x := &f.opts.Filter
	x.Symbol = append(x.Symbol, args...)
	if f.format != "text" && f.format != "json" {
		return fmt.Errorf("--format is text or json, not %q", f.format)
	}
	if p := f.opts.PercentLimit; !(p >= 0 && p <= 100) {
		return fmt.Errorf("--percent-limit %v is no share: use 0 to 100", p)
	}
	if !cmd.Flags().Changed("percent-limit") && len(x.Symbol) == 0 {
		f.opts.PercentLimit = 1
	}
	if err := notNegative("--width", f.opts.Width); err != nil {
		return err
	}
	return f.readFlags.parse()
}

func (f *annotateFlags) write(e *env, w io.Writer, list []*annotate.Function, arch perf.Arch) error {
	if f.format == "json" {
		return annotate.JSON(w, list, arch, &f.opts)
	}
	reported := make(map[string]bool)
	for _, fn := range list {
		l := annotate.List(fn, arch, &f.opts)
		if err := annotate.Text(w, l, &f.opts); err != nil {
			return err
		}
		if l.Err != nil && !reported[fn.Path] {
			reported[fn.Path] = true
			explainNoCode(e.stderr, l)
		}
	}
	return nil
}

// explainNoCode says how to get the code of a function.
func explainNoCode(stderr io.Writer, l *annotate.Listing) {
	what := fmt.Sprintf("%s of %s", l.Name, l.Path)
	if !l.BuildID.IsZero() {
		what += fmt.Sprintf(" (build-id %s)", l.BuildID)
	}
	h := hint.Of(l.Err)
	switch {
	case h != "":
	case errors.Is(l.Err, analysis.ErrKernelCode):
		h = "add the kernel's vmlinux with 'gantry buildid add FILE', or ask for it with --debuginfod"
	case len(l.Loads) > 0:
		h = "details of BPF programs are kept if root records"
	case errors.Is(l.Err, analysis.ErrNoCode):
		h = "of generated code, perf maps keep names only"
	default:
		h = "add the file with 'gantry buildid add FILE', ask for it with --debuginfod, or annotate where it was " +
			"recorded"
	}
	fmt.Fprintf(stderr, "gantry: no code of %s: %s\n", profile.Printable(what), h)
}

// explain says what is not shown.
func (f *annotateFlags) explain(e *env, p *profile.Profile, s *analysis.Session, shown, hidden int) (err error) {
	if hidden > 0 {
		fmt.Fprintf(e.stderr, "gantry: %s below %v %% not shown: see --percent-limit\n",
			plural(hidden, "function", "functions"), f.opts.PercentLimit)
	}
	if shown > 0 {
		return nil
	}
	switch filter := f.opts.Filter.String(); {
	case hidden > 0:
	case filter != "":
		fmt.Fprintf(e.stderr, "gantry: %s: no function with samples matches %s\n", f.input, profile.Printable(filter))
		err = &exitError{code: 1}
	default:
		fmt.Fprintf(e.stderr, "gantry: %s: no function has samples\n", f.input)
	}
	// The binary that the function is in may be the one that is missing.
	sel := report.Select(p, report.FormatText, nil)
	failures := worthNaming(s.Unresolved(), sel.Nameless, sel.Samples)
	explainFailures(e.stderr, failures, mostFailures)
	if len(failures) > 0 {
		fmt.Fprintln(e.stderr, "hint: add missing files with 'gantry buildid add FILE', or ask for them with "+
			"--debuginfod")
	}
	return err
}

// skids are the events whose samples are taken by an interrupt, which comes
// some instructions late. Tracepoints and probes are where they are.
func skids(events *perf.Events) map[string]bool {
	late := make(map[string]bool)
	for _, ev := range events.List() {
		a := &ev.Attr
		switch a.Type {
		case perf.TypeSoftware:
			late[ev.Name] = a.Config == perf.SWCPUClock || a.Config == perf.SWTaskClock
		case perf.TypeHardware, perf.TypeHWCache, perf.TypeRaw:
			late[ev.Name] = a.Flags.PreciseIP() == 0
		}
	}
	return late
}
