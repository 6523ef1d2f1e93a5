// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/ftrace"
	"github.com/gantry-tools/gantry/tracens/lttng"
	"github.com/gantry-tools/gantry/tracens/nsfs"
	"github.com/gantry-tools/gantry/tracens/uprobes"
	"github.com/gantry-tools/gantry/tracens/userevents"
)

// defaultNamespaces is where tracing namespaces are mounted.
const defaultNamespaces = "/run/gantry/namespaces"

// nsFlags are the flags of gantry ns.
type nsFlags struct{ dir string }

func newNSCmd(e *env) *cobra.Command {
	f := new(nsFlags)
	cmd := &cobra.Command{
		Use:   "ns",
		Short: "tracing namespaces: user events, isolated per container",
		Long: `Tracing namespaces are isolated sets of user events: programs in two containers
may use one event name with different fields, and neither sees the other. A
namespace is a directory; containers mount its root/ and find there the files
of the kernel's user_events, which need no kernel support and no privilege.`,
		Example: `  gantry ns mount &                        the directory, unless the agent runs
  gantry ns create shop                    a namespace
  gantry ns options shop 'owner 1000'      whose its files are
  docker run --volume /run/gantry/namespaces/shop/root:/sys/kernel/tracing ...
  gantry ns trace shop                     its events as they come
  gantry ns record -o trace shop           and into a trace for babeltrace2`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.dir, "dir", defaultNamespaces, "`DIRECTORY` where they are mounted")
	for _, sub := range []*cobra.Command{f.mountCmd(e), f.createCmd(), f.listCmd(e), f.optionsCmd(e), f.removeCmd(),
		f.traceCmd(e), f.recordCmd(e), headerCmd(e)} {
		cmd.AddCommand(withSignals(sub))
	}
	return cmd
}

// nsArgs are some names of namespaces.
func nsArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least {
			return usageError(cmd, errors.New("name a tracing namespace"))
		}
		if most >= 0 && len(args) > most {
			return usageError(cmd, fmt.Errorf("%q is one too many", args[most]))
		}
		return nil
	}
}

// path is a file of a namespace.
func (f *nsFlags) path(name string, more ...string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
		return "", fmt.Errorf("%q: %w", name, syscall.EINVAL)
	}
	return filepath.Join(append([]string{f.dir, name}, more...)...), nil
}

// explain gives an error of the directory's files a hint.
func (f *nsFlags) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	text := ""
	switch {
	case errors.Is(err, syscall.ENOENT) && !f.mounted():
		text = "mount them first: 'gantry ns mount', or name another directory with --dir"
	case errors.Is(err, syscall.ENOENT):
		text = "'gantry ns list' lists what there is"
	case errors.Is(err, syscall.EBUSY):
		text = "a program has its files open, or its events registered"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		text = "namespaces are root's to make and to change"
	case errors.Is(err, syscall.EINVAL):
		text = "see docs/tracing-namespaces.md for names and options"
	case errors.Is(err, syscall.ENOTCONN):
		text = "what served them has ended: umount -l " + f.dir
	}
	return hint.Wrap(fmt.Errorf("%s: %w", what, err), text)
}

func (f *nsFlags) mounted() bool {
	text, err := os.ReadFile("/proc/self/mounts")
	return err == nil && strings.Contains(string(text), " "+f.dir+" fuse.tracens ")
}

func (f *nsFlags) mountCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "mount [DIRECTORY]",
		Short: "mount the directory of namespaces and serve it until a signal",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.dir = args[0]
			}
			dir, err := filepath.Abs(f.dir)
			if err != nil {
				return err
			}
			fsys, err := nsfs.Mount(dir, &nsfs.Options{
				Log:   log.New(e.stderr, "gantry: ", 0),
				State: dir + ".state",
				Systems: func(set func(*tracens.Namespace) *events.Set) []tracens.System {
					return []tracens.System{&uprobes.System{Events: set}, ftrace.New(ftrace.Tracefs, set),
						lttng.New(dir+".state", dir)}
				},
			})
			if err != nil {
				return err
			}
			fmt.Fprintf(e.stderr, "gantry: tracing namespaces at %s; make one with mkdir, or 'gantry ns create'\n",
				container.Printable(dir))
			<-cmd.Context().Done()
			left, err := fsys.Leave()
			if left > 0 {
				fmt.Fprintf(e.stderr, "gantry: %s is mounted elsewhere %d times, and stays for who serves it next\n",
					container.Printable(dir), left)
			}
			return err
		},
	}
}

