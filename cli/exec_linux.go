// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/enter"
	"github.com/gantry-tools/gantry/agent/tracing"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/helper/join"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// execFlags are the flags of gantry exec.
type execFlags struct {
	command     enter.Command
	kernel      bool
	tracepoints []string
	audit       string
	definitions definitionFlags
	selectors   selectorFlags
}

func newExecCmd(e *env) *cobra.Command {
	f := new(execFlags)
	cmd := &cobra.Command{
		Use:   "exec [flags] CONTAINER -- COMMAND [ARG]...",
		Short: "run a program in a container; perf works there",
		Long: `Run a program in a running container, such as the perf, or the gantry, that is
installed there. Events that it opens are opened by gantry in its place: with
-a they are of the container's tasks, with -p of one of them, always with the
container's pids, and nothing of the host or of other containers is in them.
The container needs no capability and no configuration for it.

The program runs as the container's runtime would run it: same user, namespaces,
cgroup, environment, and no capability that the container does not have.

Samples in the kernel, whose addresses are the host's secret, are refused unless
--kernel allows them, and perf goes on with user space (cpu-clock:u).
Tracepoints have to be allowed by name.`,
		Example: `  gantry exec web -- perf record -a -g sleep 5
  gantry exec web -- perf stat -a -- sleep 1
  gantry exec --user app web -- perf top
  gantry exec --tracepoints 'raw_syscalls:*' web -- perf trace -a
  gantry exec -n prod --pod checkout app -- gantry record -a --duration 5s`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError(cmd, hint.Wrap(errors.New("a container and a command are needed"),
					"gantry exec CONTAINER -- perf stat -a sleep 1"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(e, cmd, args) },
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.command.User, "user", "u", "",
		"run as this user of the container: `USER[:GROUP]`, names or numbers")
	fl.StringVarP(&f.command.Dir, "workdir", "w", "", "start in this `DIRECTORY` of the container")
	fl.StringArrayVarP(&f.command.Env, "env", "e", nil, "set a variable of the environment: `NAME=VALUE`")
	fl.BoolVar(&f.kernel, "kernel", false, "allow samples in the kernel, which tell its addresses")
	fl.StringSliceVar(&f.tracepoints, "tracepoints", nil, "allow tracepoints: `SYSTEM:NAME`, * is any text")
	fl.StringVar(&f.audit, "audit", "", "append each decision to this `FILE`, as lines of JSON")
	f.selectors.registerPods(fl)
	f.definitions.register(fl)
	return cmd
}

func (f *execFlags) run(e *env, cmd *cobra.Command, args []string) error {
	f.selectors.containers = args[:1]
	f.command.Args = args[1:]
	found, err := f.find(e, cmd)
	if err != nil {
		return err
	}
	c, err := enter.Open(found.PID)
	if err != nil {
		return hint.Wrap(fmt.Errorf("%s: %w", found.Label(), err), "run as root; 'gantry containers' lists what runs")
	}
	defer c.Close()
	scope, err := broker.NewScope(found.Label(), c.PID(), found.CgroupPath)
	if err != nil {
		return err
	}
	defer scope.Close()
	audit, err := openAudit(f.audit)
	if err != nil {
		return err
	}
	defer audit.Close()
	points, err := tracing.Find(f.tracepoints)
	if err != nil {
		return err
	}
	if points != nil {
		if f.command.Tracing, err = points.Mount(); err != nil {
			return err
		}
		defer f.command.Tracing.Close()
	}
	b := f.broker(points, audit)
	if err := b.Accepts(scope); err != nil {
		return hint.Wrap(fmt.Errorf("%s: %w", found.Label(), err),
			"allow that with --kernel, or take the capability from the container")
	}
	return f.start(e, c, b, scope)
}

// start runs the command and answers for it until it ended.
func (f *execFlags) start(e *env, c *enter.Container, b *broker.Broker, scope *broker.Scope) (err error) {
	stdin, stdout, stderr := fileOf(e.stdin), fileOf(e.stdout), fileOf(e.stderr)
	t, err := openTerminal(stdin, stdout)
	if err != nil {
		return err
	}
	if t != nil {
		f.command.Terminal = true
		stdin, stdout, stderr = t.theirs, t.theirs, t.theirs
	}
	defer func() { err = errors.Join(err, t.end()) }()
	f.command.Stdin, f.command.Stdout, f.command.Stderr = stdin, stdout, stderr
	j, listener, err := c.Start(&f.command)
	if err != nil {
		return startError(err, f.command.Args[0])
	}
	defer j.Close()
	if err := t.start(e.stdout); err != nil {
		return err
	}
	status, err := serve(b, scope, j, listener)
	if err != nil {
		return startError(err, f.command.Args[0])
	}
	return exitStatus(status)
}

// fileOf is a stream as a file, nil if it is none.
func fileOf(stream any) *os.File {
	f, _ := stream.(*os.File)
	return f
}

// openAudit opens the log that decisions are added to, nil if there is none.
func openAudit(name string) (*os.File, error) {
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// find is the one container that is meant.
func (f *execFlags) find(e *env, cmd *cobra.Command) (*container.Container, error) {
	defs, err := f.definitions.load(cmd)
	if err != nil {
		return nil, err
	}
	if err := f.selectors.parse(); err != nil {
		return nil, usageError(cmd, err)
	}
	choices, err := f.selectors.choices(defs)
	if err != nil {
		return nil, usageError(cmd, err)
	}
	r, err := container.NewResolver(&container.ResolverOptions{Sockets: f.definitions.sockets})
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("find containers: %w", err), "is /proc mounted? 'gantry doctor' tells more")
	}
	warnings := r.Refresh(cmd.Context())
	var found []*container.Container
	for i := range choices {
		if !choices[i].ByName() {
			return nil, usageError(cmd, fmt.Errorf("%q is an identity: name a container", choices[i].Text))
		}
		match, err := r.Table().Select(choices[i].Match)
		if err != nil {
			listWarnings(e.stderr, warnings)
			return nil, blindError(hint.Wrap(err, matchHint(err)), warnings)
		}
		for _, c := range match {
			if c.Kind == container.KindContainer && r.Status()[c].State != container.StateExited {
				found = append(found, c)
			}
		}
	}
	return oneOf(found, args0(f.selectors.containers))
}

