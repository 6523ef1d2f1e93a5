// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gantry-tools/gantry/agent"
	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/agent/oci"
	"github.com/gantry-tools/gantry/internal/config"
	"github.com/gantry-tools/gantry/internal/hint"
)

// defaultTracing is where the agent puts the tracepoints that containers may open.
const defaultTracing = "/run/gantry/tracing"

// agentFlags are the flags of gantry agent.
type agentFlags struct {
	config, seccomp, socket, tracing, namespaces, audit, metrics string
	worker                                                       bool
}

func newAgentCmd(e *env) *cobra.Command {
	f := new(agentFlags)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "the host daemon: events for containers without privileges",
		Long: `Run gantry's daemon on the host. With it perf, gantry and every other program
that opens perf events work in containers that have no privileges, and see
their own container only. The rules of the configuration say who may open what.

Containers reach it in two ways. With a seccomp profile that tells the agent of
perf_event_open ('gantry agent profile', or gantry-runc as the runtime) every
program works as it is. With the directory of --socket mounted, gantry works.

It also serves tracing namespaces, sets of user events per container: see
'gantry ns'.

SIGHUP reads the configuration again; calls that are made meanwhile wait.`,
		Example: `  gantry agent --audit /var/log/gantry.jsonl --metrics 127.0.0.1:9464
  gantry agent profile > gantry.json
  podman run --security-opt seccomp=gantry.json ...
  docker run --volume /run/gantry/client:/run/gantry/client:ro ...`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noSuchCommand(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.worker {
				return f.work(e)
			}
			return f.supervise(e, cmd)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (default "+config.DefaultFile+")")
	fl.StringVar(&f.seccomp, "seccomp-socket", agent.DefaultSeccompSocket,
		"`SOCKET` that container runtimes connect: listenerPath of their profiles")
	fl.StringVar(&f.socket, "socket", client.DefaultSocket,
		"`SOCKET` that containers connect: mount its directory there")
	fl.StringVar(&f.tracing, "tracing-dir", defaultTracing, "`DIRECTORY` for the tracepoints that containers may open")
	fl.StringVar(&f.namespaces, "ns-dir", defaultNamespaces,
		"`DIRECTORY` of tracing namespaces, see 'gantry ns'; '' for none")
	fl.StringVar(&f.audit, "audit", "", "append each decision to this `FILE`, as lines of JSON")
	fl.StringVar(&f.metrics, "metrics", "", "serve Prometheus at this `ADDRESS`, such as 127.0.0.1:9464")
	fl.BoolVar(&f.worker, "worker", false, "be the process that serves")
	_ = fl.MarkHidden("worker") // it exists
	cmd.AddCommand(newAgentProfileCmd(e), newAgentRuncCmd(e))
	return cmd
}

// log writes a line about what happens.
func (f *agentFlags) log(e *env) func(string) {
	return func(text string) { fmt.Fprintf(e.stderr, "gantry agent: %s\n", printableLines(text)) }
}

// supervise runs the agent until a signal ends it.
func (f *agentFlags) supervise(e *env, cmd *cobra.Command) error {
	// What is wrong is told before anybody waits for us.
	if _, err := config.Read(f.config); err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return hint.Wrap(fmt.Errorf("the agent: %w", syscall.EPERM), "run it as root on the host")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	return agent.Supervise(ctx, &agent.SupervisorOptions{
		Seccomp: f.seccomp, Socket: f.socket, Reload: reload, Log: f.log(e), Namespaces: f.serveNamespaces(e),
		Worker: func() *exec.Cmd {
			c := exec.Command("/proc/self/exe", "agent", "--worker", "--config", f.config, "--audit", f.audit,
				"--metrics", f.metrics, "--tracing-dir", f.tracing)
			if !cmd.Flags().Changed("config") {
				c.Args = append(c.Args[:3:3], c.Args[5:]...)
			}
			c.Args[0] = os.Args[0] // which ps shows
			c.Stdout, c.Stderr = e.stdout, e.stderr
			return c
		},
	})
}

// serveNamespaces is the process that serves tracing namespaces.
func (f *agentFlags) serveNamespaces(e *env) func() *exec.Cmd {
	if f.namespaces == "" {
		return nil
	}
	return func() *exec.Cmd {
		c := exec.Command("/proc/self/exe", "ns", "mount", f.namespaces)
		c.Args[0] = os.Args[0] // which ps shows
		c.Stdout, c.Stderr = e.stdout, e.stderr
		return c
	}
}

// work is the process that serves.
func (f *agentFlags) work(e *env) error {
	// A terminal's keys are for the supervisor.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conf, err := config.Read(f.config)
	if err != nil {
		return err
	}
	audit, err := openAudit(f.audit)
	if err != nil {
		return err
	}
	defer audit.Close()
	o := &agent.WorkerOptions{
		Config: conf, Version: version, Metrics: f.metrics, Tracing: f.tracing, Log: f.log(e),
	}
	if audit != nil {
		o.Audit = audit
	}
	return agent.Work(ctx, o)
}

func newAgentProfileCmd(e *env) *cobra.Command {
	var base, socket string
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "print a seccomp profile that tells the agent of perf_event_open",
		Long: `Print a seccomp profile for containers: Docker's default one, or --base, with
the agent behind perf_event_open. Podman, CRI-O and containerd take it as it is;
for Docker, which drops the agent's socket from profiles, see gantry-runc.`,
		Example: `  gantry agent profile > gantry.json
  podman run --security-opt seccomp=gantry.json IMAGE
  gantry agent profile > /var/lib/kubelet/seccomp/gantry.json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			var text []byte
			if base != "" {
				var err error
				if text, err = os.ReadFile(base); err != nil {
					return hint.Wrap(err, "name a profile in Docker's form or that of the OCI runtime specification")
				}
			}
			profile, err := oci.Profile(text, socket)
			if err != nil {
				return hint.Wrap(err, "name a profile in Docker's form or that of the OCI runtime specification")
			}
			_, err = e.stdout.Write(profile)
			return err
		},
	}
	cmd.Flags().StringVar(&base, "base", "", "profile `FILE` to add it to (default: Docker's default profile)")
	cmd.Flags().StringVar(&socket, "seccomp-socket", agent.DefaultSeccompSocket, "the agent's `SOCKET`")
	return cmd
}

// Variables of gantry-runc: an engine gives its runtime no flags of ours.
const (
	runtimeEnv = "GANTRY_RUNTIME"
	seccompEnv = "GANTRY_SECCOMP_SOCKET"
	tracingEnv = "GANTRY_TRACING_DIR"
)

func newAgentRuncCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "runc [ARG]...",
		Short: "be runc, with the agent behind perf_event_open",
		Long: `Stand in for runc: change the container that is to be made so that the agent
answers its perf_event_open, and run runc. Engines that drop the agent's socket
from seccomp profiles, such as Docker, have it as their runtime: make a symbolic
link gantry-runc to gantry and name that.

Where no agent runs the container is made as it was, without events. So is a
container that may open events by itself (CAP_PERFMON, CAP_SYS_ADMIN).

GANTRY_RUNTIME names another runtime than runc, GANTRY_SECCOMP_SOCKET another
socket of the agent, GANTRY_TRACING_DIR another --tracing-dir of it.`,
		Example: `  ln -s gantry /usr/local/bin/gantry-runc
  dockerd --add-runtime gantry=/usr/local/bin/gantry-runc
  docker run --runtime gantry IMAGE perf stat -a sleep 1`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			return runRuntime(e.stderr, args)
		},
	}
}

// runRuntime becomes the runtime.
func runRuntime(stderr io.Writer, args []string) error {
	name := envOr(runtimeEnv, "runc")
	path, err := exec.LookPath(name)
	if err != nil {
		return hint.Wrap(err, "install runc, or name another runtime with "+runtimeEnv)
	}
	o := &oci.Options{Socket: envOr(seccompEnv, agent.DefaultSeccompSocket)}
	o.Tracing = envOr(tracingEnv, defaultTracing)
	if err := agent.Reachable(o.Socket); err == nil {
		err = oci.Wrap(args, o)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the runtime says that better
			fmt.Fprintf(stderr, "gantry: the container is made without gantry's agent: %s\n",
				printableLines(err.Error()))
		}
	}
	err = syscall.Exec(path, append([]string{name}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

func envOr(name, other string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return other
}
