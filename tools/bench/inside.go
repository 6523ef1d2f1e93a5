// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed load/opens.c
var opensSource []byte

const (
	insideRow = "inside a container: what an event, perf and the agent cost there"
	// Targets of the issue: microseconds added to an open, times perf's start on the
	// host, share of a CPU, megabytes.
	allTarget, taskTarget = 40, 100
	insideStartTarget     = 1.5
	idleTarget            = 0.001
	idleMemoryTarget      = 30
	opensCount            = 2000
)

// insideContainer is a container of runc with the host's programs, which has no
// privileges and sleeps.
type insideContainer struct{ name, root, opens string }

func startInside(dir string) (c *insideContainer, err error) {
	c = &insideContainer{name: fmt.Sprintf("gantry-bench-%d-inside", os.Getpid())}
	bundle := filepath.Join(dir, "inside")
	c.root = filepath.Join(bundle, "rootfs")
	for _, sub := range []string{"app", "proc", "tmp", "usr", "lib", "lib64", "bin", "sbin"} {
		if err := os.MkdirAll(filepath.Join(c.root, sub), 0o755); err != nil {
			return nil, err
		}
	}
	source := filepath.Join(bundle, "opens.c")
	c.opens = filepath.Join(c.root, "app/opens")
	if err := os.WriteFile(source, opensSource, 0o666); err != nil {
		return nil, err
	}
	if msg, err := exec.Command("gcc", "-O2", "-static", "-o", c.opens, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	mounts := []map[string]any{{"destination": "/proc", "type": "proc", "source": "proc"}}
	for _, path := range []string{"/usr", "/lib", "/lib64", "/bin", "/sbin"} {
		if _, err := os.Stat(path); err == nil {
			mounts = append(mounts, map[string]any{"destination": path, "type": "bind", "source": path,
				"options": []string{"rbind", "ro"}})
		}
	}
	var namespaces []map[string]string
	for _, kind := range []string{"pid", "mount", "ipc", "uts", "network", "cgroup"} {
		namespaces = append(namespaces, map[string]string{"type": kind})
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2", "root": map[string]any{"path": c.root}, "hostname": "inside",
		"process": map[string]any{"args": []string{"/bin/sleep", "3600"}, "cwd": "/", "env": []string{"PATH=/usr/bin:/bin"},
			"user": map[string]int{"uid": 0, "gid": 0}},
		"mounts": mounts,
		"linux":  map[string]any{"cgroupsPath": "/" + c.name, "namespaces": namespaces},
	})
	if err = errors.Join(err, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644)); err != nil {
		return nil, err
	}
	cmd := exec.Command("runc", "run", "--detach", "--bundle", bundle, c.name)
	log, err := os.Create(filepath.Join(bundle, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("runc run: %w\n%s", err, text)
	}
	return c, nil
}

func (c *insideContainer) remove() error {
	return exec.Command("runc", "delete", "--force", c.name).Run()
}

// insideRows measures what the broker adds.
func (b *bench) insideRows(ctx context.Context, w io.Writer) (err error) {
	if !strings.Contains(insideRow, b.rows) {
		return nil
	}
	fmt.Fprintf(b.log, "opening events inside a container\n")
	c, err := startInside(b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.remove()) }()
	fmt.Fprintf(w, "\n| %s | host us | inside us | added | target | |\n|---|---|---|---|---|---|\n", insideRow)
	for _, one := range []bool{true, false} {
		if err := b.opens(ctx, w, c, one); err != nil {
			return err
		}
	}
	if err := b.insideStart(ctx, w, c); err != nil {
		return err
	}
	return b.agentIdle(ctx, w)
}

// opens measures single events, of a program on one CPU or anywhere: where there are
// idle CPUs each switch between processes wakes one up.
func (b *bench) opens(ctx context.Context, w io.Writer, c *insideContainer, one bool) error {
	where, more := "any CPU", []string(nil)
	if one {
		where, more = "on one CPU", []string{"one"}
	}
	for _, kind := range []struct {
		name, arg string
		target    float64
	}{{"of the container (-a)", "all", allTarget}, {"of a task", "task", taskTarget}} {
		var host, inside []float64
		for range max(b.size.rounds, 3) {
			n := strconv.Itoa(opensCount)
			for _, run := range []struct {
				argv []string
				took *[]float64
			}{
				{append([]string{c.opens, kind.arg, n}, more...), &host},
				{append([]string{b.gantry, "exec", c.name, "--", "/app/opens", kind.arg, n}, more...), &inside},
			} {
				out, err := exec.CommandContext(ctx, run.argv[0], run.argv[1:]...).Output()
				if err != nil {
					return fmt.Errorf("%s: %w", strings.Join(run.argv, " "), err)
				}
				ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
				if err != nil {
					return err
				}
				*run.took = append(*run.took, ns/1000)
			}
		}
		added := median(inside) - median(host)
		fmt.Fprintf(w, "| an event %s, %s | %.1f | %.1f | %.1f | %.0f | %s |\n", kind.name, where, median(host),
			median(inside), added, kind.target, mark(added <= kind.target))
	}
	return nil
}

