// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package bpf loads gantry's BPF programs. Each has a directory of its own
// below: NAME.bpf.c, the Go code and the object that tools/bpf2go makes of it
// ("make generate"), and the Go code that knows what the program writes.
//
// What surprises:
//   - Loading takes tens of milliseconds, for the types of the kernel are read
//     first: load before any event is opened.
//   - A link of github.com/cilium/ebpf that nothing refers to is detached by
//     its finalizer, in silence. Keep what attaching returns.
package bpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Load loads what the fields of to, a pointer to a struct of bpf2go's, ask for
// of spec, and nothing else. The caller closes them.
//
// Errors: fs.ErrPermission without CAP_BPF and CAP_PERFMON (or CAP_SYS_ADMIN);
// ebpf.ErrNotSupported where the kernel lacks something; others where the
// kernel refuses a program, an *ebpf.VerifierError among them.
func Load(spec *ebpf.CollectionSpec, to any) error {
	err := spec.LoadAndAssign(to, nil)
	if errors.Is(err, fs.ErrPermission) {
		// Before Linux 5.11 maps and programs count as locked memory, for
		// as long as they exist; the limit is looked at only here.
		if restore, e := sys.LiftMemlock(); e == nil {
			err = spec.LoadAndAssign(to, nil)
			restore()
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = hint.Wrap(&permissionError{err}, "run as root, or with CAP_BPF and CAP_PERFMON")
	case errors.Is(err, fs.ErrNotExist):
		err = hint.Wrap(err, "a kernel built with CONFIG_DEBUG_INFO_BTF has what is missing")
	}
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	return nil
}

// permissionError is EPERM in one line: which of many system calls said so is
// of no interest.
type permissionError struct{ cause error }

// Error says what is missing, or that nothing is.
func (e *permissionError) Error() string {
	caps, err := sys.EffectiveCapabilities()
	if err == nil && !caps.Has(sys.CapSysAdmin) && !(caps.Has(sys.CapBPF) && caps.Has(sys.CapPerfmon)) {
		return "not permitted without CAP_BPF and CAP_PERFMON"
	}
	return "not permitted, although the capabilities are there (a security module, lockdown or seccomp)"
}

// Unwrap is the whole story.
func (e *permissionError) Unwrap() error { return e.cause }
