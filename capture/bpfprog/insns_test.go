// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/gantry-tools/gantry/internal/linux/bpf/loads"
	"github.com/gantry-tools/gantry/internal/linux/bpf/testprogs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// loadInstructions loads one program of every instruction that the kernel tells
// otherwise than it keeps it: constants that are maps or values of maps,
// and reads that may fail. It stays until the test ends.
func loadInstructions(t *testing.T) uint32 {
	t.Helper()
	var task *btf.Struct
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	if err := types.TypeByName("task_struct", &task); err != nil {
		t.Fatal(err)
	}
	at := int16(-1)
	for _, m := range task.Members {
		if m.Name == "nsproxy" {
			at = int16(m.Offset.Bytes())
		}
	}
	if at < 0 {
		t.Fatal("no task_struct.nsproxy")
	}
	code := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord), // the task
		asm.LoadMem(asm.R6, asm.R6, at, asm.DWord),
		asm.LoadMem(asm.R7, asm.R6, 0, asm.Word),
		asm.LoadMemSX(asm.R7, asm.R6, 0, asm.Word),
		asm.LoadImm(asm.R7, 0x123456789abcdef0, asm.DWord),
	}
	for _, spec := range []ebpf.MapSpec{
		{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4},
		{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1},
		{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 4},
		{Type: ebpf.Array, KeySize: 4, ValueSize: 13, MaxEntries: 1},
	} {
		m, err := ebpf.NewMap(&spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		code = append(code, asm.LoadMapPtr(asm.R8, m.FD()))
		if spec.Type == ebpf.Array && spec.MaxEntries == 1 {
			code = append(code, asm.LoadMapValue(asm.R9, m.FD(), 0), asm.LoadMapValue(asm.R9, m.FD(), 12))
		}
	}
	code = append(code, asm.FnKtimeGetNs.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_process_exit", License: "GPL", Instructions: code,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	return uint32(id)
}

// The copy has the translated instructions that the kernel tells who asks.
func TestInstructions(t *testing.T) {
	testutil.Require(t, testutil.Root)
	o := WatchOptions{NoEvent: true}
	announcements := announced(&o)
	stop := watch(t, o)
	own, err := loads.Load() // callbacks, variables, an iterator
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	tail, err := testprogs.TailCall()
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	caller, err := tail.ID()
	if err != nil {
		t.Fatal(err)
	}
	all, last := loadInstructions(t), uint32(0)
	_, last = loadSeven(t)
	await(t, announcements, last)
	compared := make(map[uint32]bool)
	stop().Programs(func(p *Program) {
		if p.Loader == nil || int(p.Loader.PID) != os.Getpid() || p.Route != perfdata.BPFRouteKernel {
			return
		}
		want, err := new(Reader).Read(p.ID)
		if errors.Is(err, fs.ErrNotExist) {
			return // a probe of the library's
		}
		if err != nil {
			t.Error(err)
			return
		}
		compared[p.ID] = true
		if len(want.Xlated) == 0 || !bytes.Equal(want.Xlated, p.Details.Xlated) {
			t.Errorf("program %d, %s: copied\n%x\nwant\n%x", p.ID, p.Name, p.Details.Xlated, want.Xlated)
		}
	})
	for _, id := range []uint32{caller, all, last} {
		if !compared[id] {
			t.Errorf("program %d was not copied", id)
		}
	}
	if len(compared) < 6 { // two of loads, caller and called
		t.Errorf("%d programs were copied", len(compared))
	}
}