func args0(list []string) string { return list[0] }

// oneOf is the only container of a list, with a process.
func oneOf(found []*container.Container, name string) (*container.Container, error) {
	if len(found) == 0 {
		return nil, hint.Wrap(fmt.Errorf("%q: %w that runs", name, container.ErrNoMatch),
			"'gantry containers' lists what runs")
	}
	if len(found) > 1 {
		return nil, hint.Wrap(fmt.Errorf("%q is %d containers, such as %s and %s", name, len(found),
			found[0].Label(), found[1].Label()), "give an id: 'gantry containers' lists them")
	}
	c := found[0]
	if c.PID != 0 {
		return c, nil
	}
	trees, err := procfs.New("").CgroupTrees()
	if err != nil {
		return nil, err
	}
	if tree := trees.Perf(); tree != nil && c.CgroupPath != "" {
		if pids, err := tree.Procs(c.CgroupPath); err == nil && len(pids) > 0 {
			with := *c
			with.PID = pids[0]
			return &with, nil
		}
	}
	return nil, hint.Wrap(fmt.Errorf("%s: no process of it was found", c.Label()), "run as root on the host")
}

// broker has the policy of the flags.
func (f *execFlags) broker(points *tracing.Set, audit *os.File) *broker.Broker {
	policy := broker.DefaultPolicy()
	// Whoever may run gantry exec has chosen the user.
	policy.AllTasks = broker.Anyone
	policy.Kernel, policy.Tracepoints = f.kernel, f.tracepoints
	o := &broker.Options{Policy: policy, Tracepoint: points.Name}
	if audit != nil {
		o.Audit = audit
	}
	return broker.New(o)
}

// startError says what to do about a program that did not start.
func startError(err error, name string) error {
	if !errors.Is(err, join.ErrRun) {
		if hint.Of(err) != "" {
			return err
		}
		return hint.Wrap(err, "gantry exec needs root on the host; 'gantry doctor' tells what is missing")
	}
	code := 126
	if errors.Is(err, syscall.ENOENT) {
		code = 127
	}
	return &exitError{code, hint.Wrap(fmt.Errorf("%s: %w", name, err),
		"the program must be in the container: install it there, or name its path")}
}

// passedOn are the signals that the program gets as if it were here.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// lastCall is how long a call of a program that ended is waited for.
const lastCall = 2 * time.Second

// serve answers for the program until it ended, and passes signals on to it.
func serve(b *broker.Broker, s *broker.Scope, j *join.Process, listener *sys.FD) (syscall.WaitStatus, error) {
	l, err := broker.NewListener(listener, nil)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- b.Serve(l, s) }()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, passedOn...)
	go func() {
		for sig := range signals {
			// The program may have ended.
			_ = sys.PidfdSignal(j.Pidfd, sig.(syscall.Signal))
		}
	}()
	status, err := j.Wait()
	signal.Stop(signals)
	close(signals)
	l.Stop()
	select {
	case e := <-served:
		err = errors.Join(err, e)
	case <-time.After(lastCall):
		// The program had one, and its memory on a file system that does not answer.
	}
	return status, err
}

// exitStatus passes the status of a program on, as a shell does.
func exitStatus(s syscall.WaitStatus) error {
	switch {
	case s.Signaled():
		return &exitError{code: 128 + int(s.Signal())}
	case s.ExitStatus() != 0:
		return &exitError{code: s.ExitStatus()}
	}
	return nil
}
