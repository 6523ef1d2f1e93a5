// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestForeignProgram: another tool's BPF program on a tracepoint drops the samples of
// all. The recording says whose, and not that nothing happened.
func TestForeignProgram(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tracefs)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "dropper", Type: ebpf.TracePoint, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	one := func() *recording {
		return record(t, Options{Groups: groups(t, "syscalls:sys_enter_getppid"), Command: &Command{Args: []string{"sh", "-c", ":"}}})
	}
	if rec := one(); rec.res.Foreign || rec.res.Samples == 0 {
		t.Fatalf("%d samples without a program, notes %q", rec.res.Samples, rec.res.Notes)
	}
	at, err := link.Tracepoint("syscalls", "sys_enter_getppid", program, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	rec := one()
	notes := strings.Join(rec.res.Notes, "\n")
	if rec.res.Samples != 0 || !rec.res.Foreign || !strings.Contains(notes, "syscalls:sys_enter_getppid: BPF programs of others") ||
		!strings.Contains(notes, "dropper") || strings.Count(notes, "dropper") != 1 {
		t.Errorf("%d samples, notes %q", rec.res.Samples, notes)
	}
}
