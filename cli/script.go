// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/perf/perftext"
	"github.com/gantry-tools/gantry/view/script"
)

// scriptFlags are the flags of gantry script as they were typed.
type scriptFlags struct {
	readFlags
	fields       []string
	time         string
	raw, verbose bool
	show         []bool // in the order of showFlags
	opts         script.Options
}

// showFlag is a flag that shows records beside samples.
type showFlag struct {
	name string
	what script.Show
	help string
}

func showFlags() []showFlag {
	return []showFlag{
		{"mmap", script.ShowMmap, "show mappings"},
		{"task", script.ShowTask, "show forks, exits and names of tasks"},
		{"namespace", script.ShowNamespace, "show namespaces of tasks"},
		{"lost", script.ShowLost, "show where records were lost"},
		{"switch", script.ShowSwitch, "show context switches"},
		{"bpf", script.ShowBPF, "show BPF programs and kernel symbols that came and went"},
		{"cgroup", script.ShowCgroup, "show cgroups"},
		{"text-poke", script.ShowTextPoke, "show changes of kernel text"},
	}
}

func newScriptCmd(e *env) *cobra.Command {
	f := new(scriptFlags)
	cmd := &cobra.Command{
		Use:   "script [flags] [FILE]",
		Short: "print a recording sample by sample",
		Long: `Print the samples of a recording in the order of time, a line for each and a
line for each frame of its call chain, as perf script does. Files of gantry
record and of perf record are read alike, also from a pipe (-i -).`,
		Example: `  gantry script                              all samples
  gantry script -F +container                with the container of each
  gantry script -F comm,tid,time,event,trace --comm nginx
  gantry script --container web --time 1234.5,1235
  gantry script --raw > recording.txt        everything in the file, as text`,
		Args: f.readFlags.args,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(e, cmd) },
	}
	f.register(cmd)
	plainFlagErrors(cmd)
	complete(cmd, "fields", true, script.FieldNames(container.BuiltIn()))
	return cmd
}

func (f *scriptFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	o := &f.opts
	f.readFlags.register(fl, &o.Filter)
	fl.StringArrayVarP(&f.fields, "fields", "F", nil,
		"fields to print, with + or - to change the default, after hw:, sw:, trace: or raw: for some events only; of: "+
			strings.Join(script.FieldNames(nil), ", ")+", or a definition")
	fl.BoolVar(&o.Nanoseconds, "ns", false, "times in nanoseconds")
	fl.BoolVarP(&o.HideCallGraph, "hide-call-graph", "G", false,
		"print only the address of a sample, not its call chain")
	fl.BoolVar(&o.Inline, "inline", false,
		"print calls that the compiler inlined (default for stacks recorded with --call-graph dwarf)")
	fl.BoolVar(&o.NoInline, "no-inline", false, "print no inlined calls")
	fl.IntVar(&o.MaxStack, "max-stack", 0, "print at most this many frames (0 is all)")
	fl.StringSliceVarP(&o.Filter.Comm, "comm", "c", nil, "only threads of these names")
	fl.StringVar(&f.time, "time", "", "only from FROM to TO, in seconds as printed: FROM,TO or FROM or ,TO")
	f.show = make([]bool, len(showFlags()))
	for i, s := range showFlags() {
		fl.BoolVar(&f.show[i], "show-"+s.name+"-events", false, s.help)
	}
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "name all binaries without symbols, also those that hardly matter")
	fl.BoolVar(&f.raw, "raw", false, "print the whole file as text that can be made a file again")
}

func (f *scriptFlags) run(e *env, cmd *cobra.Command) error {
	if err := f.parse(); err != nil {
		return usageError(cmd, err)
	}
	if err := f.checkRaw(cmd); err != nil {
		return usageError(cmd, err)
	}
	r, err := f.open(e, cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	if f.raw {
		return writeOutput(e, f.output, func(w io.Writer) error { return perftext.Write(w, r.Reader) })
	}
	relaxGC(false)
	symbols := f.opts.Symbols(r.Events())
	if !symbols {
		r.options.Binaries = nil
	}
	s := analysis.NewSession(r.Reader, r.options)
	open := isMoreSpecific(r.Reader)
	if f.opts.Columns, err = script.ParseFields(f.fields, s.Definitions(), open); err != nil {
		return usageError(cmd, err)
	}
	if err := f.choose(cmd, s, open); err != nil {
		return err
	}
	var tally script.Tally
	f.opts.Tally = &tally
	err = writeOutput(e, f.output, func(w io.Writer) error { return script.Write(w, r.Reader, s, &f.opts) })
	if errors.Is(err, script.ErrNoField) {
		return hint.Wrap(fmt.Errorf("%s: %w", f.input, err), "leave it out of -F, or record again with it")
	}
	explainWarnings(e.stderr, f.input, s)
	r.sources.explain(e.stderr)
	f.explainAmbiguous(e.stderr)
	if filter := f.filter(); err == nil && tally.Printed == 0 && tally.Samples > 0 && filter != "" {
		err = explainEmpty(e.stderr, f.input, filter, s, r.Events())
	}
	switch {
	case symbols && f.verbose:
		explainFailures(e.stderr, s.Unresolved(), 0)
	case symbols:
		explainFailures(e.stderr, worthNaming(s.Unresolved(), tally.Nameless, tally.Printed), mostFailures)
	}
	return err
}

// parse checks the flags that need no recording.
func (f *scriptFlags) parse() (err error) {
	o := &f.opts
	if o.Columns, err = script.ParseFields(f.fields, nil, true); err != nil {
		return err
	}
	if o.Inline && o.NoInline {
		return errors.New("choose one of --inline and --no-inline")
	}
	if err := notNegative("--max-stack", o.MaxStack); err != nil {
		return err
	}
	if f.time != "" {
		if o.Span, err = script.ParseSpan(f.time); err != nil {
			return err
		}
	}
	for i, s := range showFlags() {
		if f.show[i] {
			o.Show |= s.what
		}
	}
	return f.readFlags.parse()
}

// checkRaw refuses flags that choose what is printed beside --raw, which
// prints everything.
func (f *scriptFlags) checkRaw(cmd *cobra.Command) (err error) {
	if !f.raw {
		return nil
	}
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		switch fl.Name {
		case "raw", "input", "output":
		default:
			err = fmt.Errorf("--raw prints the whole file: it cannot be combined with --%s", fl.Name)
		}
	})
	return err
}

// filter is what selects samples, in words.
func (f *scriptFlags) filter() string {
	words := f.opts.Filter.String()
	if f.time == "" {
		return words
	}
	if words != "" {
		words += "; "
	}
	return words + "time " + f.time
}
