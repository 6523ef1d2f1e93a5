// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// TestHeldMemory: a process that holds its mmap_lock, which any user can, holds up
// no snapshot. All others are complete, and it is told of, unless the kernel shows
// its mappings without the lock, as Linux 6.17 does in /proc.
func TestHeldMemory(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	held := int32(testutil.HoldMemory(t, 65534))
	after := testutil.StartReady(t, exec.Command(testutil.SpinProgram(t, "after_hot"))).Cmd.Process.Pid
	for _, from := range []func() Source{
		func() Source {
			b, err := NewBPF(procfs.New(""))
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		func() Source { return &Proc{FS: procfs.New(""), Clock: sys.ClockMonotonic} },
		func() Source { return &Proc{FS: procfs.New(""), Clock: sys.ClockMonotonic, TextMaps: true} },
	} {
		src := from()
		mappings := make(map[int32]int)
		begun := time.Now()
		stats, err := src.Take(context.Background(), Scope{All: true}, Sink{Record: func(r perf.Record) error {
			if m, ok := r.(*perf.Mmap2); ok {
				mappings[m.PID]++
			}
			return nil
		}})
		took := time.Since(begun)
		if stats.Method == ByBPF { // after that error it is of no more use
			cancelled(t, held)
		}
		if err := src.Close(); err != nil {
			t.Error(err)
		}
		t.Logf("%s took %v: %+v", stats.Method, took, stats)
		told := slices.Equal(stats.HeldUp, []int32{held})
		if err != nil || told == (mappings[held] > 0) || !told && len(stats.HeldUp) > 0 {
			t.Errorf("%s: %v, held up by %v; %d has %d mappings", stats.Method, err, stats.HeldUp, held, mappings[held])
		}
		for _, pid := range []int32{int32(os.Getpid()), int32(after)} {
			if mappings[pid] == 0 {
				t.Errorf("%s: process %d has no mappings", stats.Method, pid)
			}
		}
	}
}

// cancelled checks that a snapshot which is held up ends with its context.
func cancelled(t *testing.T, held int32) {
	b, err := NewBPF(procfs.New(""))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, err = b.Take(ctx, Scope{All: true}, Sink{Record: func(r perf.Record) error {
		if c, ok := r.(*perf.Comm); ok && c.PID == held {
			cancel() // before its mappings are read
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestListerLeftBehind: a process that does not come back from the kernel costs the
// others a bounded time, and is told of.
func TestListerLeftBehind(t *testing.T) {
	var r mapReader
	r.init(&Proc{FS: procfs.New("")})
	defer r.close()
	// A directory in place of /proc whose maps is a pipe that nobody writes to.
	root := t.TempDir()
	dir := filepath.Join(root, "proc", "7")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "maps"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever waits for it gets an end
		for range 16 {
			if f, err := os.OpenFile(filepath.Join(dir, "maps"), os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				f.Close()
			}
		}
	})
	r.useText()
	held := procfs.New(root).Proc(7)
	for range 12 {
		if err := r.each(held, 0, nil); !errors.Is(err, procroot.ErrTimeout) {
			t.Fatal(err)
		}
	}
	if r.left < -16*minHeldUp {
		t.Errorf("%v too long", -r.left)
	}
	found := 0
	if err := r.each(procfs.New("").Self(), 0, func(*perf.Mmap2) error { found++; return nil }); err != nil ||
		found == 0 {
		t.Errorf("%d mappings of this process, %v", found, err)
	}
}
