// SPDX-License-Identifier: Apache-2.0

//go:build linux

package seccomp

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// call is struct seccomp_data, as the virtual machine of package bpf reads words: the
// most significant byte first.
func call(arch, nr uint32, args ...uint32) []byte {
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b[offsetNr:], nr)
	binary.BigEndian.PutUint32(b[offsetArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(b[offsetArgs+argSize*i:], a)
	}
	return b
}

func TestFilter(t *testing.T) {
	f := New(Fail(38))
	f.CallIf(Kill, "close", Cond{Arg: 0, Test: bpf.JumpEqual, Val: 3})
	f.CallIf(Allow, "perf_event_open",
		Cond{Arg: 1, Test: bpf.JumpEqual, Val: 7}, Cond{Arg: 4, Test: bpf.JumpBitsSet, Val: 4})
	f.Call(Allow, "close", "ppoll")
	vm, err := bpf.NewVM(f.Instructions(Notify))
	if err != nil {
		t.Fatal(err)
	}
	nr := func(name string) uint32 { return uint32(sys.SyscallNumbers[name]) }
	for _, tt := range []struct {
		what string
		data []byte
		want Action
	}{
		{"no rule", call(sys.AuditArch, 9999), Notify},
		{"a rule", call(sys.AuditArch, nr("ppoll")), Allow},
		{"the first of two", call(sys.AuditArch, nr("close"), 3), Kill},
		{"the second", call(sys.AuditArch, nr("close"), 4), Allow},
		{"both conditions", call(sys.AuditArch, nr("perf_event_open"), 0, 7, 0, 0, 12), Allow},
		{"only one", call(sys.AuditArch, nr("perf_event_open"), 0, 7, 0, 0, 8), Notify},
		{"only the other", call(sys.AuditArch, nr("perf_event_open"), 0, 8, 0, 0, 4), Notify},
		{"another architecture", call(0x40000003, nr("ppoll")), Fail(38)},
		{"x32", call(sys.AuditArch, x32Bit|nr("ppoll")), Fail(38)},
	} {
		got, err := vm.Run(tt.data)
		if err != nil || Action(uint32(got)) != tt.want {
			t.Errorf("%s: %#x, %v, want %#x", tt.what, got, err, tt.want)
		}
	}
	raw, n, err := f.Encode(Notify)
	if err != nil || len(raw) != 8*n || n != len(f.Instructions(Notify)) {
		t.Errorf("%d bytes of %d instructions: %v", len(raw), n, err)
	}
	f.Call(Allow, "no_such_call")
	if _, _, err := f.Encode(Notify); err == nil {
		t.Error("a call that does not exist is taken")
	}
}