func (f *nsFlags) createCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME...",
		Short: "make namespaces",
		Args:  nsArgs(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				dir, err := f.path(name)
				if err == nil {
					if !f.mounted() {
						err = syscall.ENOENT
					} else {
						err = os.Mkdir(dir, 0o755)
					}
				}
				if err != nil {
					return f.explain("create "+name, err)
				}
			}
			return nil
		},
	}
}

func (f *nsFlags) removeCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME...",
		Aliases: []string{"rm"},
		Short:   "end namespaces that nobody uses",
		Args:    nsArgs(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			for _, name := range args {
				dir, err := f.path(name)
				if err == nil {
					err = syscall.Rmdir(dir)
				}
				if err != nil {
					return f.explain("remove "+name, err)
				}
			}
			return nil
		},
	}
}

func (f *nsFlags) listCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "list namespaces with their events",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			list, err := os.ReadDir(f.dir)
			if err == nil && !f.mounted() {
				err = syscall.ENOENT
			}
			if err != nil {
				return f.explain(f.dir, err)
			}
			w := tabwriter.NewWriter(e.stdout, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "NAMESPACE\tEVENTS")
			for _, ns := range list {
				var names []string
				if events, err := os.ReadDir(filepath.Join(f.dir, ns.Name(), "root/events")); err == nil {
					for _, ev := range events {
						names = append(names, container.Printable(ev.Name()))
					}
				}
				fmt.Fprintf(w, "%s\t%s\n", ns.Name(), strings.Join(names, " "))
			}
			return w.Flush()
		},
	}
}

func (f *nsFlags) optionsCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "options NAME [COMMAND]...",
		Short: "show what a namespace is set to, or set it",
		Example: `  gantry ns options shop
  gantry ns options shop 'owner 1000' 'mode 0750' 'user_events.max-events 100'`,
		Args: nsArgs(1, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := f.path(args[0], "options")
			if err != nil {
				return f.explain(args[0], err)
			}
			if len(args) == 1 {
				text, err := os.ReadFile(file)
				if err != nil {
					return f.explain(args[0], err)
				}
				_, err = e.stdout.Write(text)
				return err
			}
			out, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				return f.explain(args[0], err)
			}
			for _, command := range args[1:] {
				if _, e := out.WriteString(command + "\n"); e != nil && err == nil {
					err = f.explain(command, e)
				}
			}
			return errors.Join(err, out.Close())
		},
	}
}

func headerCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "header",
		Short:   "print userevents.h, by which C programs write events",
		Example: "  gantry ns header > userevents.h",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := e.stdout.Write(userevents.Header)
			return err
		},
	}
}

func (f *nsFlags) traceCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "trace NAME",
		Short: "print the events of a namespace as they come",
		Args:  nsArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := f.path(args[0], "root/trace_pipe")
			if err != nil {
				return f.explain(args[0], err)
			}
			in, err := os.Open(file)
			if err != nil {
				return f.explain(args[0], err)
			}
			copied := make(chan error, 1)
			go func() {
				_, err := io.Copy(e.stdout, in)
				copied <- err
			}()
			select {
			case err := <-copied:
				return errors.Join(f.explain(args[0], err), in.Close())
			case <-cmd.Context().Done():
				// The read waits in the kernel and ends with the process.
				if !errors.Is(cmd.Context().Err(), context.Canceled) {
					return cmd.Context().Err()
				}
				return nil
			}
		},
	}
}
