// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	"sync"
	"syscall"
	"time"
)

//go:embed load/short.c
var shortSource []byte

const (
	startsRow = "record -a, container starts: what keeping binaries adds"
	// startEvery is 100 containers in ten seconds.
	startEvery = 100 * time.Millisecond
	// namesRow is the recorder in all, of which names and identities are a part:
	// nothing can leave them out.
	namesRow = "record -a, container starts: names and identities, no copies"
	// namesEvery is 20 containers a second.
	namesEvery = 50 * time.Millisecond
	// shortPad is the size of their programs, about.
	shortPad = 2 << 20
	// startsTarget is a share of one CPU.
	startsTarget = 0.05
)

// bundles are containers of runc, each with a program of its own on an overlay.
type bundles struct {
	dir    string
	names  []string
	mounts []string
}

// makeBundles makes n bundles. The programs are one that is patched.
func makeBundles(dir string, n int) (_ *bundles, err error) {
	b := &bundles{dir: filepath.Join(dir, "bundles")}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.remove())
		}
	}()
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return nil, err
	}
	const id = "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"
	source, program := filepath.Join(b.dir, "short.c"), filepath.Join(b.dir, "short")
	if err := os.WriteFile(source, shortSource, 0o666); err != nil {
		return nil, err
	}
	cmd := exec.Command("gcc", "-O2", "-static", "-Wl,--build-id=0x"+id, "-DPAD="+strconv.Itoa(shortPad), "-DNUMBER=1",
		"-o", program, source)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	for i := range n {
		name := fmt.Sprintf("gantry-bench-%d-%d", os.Getpid(), i)
		own := bytes.ReplaceAll(text, bytes.Repeat([]byte{0xa5}, 20), fmt.Appendf(nil, "gantry bench nr.%04d", i))
		if err := b.add(name, own); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *bundles) add(name string, program []byte) error {
	dir := filepath.Join(b.dir, name)
	lower, root := filepath.Join(dir, "lower"), filepath.Join(dir, "rootfs")
	for _, sub := range []string{"lower/app", "lower/proc", "lower/dev", "upper", "work", "rootfs"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	var namespaces []map[string]string
	for _, kind := range []string{"pid", "mount", "ipc", "uts", "network"} {
		namespaces = append(namespaces, map[string]string{"type": kind})
	}
	config, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2", "root": map[string]any{"path": root}, "hostname": name,
		"process": map[string]any{"args": []string{"/app/server"}, "cwd": "/",
			"user": map[string]int{"uid": 0, "gid": 0}},
		"mounts": []map[string]string{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":  map[string]any{"cgroupsPath": "/" + name, "namespaces": namespaces},
	})
	if err := errors.Join(err, os.WriteFile(filepath.Join(lower, "app/server"), program, 0o755),
		os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644)); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, dir, dir)
	if err := syscall.Mount("overlay", root, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	b.names, b.mounts = append(b.names, name), append(b.mounts, root)
	return nil
}

func (b *bundles) remove() error {
	var errs []error
	for _, root := range b.mounts {
		errs = append(errs, syscall.Unmount(root, syscall.MNT_DETACH))
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// run starts a container each so often and waits for all of them.
func (b *bundles) run(ctx context.Context, every time.Duration) error {
	var all sync.WaitGroup
	errs := make([]error, len(b.names))
	for i, name := range b.names {
		if err := pause(ctx, every); err != nil {
			break
		}
		all.Go(func() {
			if out, err := exec.Command("runc", "run", "--bundle", filepath.Join(b.dir, name),
				name).CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("runc run: %w\n%s", err, out)
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// startsRows measures the CPU time that keeping the binaries of containers adds
// to recording them while they start.
func (b *bench) startsRows(ctx context.Context, w io.Writer) (err error) {
	if !strings.Contains(startsRow, b.rows) {
		return nil
	}
	set, err := makeBundles(b.dir, b.size.starts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.remove()) }()
	fmt.Fprintf(b.log, "recording %d container starts\n", b.size.starts)
	var cpu, whole [2][]float64 // without and with
	var seconds float64
	for range b.size.rounds {
		for i, flags := range [][]string{{"--no-buildid-cache"},
			{"--buildid-dir", filepath.Join(b.dir, "starts-store")}} {
			used, all, took, err := b.startsRound(ctx, set, startEvery, flags)
			if err != nil {
				return err
			}
			cpu[i], whole[i], seconds = append(cpu[i], used), append(whole[i], all), took
		}
	}
	added := median(cpu[1]) - median(cpu[0])
	mark := "ok"
	if added > startsTarget*seconds {
		mark = "missed"
	}
	fmt.Fprintf(w, "\n| %s | CPU s without | with | added | of one CPU | target | | with start and end: added "+
		"|\n|---|---|---|---|---|---|---|---|\n", startsRow)
	fmt.Fprintf(w, "| %d in %.0f s, each with another program of %d MB | %.2f | %.2f | %.2f | %.1f %% | %.0f %% | "+
		"%s | %.2f |\n", b.size.starts, seconds,
		shortPad>>20, median(cpu[0]), median(cpu[1]), added, 100*added/seconds, 100*startsTarget, mark,
		median(whole[1])-median(whole[0]))
	return nil
}

// namesRows measures the CPU time of a recorder while containers come and go.
func (b *bench) namesRows(ctx context.Context, w io.Writer) (err error) {
	if !strings.Contains(namesRow, b.rows) {
		return nil
	}
	set, err := makeBundles(b.dir, b.size.starts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, set.remove()) }()
	fmt.Fprintf(b.log, "recording %d container starts, 20 a second\n", b.size.starts)
	var shares []float64
	for range b.size.rounds {
		used, _, took, err := b.startsRound(ctx, set, namesEvery, []string{"--no-buildid-cache"})
		if err != nil {
			return err
		}
		shares = append(shares, used/took)
	}
	mark := "ok"
	if median(shares) > startsTarget {
		mark = "missed"
	}
	fmt.Fprintf(w, "\n| %s | of one CPU | target | |\n|---|---|---|---|\n| %d, 20 a second: the whole recorder | "+
		"%.1f %% | %.0f %% | %s |\n",
		namesRow, b.size.starts, 100*median(shares), 100*startsTarget, mark)
	return nil
}

// startsRound records the containers once. used is the CPU time of the recorder
// while they started and ran, all that of its whole life.
func (b *bench) startsRound(ctx context.Context, set *bundles, every time.Duration,
	flags []string) (used, all, seconds float64, err error) {
	path, store := filepath.Join(b.dir, "starts.data"), filepath.Join(b.dir, "starts-store")
	defer func() { err = errors.Join(err, os.RemoveAll(store), os.RemoveAll(path), os.RemoveAll(path+".old")) }()
	args := append([]string{b.gantry, "record", "-q", "-a", "-e", "cpu-clock", "-F", "999", "-o", path}, flags...)
	run, err := startRun(ctx, b.dir, args...)
	if err != nil {
		return 0, 0, 0, err
	}
	used, seconds, err = run.during(ctx, settle, func() error { return set.run(ctx, every) })
	run.cmd.Process.Signal(os.Interrupt)
	c, waitErr := run.wait()
	return used, c.cpu, seconds, errors.Join(err, waitErr)
}
