// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
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

//go:embed load/stacks.c
var stacksSource []byte

// load is a number of busy process trees, each in a cgroup of its own: a Go
// build and a C build (short processes, large binaries), a shell pipeline
// (shorter ones), and deep stacks of a program with frame pointers.
type load struct {
	root     string // cgroup directory
	commands []*exec.Cmd
}

func startLoad(ctx context.Context, dir string) (_ *load, err error) {
	mount, err := cgroup2Mount()
	if err != nil {
		return nil, err
	}
	l := &load{root: filepath.Join(mount, "gantry-bench-"+strconv.Itoa(os.Getpid()))}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.stop())
		}
	}()
	if err := compileStacks(dir); err != nil {
		return nil, err
	}
	for name, script := range map[string]string{
		"gobuild": "while :; do go build -a -o /dev/null encoding/json net/http; done",
		"gcc":     "while :; do gcc -O2 -c -o /dev/null stacks.c; done",
		"shell":   "while :; do ls -lR /usr/lib | sort | uniq -c | md5sum; done",
		"stacks":  "./stacks",
	} {
		if err := l.start(ctx, dir, name, script); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	return l, nil
}

// compileStacks writes the deep-stack program to dir and compiles it there.
func compileStacks(dir string) error {
	source := filepath.Join(dir, "stacks.c")
	if err := os.WriteFile(source, stacksSource, 0o666); err != nil {
		return err
	}
	cmd := exec.Command("gcc", "-O2", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o",
		filepath.Join(dir, "stacks"), source)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	return nil
}

// start runs a shell script in a new cgroup.
func (l *load) start(ctx context.Context, dir, name, script string) error {
	group := filepath.Join(l.root, name)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	fd, err := os.Open(group)
	if err != nil {
		return err
	}
	defer fd.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(dir, "gocache"), "GOFLAGS=",
		// They are killed and leave temporary files.
		"TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd()), Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.commands = append(l.commands, cmd)
	return nil
}

// stop kills every process of the load and removes its cgroups.
func (l *load) stop() error {
	var errs []error
	if err := os.WriteFile(filepath.Join(l.root, "cgroup.kill"), []byte("1"), 0); err != nil {
		errs = append(errs, err)
	}
	for _, cmd := range l.commands {
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			errs = append(errs, err)
		}
	}
	groups, err := filepath.Glob(filepath.Join(l.root, "*", "cgroup.procs"))
	errs = append(errs, err)
	for _, procs := range groups {
		errs = append(errs, removeCgroup(filepath.Dir(procs)))
	}
	return errors.Join(append(errs, removeCgroup(l.root))...)
}

// removeCgroup removes a cgroup whose processes have been killed: they are in
// it until they are reaped.
func removeCgroup(dir string) error {
	for range 1000 { // a busy machine takes its time
		if err := syscall.Rmdir(dir); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: syscall.EBUSY}
}

func cgroup2Mount() (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errors.New("no cgroup2 is mounted")
}