func mark(ok bool) string {
	if ok {
		return "ok"
	}
	return "missed"
}

// insideStart compares perf record -a of nothing on the host, and inside.
func (b *bench) insideStart(ctx context.Context, w io.Writer, c *insideContainer) error {
	var host, inside samples
	for range max(b.size.rounds, 3) {
		for _, run := range []struct {
			argv []string
			cost *samples
		}{
			{[]string{b.perf, "record", "-q", "-a", "-o", filepath.Join(b.dir, "start.data"), "--", "true"}, &host},
			{[]string{b.gantry, "exec", c.name, "--", "perf", "record", "-q", "-a", "-o", "/tmp/start.data", "--", "true"},
				&inside},
		} {
			one, err := measure(ctx, b.dir, run.argv...)
			if err != nil {
				return err
			}
			run.cost.add(one)
		}
	}
	h, i := host.median().cpu, inside.median().cpu
	fmt.Fprintf(w, "\n| perf record -a -- true | host CPU s | inside CPU s | ratio | target | |\n"+
		"|---|---|---|---|---|---|\n| gantry exec and perf | %.3f | %.3f | %.2f | %.1f | %s |\n", h, i, i/h,
		insideStartTarget,
		mark(i <= h*insideStartTarget))
	return nil
}

// agentIdle measures an agent that nobody asks for anything.
func (b *bench) agentIdle(ctx context.Context, w io.Writer) (err error) {
	run, err := startRun(ctx, b.dir, b.gantry, "agent", "--seccomp-socket", filepath.Join(b.dir, "seccomp.sock"),
		"--socket", filepath.Join(b.dir, "client/agent.sock"), "--tracing-dir", filepath.Join(b.dir, "tracing"))
	if err != nil {
		return err
	}
	defer func() {
		_ = run.cmd.Process.Signal(os.Interrupt)
		_, waitErr := run.wait()
		err = errors.Join(err, waitErr)
	}()
	worker, err := childOf(ctx, run.cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	before, err := cpuOf(run.cmd.Process.Pid, worker)
	if err != nil {
		return err
	}
	const quiet = 10 * time.Second
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	after, err := cpuOf(run.cmd.Process.Pid, worker)
	if err != nil {
		return err
	}
	memory, err := memoryOf(run.cmd.Process.Pid, worker)
	if err != nil {
		return err
	}
	share := (after - before) / quiet.Seconds()
	fmt.Fprintf(w, "\n| agent, idle | of one CPU | target | | MB (PSS) | target | |\n|---|---|---|---|---|---|---|\n"+
		"| supervisor and worker | %.3f %% | %.1f %% | %s | %.1f | %d | %s |\n", 100*share, 100*idleTarget,
		mark(share <= idleTarget), memory, idleMemoryTarget, mark(memory <= idleMemoryTarget))
	return nil
}

// childOf waits for the only child of a process.
func childOf(ctx context.Context, pid int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		if err != nil {
			return 0, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if f := strings.Fields(string(text)); err == nil && len(f) == 1 {
				return strconv.Atoi(f[0])
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, fmt.Errorf("process %d has no child: %w", pid, err)
		}
	}
}

// cpuOf is how many seconds processes had a CPU.
func cpuOf(pids ...int) (sum float64, err error) {
	for _, pid := range pids {
		one, err := threadTime(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}

// memoryOf is the memory of processes in megabytes; what they share counts once.
func memoryOf(pids ...int) (sum float64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			var kB float64
			if n, err := fmt.Sscanf(line, "Pss: %f kB", &kB); n == 1 && err == nil {
				sum += kB / 1024
			}
		}
	}
	return sum, nil
}
