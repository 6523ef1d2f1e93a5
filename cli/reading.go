// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/view/report"
)

// readFlags are the flags of commands that show a recording: which one, what of
// it, and where names come from.
type readFlags struct {
	input, output string
	chosen        *report.Filter // what of it: the command's own filter
	selectors     selectorFlags
	pids, tids    []string
	cpus          string
	symbols       symbolFlags
	definitions   definitionFlags
}

// register adds the flags. Those that choose samples go to x.
func (f *readFlags) register(fl *pflag.FlagSet, x *report.Filter) {
	f.chosen = x
	fl.StringVarP(&f.input, "input", "i", defaultFile, "recording to read, - for standard input")
	fl.StringVarP(&f.output, "output", "o", "-", "file to write, - for standard output")
	f.selectors.register(fl)
	fl.StringSliceVar(&x.Cgroup, "cgroup", nil, "only these cgroups")
	fl.StringSliceVarP(&f.pids, "pid", "p", nil, "only these processes")
	fl.StringSliceVarP(&f.tids, "tid", "t", nil, "only these threads")
	fl.StringVarP(&f.cpus, "cpu", "C", "", "only these cpus, such as 0-3,5")
	f.definitions.registerForReading(fl)
	f.symbols.register(fl)
}

// args takes the recording as an argument.
func (f *readFlags) args(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case len(args) > 1 && looksLikeID(args[0]):
		return usageError(cmd, withHint(fmt.Errorf("%s takes one file, but there is %q", cmd.CommandPath(), args[1]),
			`several containers go by comma, or in quotes: --container "$(gantry containers -q x)"`))
	case len(args) > 1:
		return noArgs(cmd, args[1:])
	case cmd.Flags().Changed("input"):
		return usageError(cmd, fmt.Errorf("-i %s and %s are two recordings: leave one of them out", f.input, args[0]))
	}
	f.input = args[0]
	return nil
}

// parse checks the flags that need no recording.
func (f *readFlags) parse() (err error) {
	if err := f.selectors.parse(); err != nil {
		return err
	}
	if f.chosen.PID, err = parseIDs("--pid", f.pids); err != nil {
		return err
	}
	if f.chosen.TID, err = parseIDs("--tid", f.tids); err != nil {
		return err
	}
	f.chosen.CPU, err = parseCPUList(f.cpus)
	return err
}

// recording is an open recording, with what a session of it is given.
type recording struct {
	*perfdata.Reader
	sources *symbolSources
	options *analysis.Options
}

// open opens the recording, which the caller closes.
func (f *readFlags) open(e *env, cmd *cobra.Command) (*recording, error) {
	defs, err := f.definitions.given(cmd, false)
	if err != nil {
		return nil, err
	}
	r, sources, err := openInput(e, f.input, f.symbols)
	if err != nil {
		return nil, err
	}
	o := sources.options()
	o.Definitions = defs
	return &recording{r, sources, o}, nil
}

// Close closes the recording and the places that names come from.
func (r *recording) Close() {
	r.Reader.Close()
	r.sources.Close()
}

// explainAmbiguous warns of a container's name that is the begin of several ids.
func (f *readFlags) explainAmbiguous(stderr io.Writer) {
	if err := f.chosen.Err(); err != nil {
		fmt.Fprintf(stderr, "gantry: %s: %v\n", f.input, err)
	}
}

// choose has the filter know the containers that --container names by identity. If
// open is set, the recording may still tell of some.
func (f *readFlags) choose(cmd *cobra.Command, s *analysis.Session, open bool) error {
	if err := selectIdentities(f.chosen, &f.selectors, s, open); err != nil {
		return usageError(cmd, err)
	}
	return nil
}
