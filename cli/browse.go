// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/view/report"
	"github.com/gantry-tools/gantry/view/terminal"
)

// browsable are the flags with which a report is browsed all the same: they say nothing of
// what its text is like.
var browsable = []string{"input", "buildid-dir", "symfs", "kallsyms", "debuginfod", "verbose", "define", "config",
	"inline", "no-inline"}

// browses reports whether the report is shown in a browser: in a terminal, if nothing is
// asked for that only text has.
func (f *reportFlags) browses(e *env, cmd *cobra.Command, format report.Format) bool {
	if format != report.FormatText || f.output != "-" || f.input == "-" || f.stdio || os.Getenv("TERM") == "dumb" ||
		terminalWidth(e.stdout) == 0 || !isTerminal(e.stdin) {
		return false
	}
	only := true
	cmd.Flags().Visit(func(fl *pflag.Flag) { only = only && slices.Contains(browsable, fl.Name) })
	return only
}

// browse shows the recording until the user has seen enough.
func (f *reportFlags) browse(e *env, cmd *cobra.Command) error {
	r, err := f.open(e, cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	s := analysis.NewSession(r.Reader, r.options)
	chains := hasCallchains(r.Events())
	p, err := s.Collect(analysis.CollectOptions{Fields: profile.FieldContainer | profile.FieldComm | profile.FieldPID,
		Symbols: true, Stacks: chains, Inline: chains && f.inline})
	if err != nil {
		return fmt.Errorf("%s: %w", f.input, err)
	}
	if len(p.Events) == 0 {
		fmt.Fprintf(e.stderr, "gantry: %s: no samples\n", f.input)
	} else if err = terminal.Browse(cmd.Context(), e.stdin, e.stdout, p, f.input); err != nil {
		return err
	}
	explainWarnings(e.stderr, f.input, s)
	r.sources.explain(e.stderr)
	explainSnapshot(e.stderr, f.input, r.Features().Gantry, f.verbose)
	return nil
}
