// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package seccomp makes seccomp filters: a list of rules about system calls, and
// what happens to all others.
//
// Start with New, add rules with Call and CallIf, and give Instructions to the
// kernel. The first rule that holds decides. See linux/seccomp.h and seccomp(2).
package seccomp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Action is what the kernel does with a call.
type Action uint32

// Actions.
const (
	Allow  Action = 0x7fff0000
	Notify Action = 0x7fc00000 // the holder of the listener answers it
	Kill   Action = 0x80000000 // the process ends
)

// Fail is the Action of a call that returns errno and does nothing.
func Fail(errno uint16) Action { return 0x00050000 | Action(errno) }

// Cond is a condition on the lower 32 bits of an argument, counted from 0.
type Cond struct {
	Arg  int
	Test bpf.JumpTest
	Val  uint32
}

// Offsets in struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
	argSize    = 8 // the lower half first: all our machines are little-endian

	x32Bit = 0x40000000
	word   = 4
)

// Filter is a list of rules.
type Filter struct {
	code []bpf.Instruction
	err  error
}

// New returns a filter without rules. foreign is what happens to calls of another
// architecture and of the x32 ABI, whose numbers the rules do not mean.
func New(foreign Action) *Filter {
	return &Filter{code: []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: word},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: sys.AuditArch, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(foreign)},
		bpf.LoadAbsolute{Off: offsetNr, Size: word},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1},
		bpf.RetConstant{Val: uint32(foreign)},
	}}
}

// Call adds a rule: what happens to these system calls.
func (f *Filter) Call(a Action, names ...string) {
	for _, name := range names {
		f.CallIf(a, name)
	}
}

// CallIf adds a rule: what happens to a system call whose arguments meet all
// conditions. Encode tells of a name that sys.SyscallNumbers does not have.
func (f *Filter) CallIf(a Action, name string, conds ...Cond) {
	nr, ok := sys.SyscallNumbers[name]
	if !ok {
		f.err = fmt.Errorf("seccomp filter: no system call %q", name)
		return
	}
	body := []bpf.Instruction{bpf.RetConstant{Val: uint32(a)}}
	for i := len(conds) - 1; i >= 0; i-- {
		c := conds[i]
		test := []bpf.Instruction{
			bpf.LoadAbsolute{Off: uint32(offsetArgs + argSize*c.Arg), Size: word},
			bpf.JumpIf{Cond: c.Test, Val: c.Val, SkipFalse: uint8(len(body))},
		}
		body = append(test, body...)
	}
	f.code = append(f.code, bpf.LoadAbsolute{Off: offsetNr, Size: word},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(nr), SkipFalse: uint8(len(body))})
	f.code = append(f.code, body...)
}

// Instructions are the filter, with what happens to calls that no rule is about.
func (f *Filter) Instructions(others Action) []bpf.Instruction {
	return append(f.code[:len(f.code):len(f.code)], bpf.RetConstant{Val: uint32(others)})
}

// MaxInstructions is the kernel's limit of one filter (BPF_MAXINSNS).
const MaxInstructions = 4096

// Encode gives a filter as an array of struct sock_filter, and their number.
func (f *Filter) Encode(others Action) ([]byte, int, error) {
	if f.err != nil {
		return nil, 0, f.err
	}
	raw, err := bpf.Assemble(f.Instructions(others))
	if err != nil {
		return nil, 0, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	if len(raw) > MaxInstructions {
		return nil, 0, fmt.Errorf("seccomp filter of %d instructions, %d are allowed", len(raw), MaxInstructions)
	}
	var b []byte
	for _, i := range raw {
		b = binary.LittleEndian.AppendUint16(b, i.Op)
		b = append(b, i.Jt, i.Jf)
		b = binary.LittleEndian.AppendUint32(b, i.K)
	}
	return b, len(raw), nil
}
