// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gantry_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
)

// bpfLoad is the program bpfload of scripts, which loads BPF programs, runs them
// and unloads them:
//
//	bpfload seven|tail TIMES     one program that has seven functions, or calls another by its tail
//	bpfload short LOADS          seven, loaded again and again, for some microseconds each
//	bpfload around CMD...        seven, which runs as long as CMD does
func bpfLoad() {
	if err := bpfLoadMain(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bpfload:", err)
		os.Exit(1)
	}
}

// repeat is how often the kernel runs a program in one call.
const repeat = 1000

func bpfLoadMain(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: bpfload seven|tail|short|around ARG...")
	}
	if args[0] == "around" {
		return bpfAround(args[1:])
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	loads, times := 1, n/repeat
	load := testprogs.Seven
	switch args[0] {
	case "tail":
		load = testprogs.TailCall
	case "short":
		loads, times = n, 0
	}
	for range loads {
		l, err := load()
		if err != nil {
			return err
		}
		for range times {
			err = l.Run(repeat)
		}
		if times == 0 {
			err = l.Run(20)
		}
		l.Close()
		if err != nil {
			return err
		}
	}
	return nil
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
