// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cost is what a finished process used.
type cost struct {
	cpu float64 // seconds, user and system
	rss float64 // peak, megabytes
}

// process is a command that runs.
type process struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// startRun runs a command with its output thrown away. Home is an empty
// directory, so that no configuration and no symbol cache of the user counts.
func startRun(ctx context.Context, home string, argv ...string) (*process, error) {
	r := &process{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	r.cmd.Env = append(os.Environ(), "HOME="+home, "PAGER=cat", "DEBUGINFOD_URLS=")
	// A recorder is asked to end before it is killed.
	r.cmd.Cancel = func() error { return r.cmd.Process.Signal(os.Interrupt) }
	r.cmd.WaitDelay = 10 * time.Second
	r.cmd.Stderr = &r.stderr
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	return r, nil
}

// wait gives what the command used in all.
func (r *process) wait() (cost, error) {
	if err := r.cmd.Wait(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", strings.Join(r.cmd.Args, " "), err, r.stderr.Bytes())
	}
	usage, ok := r.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, fmt.Errorf("%s: no resource usage", r.cmd.Path)
	}
	seconds := r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	return cost{cpu: seconds.Seconds(), rss: float64(usage.Maxrss) / 1024}, nil
}

// measure runs a command to its end.
func measure(ctx context.Context, home string, argv ...string) (cost, error) {
	r, err := startRun(ctx, home, argv...)
	if err != nil {
		return cost{}, err
	}
	return r.wait()
}

// between waits, and then measures for a time: how much CPU time the threads of
// the command had, and in which time.
func (r *process) between(ctx context.Context, wait, d time.Duration) (cpu, elapsed float64, err error) {
	return r.during(ctx, wait, func() error { return pause(ctx, d) })
}

// during waits, and then measures while f runs.
func (r *process) during(ctx context.Context, wait time.Duration, f func() error) (cpu, elapsed float64, err error) {
	if err := pause(ctx, wait); err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	before, err := r.threadTime()
	if err != nil {
		return 0, 0, err
	}
	if err := f(); err != nil {
		return 0, 0, err
	}
	after, err := r.threadTime()
	return after - before, time.Since(begun).Seconds(), err
}

var errEnded = errors.New("it has ended, or this kernel has no schedstat")

// begun waits until the command has written to a file, as a recorder does when it
// records, which on a busy machine may be later than settle.
func (r *process) begun(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s records nothing: %w", strings.Join(r.cmd.Args, " "), err)
		}
	}
}

// threadTime is how many seconds the threads of the command had a CPU.
func (r *process) threadTime() (float64, error) {
	sum, err := threadTime(r.cmd.Process.Pid)
	if err == nil && sum == 0 {
		err = fmt.Errorf("%s: %w", strings.Join(r.cmd.Args, " "), errEnded)
	}
	return sum, err
}

// threadTime is how many seconds the threads of a process had a CPU. The scheduler
// counts nanoseconds, where times and rusage may count ticks.
func threadTime(pid int) (float64, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range threads {
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		var ns float64
		if _, err := fmt.Sscan(string(text), &ns); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		sum += ns / 1e9
	}
	return sum, nil
}

// samples are the costs of one command over the rounds.
type samples struct{ cpu, rss []float64 }

func (s *samples) add(c cost) {
	s.cpu = append(s.cpu, c.cpu)
	s.rss = append(s.rss, c.rss)
}

func (s *samples) median() cost { return cost{median(s.cpu), median(s.rss)} }
