// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package lttng is a trace system of tracing namespaces: LTTng-UST, with a session daemon
// for each namespace that uses it. Programs that are built with LTTng's tracepoints see the
// daemon of the namespace whose socket is mounted into their container, and no other one.
//
// Commands of the options file are those of lttng(1), behind the word lttng: "lttng create
// one", "lttng enable-event -u -a", "lttng start". The first one starts the daemon. It runs
// as root, in a mount namespace where /run/lttng is its own; containers get its socket for
// applications only, as a directory to be mounted at /run/lttng.
package lttng

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/tracens"
)

// System is the trace system. Its daemons go on when this process is killed, and are found
// again by the next one.
type System struct {
	state, hide string
	absent      error // why there is no LTTng here
}

var _ tracens.System = (*System)(nil)

// New keeps the daemons' files in a directory, which is made when it is needed. hide is
// where the namespaces are mounted, which daemons must not have: they would keep it.
func New(state, hide string) *System {
	s := &System{state: state, hide: hide}
	for _, name := range []string{"lttng-sessiond", "lttng", "mount", "sh"} {
		if _, err := exec.LookPath(name); err != nil {
			s.absent = fmt.Errorf("no %s in PATH: install LTTng's tools (lttng-tools): %w", name, syscall.ENOSYS)
			break
		}
	}
	return s
}

// daemon is that of a namespace.
type daemon struct {
	dir, hide string

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: not started by us
	exited chan struct{}
	failed string // the last command, and what it said
}

// Files of a daemon: what it takes for /run/lttng, what containers mount there, and where
// traces are.
func (d *daemon) run() string    { return filepath.Join(d.dir, "run") }
func (d *daemon) apps() string   { return filepath.Join(d.dir, "apps") }
func (d *daemon) home() string   { return filepath.Join(d.dir, "home") }
func (d *daemon) socket() string { return filepath.Join(d.run(), socketName) }

const socketName = "lttng-ust-sock-8"

// Name implements tracens.System.
func (*System) Name() string { return "lttng" }

func (s *System) of(ns *tracens.Namespace) *daemon {
	d, _ := ns.Value(s).(*daemon)
	return d
}

// Create implements tracens.System.
func (s *System) Create(ns *tracens.Namespace) error {
	ns.SetValue(s, &daemon{dir: filepath.Join(s.state, ns.Name, "lttng"), hide: s.hide})
	return nil
}

// commands are those of lttng(1) that change a session.
var commands = []string{"add-context", "clear", "create", "destroy", "disable-channel", "disable-event",
	"enable-channel", "enable-event", "rotate", "start", "stop", "track", "untrack"}

// Parse implements tracens.System.
func (s *System) Parse(ns *tracens.Namespace, command string) error {
	words := strings.Fields(command)
	if words[0] != "lttng" {
		return tracens.ErrNotMine
	}
	if s.absent != nil {
		return s.absent
	}
	if len(words) < 2 || !slices.Contains(commands, words[1]) {
		return fmt.Errorf("%q: lttng and one of %s: %w", command, strings.Join(commands, ", "), syscall.EINVAL)
	}
	d := s.of(ns)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.start(); err != nil {
		d.failed = err.Error()
		return err
	}
	out, err := d.lttng(words[1:]...)
	d.failed = ""
	if err != nil {
		d.failed = command + ": " + out
		return fmt.Errorf("%s: %s: %w", command, out, syscall.EINVAL)
	}
	return nil
}

// Time that a command of lttng, and the daemon's start and end, may take.
const patience = 30 * time.Second

