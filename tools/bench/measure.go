// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// cost is what a finished process used.
type cost struct {
	cpu float64 // seconds, user and system
	rss float64 // peak, megabytes
}

// measure runs a command with its output thrown away. Home is an empty
// directory, so that no configuration and no symbol cache of the user counts.
func measure(ctx context.Context, home string, argv ...string) (cost, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+home, "PAGER=cat", "DEBUGINFOD_URLS=")
	// A recorder is asked to end before it is killed.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, stderr.Bytes())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, fmt.Errorf("%s: no resource usage", argv[0])
	}
	seconds := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return cost{cpu: seconds.Seconds(), rss: float64(usage.Maxrss) / 1024}, nil
}

// samples are the costs of one command over the rounds.
type samples struct{ cpu, rss []float64 }

func (s *samples) add(c cost) {
	s.cpu = append(s.cpu, c.cpu)
	s.rss = append(s.rss, c.rss)
}

func (s *samples) median() cost { return cost{median(s.cpu), median(s.rss)} }
