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
	"strconv"
	"strings"
)

//go:embed load/crowd.c
var crowdSource []byte

const (
	crowdRow = "tracing namespaces: crowds"
	// neighbours write to another namespace at full speed; crowdTarget is by how much that
	// may slow a write, against as many programs that only use the CPU.
	neighbours  = 8
	crowdTarget = 1.5
	crowdSpaces = 100
	crowdEvents = 100
)

// crowdRows measures many writers and many namespaces.
func (b *bench) crowdRows(ctx context.Context, w io.Writer) (err error) {
	if !strings.Contains(crowdRow, b.rows) {
		return nil
	}
	fmt.Fprintf(b.log, "crowding tracing namespaces\n")
	dir, mount := filepath.Join(b.dir, "crowd"), filepath.Join(b.dir, "crowd", "namespaces")
	for _, err := range []error{
		os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, "crowd.c"), crowdSource, 0o666),
		os.WriteFile(filepath.Join(dir, "userevents.c"), userEventsSource, 0o666),
		gcc(dir, "crowd", "crowd.c", "-pthread"), gcc(dir, "userevents", "userevents.c"),
	} {
		if err != nil {
			return err
		}
	}
	server, err := startRun(ctx, b.dir, b.gantry, "ns", "mount", mount)
	if err != nil {
		return err
	}
	defer func() {
		_ = server.cmd.Process.Signal(os.Interrupt)
		_, waitErr := server.wait()
		err = errors.Join(err, waitErr)
	}()
	if err := awaitMount(ctx, mount); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n| %s | | target | |\n|---|---|---|---|\n", crowdRow)
	if err := b.neighbourRows(ctx, w, dir, mount); err != nil {
		return err
	}
	return manySpaces(ctx, w, server, dir, mount)
}

// neighbourRows measures a write while nothing else runs, beside programs that use the CPU,
// and beside as many that write to another namespace.
func (b *bench) neighbourRows(ctx context.Context, w io.Writer, dir, mount string) error {
	for _, name := range []string{"one", "other"} {
		if err := os.Mkdir(filepath.Join(mount, name), 0o755); err != nil {
			return err
		}
	}
	write := []string{"write", filepath.Join(mount, "other/root/user_events_data")}
	var alone, spinning, writing []float64
	for range max(b.size.rounds, 3) {
		for _, r := range []struct {
			args []string
			to   *[]float64
		}{{nil, &alone}, {[]string{"spin"}, &spinning}, {write, &writing}} {
			us, err := besideCrowd(ctx, dir, mount, r.args)
			if err != nil {
				return err
			}
			*r.to = append(*r.to, us)
		}
	}
	ratio := median(writing) / median(spinning)
	fmt.Fprintf(w, "| a write, nothing else runs: us | %.1f | | |\n", median(alone))
	fmt.Fprintf(w, "| beside %d programs that use the CPU: us | %.1f | | |\n", neighbours, median(spinning))
	fmt.Fprintf(w, "| beside %d that write to another namespace: us; of that | %.1f; %.2f | %.1f | %s |\n", neighbours,
		median(writing), ratio, crowdTarget, mark(ratio <= crowdTarget))
	return nil
}

// besideCrowd is how many microseconds a write takes beside other programs.
func besideCrowd(ctx context.Context, dir, mount string, args []string) (us float64, err error) {
	var stops []func() error
	defer func() {
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
	}()
	if args != nil {
		for range neighbours {
			stop, err := startCrowd(ctx, filepath.Join(dir, "crowd"), args...)
			if err != nil {
				return 0, err
			}
			stops = append(stops, stop)
		}
		if args[0] == "write" {
			enable := filepath.Join(mount, "other/root/events/crowd/enable")
			if err := os.WriteFile(enable, []byte("1"), 0); err != nil {
				return 0, err
			}
		}
	}
	us, _, err = userEventsRound(ctx, filepath.Join(dir, "userevents"), filepath.Join(mount, "one/root"))
	return us, err
}

// startCrowd starts a program and waits until it is ready; stop ends it.
func startCrowd(ctx context.Context, prog string, args ...string) (stop func() error, err error) {
	cmd := exec.CommandContext(ctx, prog, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		in.Close()
		return cmd.Wait()
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", cmd, err), stop())
	}
	return stop, nil
}

// manySpaces makes namespaces and registers events in them.
func manySpaces(ctx context.Context, w io.Writer, server *process, dir, mount string) (err error) {
	var stop func() error
	cpu, took, err := server.during(ctx, 0, func() error {
		for i := range crowdSpaces {
			if err := os.Mkdir(filepath.Join(mount, fmt.Sprintf("space%d", i)), 0o755); err != nil {
				return err
			}
		}
		var err error
		stop, err = startCrowd(ctx, filepath.Join(dir, "crowd"), "register", mount, strconv.Itoa(crowdSpaces),
			strconv.Itoa(crowdEvents))
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	memory, err := memoryOf(server.cmd.Process.Pid)
	if err != nil {
		return err
	}
	us, _, err := userEventsRound(ctx, filepath.Join(dir, "userevents"), filepath.Join(mount, "one/root"))
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "| %d namespaces with %d events each: s; CPU s and MB of the server | %.2f; %.2f, %.0f | | |\n",
		crowdSpaces, crowdEvents, took, cpu, memory)
	fmt.Fprintf(w, "| a write beside them: us | %.1f | | |\n", us)
	return nil
}
