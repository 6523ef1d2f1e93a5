// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed load/userevents.c
var userEventsSource []byte

const (
	userEventsRow = "tracing namespaces: what a user event costs"
	// Targets: microseconds of a write, nanoseconds of the test of a disabled event.
	writeTarget, disabledTarget = 10, 1
	userEvents                  = 20000
)

// userEventsRows measures the kernel's interface through the file system.
func (b *bench) userEventsRows(ctx context.Context, w io.Writer) (err error) {
	if !strings.Contains(userEventsRow, b.rows) {
		return nil
	}
	fmt.Fprintf(b.log, "writing user events\n")
	dir, source, prog := filepath.Join(b.dir, "namespaces"), filepath.Join(b.dir, "userevents.c"),
		filepath.Join(b.dir, "userevents")
	if err := os.WriteFile(source, userEventsSource, 0o666); err != nil {
		return err
	}
	if msg, err := exec.Command("gcc", "-O2", "-o", prog, source).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, msg)
	}
	run, err := startRun(ctx, b.dir, b.gantry, "ns", "mount", dir)
	if err != nil {
		return err
	}
	defer func() {
		_ = run.cmd.Process.Signal(os.Interrupt)
		_, waitErr := run.wait()
		err = errors.Join(err, waitErr)
	}()
	if err := awaitMount(ctx, dir); err != nil {
		return err
	}
	space := filepath.Join(dir, "bench")
	if err := os.Mkdir(space, 0o755); err != nil {
		return err
	}
	var writes, idle []float64
	for range max(b.size.rounds, 3) {
		us, ns, err := userEventsRound(ctx, prog, filepath.Join(space, "root"))
		if err != nil {
			return err
		}
		writes, idle = append(writes, us), append(idle, ns)
	}
	fmt.Fprintf(w, "\n| %s | median | target | |\n|---|---|---|---|\n", userEventsRow)
	fmt.Fprintf(w, "| a write of 20 bytes through user_events_data: us | %.1f | %d | %s |\n", median(writes), writeTarget,
		mark(median(writes) <= writeTarget))
	fmt.Fprintf(w, "| the test of a disabled event in C: ns | %.2f | %d | %s |\n", median(idle), disabledTarget,
		mark(median(idle) <= disabledTarget))
	return nil
}

// awaitMount waits until something is mounted at a directory.
func awaitMount(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var at, above syscall.Stat_t
		if syscall.Stat(dir, &at) == nil && syscall.Stat(filepath.Dir(dir), &above) == nil && at.Dev != above.Dev {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("nothing is mounted at %s: %w", dir, err)
		}
	}
}

// userEventsRound runs the program once: microseconds of a write, nanoseconds of a test.
func userEventsRound(ctx context.Context, prog, root string) (us, ns float64, err error) {
	cmd := exec.CommandContext(ctx, prog, filepath.Join(root, "user_events_data"), fmt.Sprint(userEvents))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n')
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "events/bench/enable"), []byte("1"), 0)
	}
	if err == nil {
		_, err = fmt.Fscan(lines, &us, &ns)
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	return us / 1000, ns, errors.Join(err, cmd.Wait())
}
