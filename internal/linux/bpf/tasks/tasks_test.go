// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tasks

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func load(t *testing.T) *Programs {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.BTF, testutil.Kernel("5.17"))
	p, err := Load()
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func noPause() error { return nil }

// Package snapshot compares with /proc.
func TestPrograms(t *testing.T) {
	p := load(t)
	self := uint32(os.Getpid())
	for range 2 { // files are told of once, and stay known
		var task Task
		if err := p.Tasks(func(k *Task) error {
			if k.TID == self {
				task = *k
			}
			return nil
		}, noPause); err != nil {
			t.Fatal(err)
		}
		if task.PID != self || task.PPID != uint32(os.Getppid()) || task.KernelThread() {
			t.Errorf("this task is %+v", task)
		}
		var paths []string
		if err := p.Mappings(context.Background(), time.Minute, func(m *Mapping) error {
			if m.PID == self {
				paths = append(paths, m.File.Path)
			}
			return nil
		}, noPause); err != nil {
			t.Fatal(err)
		}
		exe, err := os.Readlink("/proc/self/exe")
		if err != nil || len(paths) == 0 || paths[0] != exe {
			t.Errorf("mapped are %q, want %q first (%v)", paths, exe, err)
		}
	}
}

func TestErrorsEndAPass(t *testing.T) {
	stop := errors.New("stop")
	p := load(t)
	if err := p.Tasks(func(*Task) error { return stop }, noPause); !errors.Is(err, stop) {
		t.Errorf("error of the function: %v", err)
	}
	n := 0
	count := func(*Task) error { n++; return nil }
	if err := p.Tasks(count, func() error { return stop }); !errors.Is(err, stop) || n == 0 {
		t.Errorf("error of the pause after %d tasks: %v", n, err)
	}
	n = 0
	if err := p.Tasks(count, noPause); err != nil || n == 0 {
		t.Errorf("a pass after one that was ended: %d tasks, %v", n, err)
	}
}

func TestCloseTwice(t *testing.T) {
	p := load(t)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
