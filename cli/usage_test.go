// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestFlagUsages(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.IntP("frequency", "F", 4000, "samples a second and cpu, for each of the events that count time")
	flags.String("debuginfod", "", "ask `URL,...` for what this machine lacks")
	flags.Lookup("debuginfod").NoOptDefVal = "$DEBUGINFOD_URLS"
	flags.Bool("secret", false, "not shown")
	flags.Lookup("secret").Hidden = true
	want := `      --debuginfod URL,...[="$DEBUGINFOD_URLS"]
                          ask URL,... for what this machine lacks
  -F, --frequency int     samples a second and cpu, for each of the events that
                          count time (default 4000)
`
	if got := flagUsages(flags); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The help of every command fits a terminal.
func TestHelpFits(t *testing.T) {
	var out bytes.Buffer
	root := newRootCmd(&env{stdin: strings.NewReader(""), stdout: &out, stderr: &out})
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		out.Reset()
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); len(line) > helpWidth {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
}
