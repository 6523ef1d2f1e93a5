// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measureUntil is measure for a command that is ended when it, with all that it
// started, has used the CPU for so long. perf works little itself while its helper
// addr2line does, for which it does not wait when it is ended: so a cgroup counts.
func measureUntil(ctx context.Context, limit time.Duration, home string, argv ...string) (c cost, ended bool,
	err error) {
	mount, err := cgroup2Mount()
	if err != nil {
		return cost{}, false, err
	}
	group := filepath.Join(mount, "gantry-bench-capped-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		return cost{}, false, err
	}
	defer func() { err = errors.Join(err, removeCgroup(group)) }()
	fd, err := os.Open(group)
	if err != nil {
		return cost{}, false, err
	}
	defer fd.Close()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HOME="+home, "PAGER=cat", "DEBUGINFOD_URLS=")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return cost{}, false, err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	ended, err = awaitUsage(done, group, limit)
	used, usageErr := cgroupTime(group)
	if err = errors.Join(err, usageErr); err != nil {
		return cost{}, false, fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
	}
	c.cpu = used.Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.rss = float64(usage.Maxrss) / 1024
	}
	return c, ended, nil
}

// awaitUsage waits for the end of a command, and kills its cgroup when that has
// used the CPU for longer than limit.
func awaitUsage(done <-chan error, group string, limit time.Duration) (ended bool, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return false, err
		case <-tick.C:
		}
		used, err := cgroupTime(group)
		if err == nil && used < limit {
			continue
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0))
		<-done
		return true, err
	}
}

// cgroupTime is the CPU time that the processes of a cgroup have used.
func cgroupTime(group string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s: no usage in cpu.stat", group)
}
