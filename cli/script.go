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
	input, output string
	fields        []string
	time          string
	raw, verbose  bool
	show          []bool // in the order of showFlags
	opts          script.Options
	container     []string
	selectors     []string // of container, one by one
	pids, tids    []string
	cpus          string
	symbols       symbolFlags
	definitions   definitionFlags
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
		Use:   "script [flags]",
		Short: "print a recording sample by sample",
		Long: `Print the samples of a recording in the order of time, a line for each and a
line for each frame of its call chain, as perf script does. Files of gantry
record and of perf record are read alike, also from a pipe (-i -).`,
		Example: `  gantry script                              all samples
  gantry script -F +container                with the container of each
  gantry script -F comm,tid,time,event,trace --comm nginx
  gantry script --container web --time 1234.5,1235
  gantry script --raw > recording.txt        everything in the file, as text`,
		Args: noArgs,
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
	x := &o.Filter
	fl.StringVarP(&f.input, "input", "i", defaultFile, "recording to read, - for standard input")
	fl.StringVarP(&f.output, "output", "o", "-", "file to write, - for standard output")
	fl.StringArrayVarP(&f.fields, "fields", "F", nil, "fields to print, with + or - to change the default, after hw:, sw:, trace: or raw: for some events only; of: "+
		strings.Join(script.FieldNames(nil), ", ")+", or a definition")
	fl.BoolVar(&o.Nanoseconds, "ns", false, "times in nanoseconds")
	fl.BoolVarP(&o.HideCallGraph, "hide-call-graph", "G", false, "print only the address of a sample, not its call chain")
	fl.BoolVar(&o.Inline, "inline", false, "print calls that the compiler inlined (default for stacks recorded with --call-graph dwarf)")
	fl.BoolVar(&o.NoInline, "no-inline", false, "print no inlined calls")
	fl.IntVar(&o.MaxStack, "max-stack", 0, "print at most this many frames (0 is all)")
	fl.StringArrayVar(&f.container, "container", nil, "only these containers: `NAME`, begin of an id, pod, image or cgroup path (/...); * is any text; or DEFINITION:any, an identity")
	fl.StringSliceVar(&x.Pod, "pod", nil, "only these pods")
	fl.StringSliceVarP(&x.Namespace, "namespace", "n", nil, "only these Kubernetes namespaces")
	fl.StringSliceVar(&x.Image, "image", nil, "only containers of these images")
	fl.StringSliceVar(&x.Cgroup, "cgroup", nil, "only these cgroups")
	fl.StringSliceVarP(&x.Comm, "comm", "c", nil, "only threads of these names")
	fl.StringSliceVarP(&f.pids, "pid", "p", nil, "only these processes")
	fl.StringSliceVarP(&f.tids, "tid", "t", nil, "only these threads")
	fl.StringVarP(&f.cpus, "cpu", "C", "", "only these cpus, such as 0-3,5")
	fl.StringVar(&f.time, "time", "", "only from FROM to TO, in seconds as printed: FROM,TO or FROM or ,TO")
	f.show = make([]bool, len(showFlags()))
	for i, s := range showFlags() {
		fl.BoolVar(&f.show[i], "show-"+s.name+"-events", false, s.help)
	}
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "name all binaries without symbols, also those that hardly matter")
	fl.BoolVar(&f.raw, "raw", false, "print the whole file as text that can be made a file again")
	f.definitions.registerForReading(fl)
	f.symbols.register(fl)
}

func (f *scriptFlags) run(e *env, cmd *cobra.Command) error {
	if err := f.parse(); err != nil {
		return usageError(cmd, err)
	}
	if err := f.checkRaw(cmd); err != nil {
		return usageError(cmd, err)
	}
	defs, err := f.definitions.given(cmd, false)
	if err != nil {
		return err
	}
	r, sources, err := openInput(e, f.input, f.symbols)
	if err != nil {
		return err
	}
	defer sources.Close()
	defer r.Close()
	if f.raw {
		return writeOutput(e, f.output, func(w io.Writer) error { return perftext.Write(w, r) })
	}
	relaxGC(false)
	from := sources.options()
	from.Definitions = defs
	symbols := f.opts.Symbols(r.Events())
	if !symbols {
		from.Binaries = nil
	}
	s := analysis.NewSession(r, from)
	open := tellsMore(r)
	if f.opts.Columns, err = script.ParseFields(f.fields, s.Definitions(), open); err != nil {
		return usageError(cmd, err)
	}
	if err := selectIdentities(&f.opts.Filter, f.selectors, s, open); err != nil {
		return usageError(cmd, err)
	}
	var tally script.Tally
	f.opts.Tally = &tally
	err = writeOutput(e, f.output, func(w io.Writer) error { return script.Write(w, r, s, &f.opts) })
	if errors.Is(err, script.ErrNoField) {
		return hint.Wrap(fmt.Errorf("%s: %w", f.input, err), "leave it out of -F, or record again with it")
	}
	explainWarnings(e.stderr, f.input, s)
	sources.explain(e.stderr)
	if filter := f.filter(); err == nil && tally.Printed == 0 && tally.Samples > 0 && filter != "" {
		explainEmpty(e.stderr, f.input, filter, s, r.Events())
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
	if f.selectors, err = splitContainers(f.container); err != nil {
		return err
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
	if o.Filter.PID, err = parseIDs("--pid", f.pids); err != nil {
		return err
	}
	if o.Filter.TID, err = parseIDs("--tid", f.tids); err != nil {
		return err
	}
	o.Filter.CPU, err = parseCPUList(f.cpus)
	return err
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
