// SPDX-License-Identifier: Apache-2.0

// Package cli is gantry's command line, one file per subcommand. Results go
// to stdout and everything else to stderr; an error ends with what to do
// about it; a recorded command's exit status is passed through.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
)

// env is what a command may touch of the process around it.
type env struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// exitError ends the process with a status and, if err is nil, no message:
// the status of a recorded command, or a verdict such as doctor's.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// Main runs the command line args (without the program's name) and returns
// the exit status: 0, the child's, 1 for an error, 2 for wrong usage.
func Main(stdin io.Reader, stdout, stderr io.Writer, args []string) int {
	root := newRootCmd(&env{stdin: stdin, stdout: stdout, stderr: stderr})
	help := &helpWriter{w: stdout}
	root.SetOut(help)
	root.SetArgs(joinGraph(args))
	return explain(stderr, cmp.Or(root.Execute(), help.err))
}

// runcName is the name under which gantry is a container runtime.
const runcName = "gantry-runc"

// Args are the arguments of the command line: a gantry that is called gantry-runc is
// the command that stands in for runc.
func Args(argv []string) []string {
	if len(argv) > 0 && filepath.Base(argv[0]) == runcName {
		return append([]string{"agent", "runc"}, argv[1:]...)
	}
	return argv[min(1, len(argv)):]
}

// helpWriter remembers the first error, which cobra does not look at when it
// writes help.
type helpWriter struct {
	w   io.Writer
	err error
}

func (h *helpWriter) Write(b []byte) (int, error) {
	n, err := h.w.Write(b)
	h.err = cmp.Or(h.err, err)
	return n, err
}

// explain prints err with its hint and returns the exit status for it.
func explain(stderr io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code := 1
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
		if exit.err == nil {
			return code
		}
	}
	// A reader that left (gantry script | head) is no error worth a word.
	if errors.Is(err, syscall.EPIPE) {
		return code
	}
	fmt.Fprintf(stderr, "gantry: %s\n", printableLines(err.Error()))
	if h := cmp.Or(hint.Of(err), generalHint(err)); h != "" {
		fmt.Fprintf(stderr, "hint: %s\n", printableLines(h))
	}
	return code
}

// printableLines is container.Printable of each line: errors name cgroups,
// containers and files, which are called as those in the container like, and
// several joined errors are a line each.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = container.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// generalHint is what to do about errors that can come from everywhere, "" for
// others.
func generalHint(err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise the limit of open files: ulimit -n"
	case errors.As(err, &at) && errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(at.Path, "/proc/self/"):
		return "gantry needs /proc: mount -t proc proc /proc"
	}
	return ""
}

func newRootCmd(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "gantry",
		Short: "container-aware profiler and tracer for Linux",
		Long: `gantry records, counts and traces what a Linux machine does, and says which
container did it. Its verbs and letters are perf's, its files are perf.data.

  gantry record -a -g --duration 5s      record the whole machine
  gantry report --sort container,sym     where the time went, by container
  gantry doctor                          what works here, and what to do if not`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// Of a command that is none, no flag is known either.
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return noSuchCommand(cmd, args)
		}
		return usageError(cmd, flagError(err))
	})
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	root.SetUsageTemplate(strings.NewReplacer(
		".LocalFlags.FlagUsages", "flagUsages .LocalFlags",
		".InheritedFlags.FlagUsages", "flagUsages .InheritedFlags",
	).Replace(root.UsageTemplate()))
	for _, cmd := range commands(e) {
		root.AddCommand(cmd)
	}
	return root
}

// noSuchCommand refuses what cobra leaves to the root: a word that is no
// command.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("there is no command %q", args[0])
	if text := otherCommands[args[0]]; text != "" {
		return usageError(cmd, withHint(err, text))
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return &exitError{code: 2, err: hint.Wrap(err, fmt.Sprintf("did you mean '%s %s'?", cmd.Name(), near[0]))}
	}
	return usageError(cmd, err)
}

// noArgs refuses arguments of a command that takes flags only.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if list, err := cmd.Flags().GetStringSlice("namespace"); err == nil {
		if err := checkNamespaces(list); err != nil {
			return usageError(cmd, err)
		}
	}
	return usageError(cmd, fmt.Errorf("%s takes no argument, but there is %q", cmd.CommandPath(), args[0]))
}

// flagError says what is wrong with the value of a switch, for which pflag names
// a function of Go's.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) || bad.GetFlag().NoOptDefVal != "true" {
		return err
	}
	return fmt.Errorf("--%s is a switch and takes no %q: write --%[1]s, or --%[1]s=false", bad.GetFlag().Name,
		bad.GetValue())
}

// usageError is a wrong flag or argument: exit status 2 and, if err does not
// say what to do, where help is.
func usageError(cmd *cobra.Command, err error) error {
	err = withHint(err, perfFlagHint(cmd.Name(), err))
	if hint.Of(err) == "" {
		err = hint.Wrap(err, fmt.Sprintf("see '%s --help'", cmd.CommandPath()))
	}
	return &exitError{code: 2, err: err}
}

// commands are the subcommands of this platform. Those that read die of the
// first signal, whatever they wait for; those that are live end in order.
func commands(e *env) []*cobra.Command {
	list := readCommands(e)
	for _, cmd := range liveCommands(e) {
		list = append(list, withSignals(cmd))
	}
	return list
}

// withSignals makes SIGINT and SIGTERM cancel the command's context. The
// second one kills. SIGHUP cancels it too, and more of them do nothing: of a
// terminal that goes away both the kernel and the shell tell. nohup is heeded.
func withSignals(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if !signal.Ignored(syscall.SIGHUP) {
			var deaf context.CancelFunc
			ctx, deaf = signal.NotifyContext(ctx, syscall.SIGHUP)
			defer deaf()
		}
		context.AfterFunc(ctx, stop)
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

// readCommands only read files and build on every platform.
func readCommands(e *env) []*cobra.Command {
	return []*cobra.Command{newReportCmd(e), newAnnotateCmd(e), newScriptCmd(e), newBuildidCmd(e), newArchiveCmd(e),
		newConvertCmd(e), newVersionCmd(e)}
}
