// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
)

const (
	filterRow = "filter in the kernel"
	// filterTarget is how many nanoseconds a sample may cost.
	filterTarget = 800
	// filterProgram is the name of the program that gantry loads.
	filterProgram = "filter_sample"
	// bpfStatsRunTime is BPF_STATS_RUN_TIME of linux/bpf.h.
	bpfStatsRunTime = 0
	identities      = 64
	filterTime      = 2 * time.Second
)

// namespaces are all kinds, as a definition and unshare have them.
var namespaces = []string{"uts", "ipc", "mnt", "pid", "net", "cgroup", "user", "time"}

// filterCase is what keeps the CPUs busy while the filter is measured.
type filterCase struct {
	name   string
	inside bool // in namespaces of its own
	chosen bool // one of the identities is its
}

// filterRows measures what the filter costs for a sample of each kind, with a
// definition of all eight namespaces and 64 identities, by the kernel's own
// count of the time that its program ran.
func (b *bench) filterRows(ctx context.Context, w io.Writer) error {
	if !strings.Contains(filterRow, b.rows) {
		return nil
	}
	stats, err := ebpf.EnableStats(bpfStatsRunTime)
	if err != nil {
		return fmt.Errorf("count the time of BPF programs: %w", err)
	}
	defer stats.Close()
	fmt.Fprintf(w, "\n| %s, 8 namespaces, %d identities | samples | ns a sample | target | |\n|---|---|---|---|---|\n",
		filterRow, identities)
	for _, c := range []filterCase{
		{name: "of the host: dropped"},
		{name: "of a container that is not chosen: dropped", inside: true},
		{name: "of one that is chosen: kept", inside: true, chosen: true},
	} {
		fmt.Fprintf(b.log, "filtering samples %s\n", c.name)
		runs, ns, err := b.filterCost(ctx, c)
		if err != nil {
			return fmt.Errorf("filter samples %s: %w", c.name, err)
		}
		word := "ok"
		if ns > filterTarget {
			word = "**missed**"
		}
		fmt.Fprintf(w, "| %s | %d | %.0f | %d | %s |\n", c.name, runs, ns, filterTarget, word)
	}
	return nil
}

// filterCost records while processes of a kind keep all CPUs busy, and gives how
// often the filter ran and how long it took on the average.
func (b *bench) filterCost(ctx context.Context, c filterCase) (runs uint64, ns float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path := filepath.Join(b.dir, "filter.perf.data")
	defer os.Remove(path)
	defer os.Remove(path + ".old")
	args := []string{"record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(recordRate), "--wait", "--no-buildid-cache",
		"--define", "bench=" + strings.Join(namespaces, ","), "-o", path}
	left := identities
	for range onlineCPUs() {
		s, err := startSpinner(ctx, c.inside)
		if err != nil {
			return 0, 0, err
		}
		defer s.stop()
		if !c.chosen {
			continue
		}
		id, err := s.identity()
		if err != nil {
			return 0, 0, err
		}
		args = append(args, "--container", id)
		left--
	}
	for i := range max(left, 0) {
		args = append(args, "--container", noIdentity(i))
	}
	cmd := exec.CommandContext(ctx, b.gantry, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = b.log
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	runs, ns, err = programCost(ctx, cmd.Process.Pid)
	cmd.Process.Signal(os.Interrupt) // an error means that it has ended
	return runs, ns, errors.Join(err, cmd.Wait())
}

// noIdentity is the text of an identity that no task has.
func noIdentity(n int) string {
	var parts []string
	for _, name := range namespaces {
		parts = append(parts, fmt.Sprintf("%s:%d", name, n+1))
	}
	return "bench:" + strings.Join(parts, ",")
}

// programCost waits until the filter of a recorder runs, and looks at its count
// over some time.
func programCost(ctx context.Context, recorder int) (runs uint64, ns float64, err error) {
	for range 600 { // a minute: a busy machine starts slowly
		p, err := findProgram(recorder)
		if err != nil {
			return 0, 0, err
		}
		if p == nil {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return 0, 0, err
			}
			continue
		}
		defer p.Close()
		if err := pause(ctx, filterTime); err != nil {
			return 0, 0, err
		}
		s, err := p.Stats()
		if err != nil {
			return 0, 0, err
		}
		return s.RunCount, float64(s.Runtime) / float64(s.RunCount), nil
	}
	return 0, 0, errors.New("it did not run")
}

// findProgram is the filter that a recorder holds and that has run, or nil. Others
// may record at the same time.
func findProgram(recorder int) (*ebpf.Program, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", recorder))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is closed
		}
		_, rest, ok := strings.Cut(string(text), "\nprog_id:\t")
		if !ok {
			continue
		}
		line, _, _ := strings.Cut(rest, "\n")
		id, err := strconv.ParseUint(line, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%s: prog_id: %w", file, err)
		}
		if p := runningFilter(ebpf.ProgramID(id)); p != nil {
			return p, nil
		}
	}
	return nil, nil
}

// runningFilter is the program if it is a filter that has run, else nil.
func runningFilter(id ebpf.ProgramID) *ebpf.Program {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return nil // it is gone
	}
	info, err := p.Info()
	if err == nil && info.Name == filterProgram {
		if s, err := p.Stats(); err == nil && s.RunCount > 0 {
			return p
		}
	}
	p.Close()
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spinner is a process that keeps a CPU busy.
type spinner struct {
	cmd *exec.Cmd
	pid int // of the shell that spins
}

func startSpinner(ctx context.Context, inside bool) (*spinner, error) {
	args := []string{"sh", "-c", "echo on; while :; do :; done"}
	if inside {
		args = append([]string{"unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child",
			"--user", "--cgroup", "--time"}, args...)
	}
	s := &spinner{cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	s.pid = s.cmd.Process.Pid
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	if inside {
		kids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.pid))
		if err == nil {
			s.pid, err = strconv.Atoi(strings.TrimSpace(string(kids)))
		}
		if err != nil {
			s.stop()
			return nil, err
		}
	}
	return s, nil
}

func (s *spinner) stop() {
	s.cmd.Process.Kill() // an error means that it has ended
	s.cmd.Wait()
}

// identity is the selector of the spinner under the definition.
func (s *spinner) identity() (string, error) {
	var parts []string
	for _, name := range namespaces {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", s.pid, name))
		if err != nil {
			return "", err
		}
		parts = append(parts, strings.NewReplacer("[", "", "]", "").Replace(link))
	}
	return "bench:" + strings.Join(parts, ","), nil
}
