// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gantry_test

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// bpfLoad is a program of scripts that loads BPF programs, runs them and unloads
// them:
//
//	bpfseven TIMES      one that has seven functions; bpfinside is the same
//	bpftail TIMES       one that calls another by its tail
//	bpfbrief LOADS      seven under the name brief, which runs and is unloaded 15 us after its load, again and again
//	bpfbefore CMD...    seven, which runs as long as CMD does
func bpfLoad() {
	if err := bpfLoadMain(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}

// repeat is how often the kernel runs a program in one call.
const repeat = 1000

func bpfLoadMain(args []string) error {
	if len(args) < 1 {
		return errors.New("usage: TIMES, or CMD...")
	}
	name := filepath.Base(os.Args[0])
	if name == "bpfbefore" {
		return bpfAround(args)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	load := testprogs.Seven
	switch name {
	case "bpfbrief":
		return bpfBrief(n)
	case "bpftail":
		load = testprogs.TailCall
	}
	l, err := load()
	if err != nil {
		return err
	}
	defer l.Close()
	for range n / repeat {
		if err := l.Run(repeat); err != nil {
			return err
		}
	}
	return nil
}

// bpfBrief loads programs that live 15 microseconds, and prints how long that was.
func bpfBrief(n int) error {
	b, err := testprogs.NewShortLived()
	if err != nil {
		return err
	}
	defer b.Close()
	var held []time.Duration
	for range n {
		l, err := b.Run("brief", 15*time.Microsecond)
		if err != nil {
			return err
		}
		held = append(held, l.Held)
	}
	slices.Sort(held)
	fmt.Printf("%d programs were closed %v after their load at least, %v in the median\n", n, held[0], held[n/2])
	return nil
}

// cmdBPFContainer starts a runc container that has /app/bpfinside and the right to load BPF programs, and sets
// $NAME_ID:
//
//	bpfcontainer NAME
func cmdBPFContainer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: bpfcontainer NAME")
	}
	program, err := exec.LookPath("bpfinside")
	ts.Check(err)
	e, err := elf.Open(program)
	ts.Check(err)
	defer e.Close()
	if e.Section(".interp") != nil {
		ts.Fatalf("%s needs libraries, which the container has not: run the tests with CGO_ENABLED=0, as make does", program)
	}
	c := testutil.StartContainer(tb(ts), testutil.ContainerSpec{
		Name: args[0], Files: map[string]string{"/app/bpfinside": program}, Capabilities: []string{"CAP_BPF", "CAP_PERFMON"},
	})
	ts.Setenv(args[0]+"_ID", c.ID)
}

func bpfAround(cmd []string) error {
	l, err := testprogs.Seven()
	if err != nil {
		return err
	}
	defer l.Close()
	c := exec.Command(cmd[0], cmd[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case err := <-done:
			return err
		default:
			if err := l.Run(repeat); err != nil {
				c.Process.Kill()
				return err
			}
		}
	}
}
