// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// loadBare loads a program without BTF, closes it and returns its id.
func loadBare() (uint32, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return 0, err
	}
	id, _ := info.ID()
	return uint32(id), nil
}

// loadBriefly loads n programs on one CPU, and closes each at once.
func loadBriefly(cpu, n int) ([]uint32, error) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return nil, err
	}
	var ids []uint32
	for range n {
		id, err := loadBare()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Two CPUs that load at once have all their programs copied.
func TestLoadersTogether(t *testing.T) {
	testutil.Require(t, testutil.Root)
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	cpus = cpus[:min(2, len(cpus))]
	w, err := OpenWatcher(WatchOptions{NoEvent: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Refused(); err != nil {
		w.Close()
		t.Fatal(err)
	}
	stop := run(t, w)
	const each = 500
	type result struct {
		ids []uint32
		err error
	}
	results := make(chan result, len(cpus))
	for _, cpu := range cpus {
		go func() {
			ids, err := loadBriefly(cpu, each)
			results <- result{ids, err}
		}()
	}
	var ids []uint32
	for range cpus {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		ids = append(ids, r.ids...)
	}
	programs := stop()
	lost, err := w.copier.programs.Lost()
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, id := range ids {
		if p, ok := programs.Program(id); !ok || p.Details == nil {
			missing++
			t.Logf("program %d: %+v, %v", id, p.BPFProgramLife, ok)
		}
	}
	if uint64(missing) > lost {
		t.Errorf("of %d programs %d have no details; %d pieces are told as lost", len(ids), missing, lost)
	}
}