// inside is a command in a mount namespace where /run/lttng is the daemon's.
func (d *daemon) inside(ctx context.Context, argv ...string) *exec.Cmd {
	const script = `mount --make-rprivate / && umount -l "$2" 2>/dev/null; mkdir -p /run/lttng &&
		mount --bind "$1" /run/lttng && shift 2 && exec "$@"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh", d.run(), d.hide}, argv...)...)
	cmd.Env = append(os.Environ(), "LTTNG_HOME="+d.home(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	return cmd
}

// lttng runs lttng(1) and returns its last line.
func (d *daemon) lttng(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := d.inside(ctx, append([]string{"lttng", "--no-sessiond"}, args...)...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], err
}

// pid is the number of the running daemon, 0 if there is none.
func (d *daemon) pid() int {
	text, err := os.ReadFile(filepath.Join(d.run(), "lttng-sessiond.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	// The number may be another's by now.
	exe, err := os.Readlink(procfs.New("").Proc(pid).Path("exe"))
	if err != nil || filepath.Base(exe) != "lttng-sessiond" {
		return 0
	}
	return pid
}

// start starts the daemon if it does not run, and waits until it answers. The caller holds
// mu.
func (d *daemon) start() error {
	if d.pid() != 0 {
		return nil
	}
	for _, dir := range []string{d.run(), d.apps(), d.home()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// Others may enter the directory of containers only.
	if err := errors.Join(os.Chmod(d.run(), 0o700), os.Chmod(d.home(), 0o700)); err != nil {
		return err
	}
	// It lives longer than this call, and than this process.
	cmd := d.inside(context.Background(), "lttng-sessiond", "--no-kernel")
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start lttng-sessiond: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // what it did not do shows by its socket
		close(exited)
	}()
	d.cmd, d.exited = cmd, exited
	for end := time.Now().Add(patience); ; {
		if _, err := d.lttng("list"); err == nil {
			break
		}
		select {
		case <-exited:
			return fmt.Errorf("lttng-sessiond ended: %s: %w", strings.TrimSpace(said.String()), syscall.EIO)
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("lttng-sessiond does not answer: %w", syscall.ETIMEDOUT), d.end())
		}
	}
	return d.offer()
}

// offer puts the socket for applications where containers find it; the one for commands is
// not theirs.
func (d *daemon) offer() error {
	at := filepath.Join(d.apps(), socketName)
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Link(d.socket(), at)
}

// end ends the daemon.
func (d *daemon) end() error {
	pid := d.pid()
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end lttng-sessiond: %w", err)
	}
	for end := time.Now().Add(patience); d.pid() != 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("lttng-sessiond %d does not end: %w", pid, syscall.EBUSY)
		}
	}
	if d.exited != nil {
		<-d.exited
	}
	return nil
}

// Remove implements tracens.System: the daemon ends. Traces stay.
func (s *System) Remove(ns *tracens.Namespace) error {
	d := s.of(ns)
	if d == nil {
		return syscall.ENOENT
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err := errors.Join(d.end(), os.RemoveAll(d.run()), os.RemoveAll(d.apps()))
	// What has no traces in it goes.
	for _, dir := range []string{filepath.Join(d.home(), ".lttng"), d.home(), d.dir, filepath.Dir(d.dir), s.state} {
		if os.Remove(dir) != nil {
			continue
		}
	}
	return err
}

// IsBusy implements tracens.System: a session is there.
func (s *System) IsBusy(ns *tracens.Namespace) bool {
	d := s.of(ns)
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pid() == 0 {
		return false
	}
	sessions, err := d.sessions()
	return err == nil && len(sessions) > 0
}

// sessions are the lines of lttng list that have one.
func (d *daemon) sessions() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := d.inside(ctx, "lttng", "--no-sessiond", "list").Output()
	if err != nil {
		return nil, fmt.Errorf("lttng list: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.Contains(line, "[active]") || strings.Contains(line, "[inactive]") {
			list = append(list, line)
		}
	}
	return list, nil
}

// Show implements tracens.System.
func (s *System) Show(ns *tracens.Namespace) (string, error) {
	if s.absent != nil {
		return fmt.Sprintf("# lttng: %v\n", s.absent), nil
	}
	d := s.of(ns)
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	if d.pid() == 0 {
		b.WriteString("# lttng: not started; lttng create NAME, lttng enable-event -u -a, lttng start\n")
	} else {
		fmt.Fprintf(&b, "# lttng: mount %s at /run/lttng; traces are in %s\n", d.apps(), d.home())
		sessions, err := d.sessions()
		if err != nil {
			return "", err
		}
		for _, line := range sessions {
			fmt.Fprintf(&b, "# lttng: %s\n", line)
		}
	}
	if d.failed != "" {
		fmt.Fprintf(&b, "# lttng: failed: %s\n", strings.ReplaceAll(d.failed, "\n", " "))
	}
	return b.String(), nil
}
