// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package oci sets containers up for gantry's agent: seccomp profiles that tell it of
// perf_event_open, and a runtime that puts them into containers whose engine cannot.
//
// Profile makes a profile for people to hand to their engine. Wrap is what gantry does
// when an engine calls it in place of runc: it changes the bundle and runs runc.
package oci

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// notified is the system call that the agent answers.
const notified = "perf_event_open"

// defaultCapabilities are what engines leave a container: the default profile allows
// more to those that have more.
var defaultCapabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// Profile is a seccomp profile, JSON as the OCI runtime specification has it, that is
// base with perf_event_open answered by the agent that listens at socket. base is a
// profile in Docker's or in that form; nil is Docker's default profile.
func Profile(base []byte, socket string) ([]byte, error) {
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: defaultCapabilities}}}
	var p *specs.LinuxSeccomp
	var err error
	if base == nil {
		p, err = seccomp.GetDefaultProfile(spec)
	} else {
		p, err = seccomp.LoadProfile(string(base), spec)
	}
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	if p == nil {
		p = &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	}
	Notify(p, socket)
	text, err := json.MarshalIndent(p, "", "\t")
	return append(text, '\n'), err
}

// Notify makes a profile tell the agent of perf_event_open, whatever it said of it.
func Notify(p *specs.LinuxSeccomp, socket string) {
	var calls []specs.LinuxSyscall
	for _, c := range p.Syscalls {
		c.Names = slices.DeleteFunc(slices.Clone(c.Names), func(name string) bool { return name == notified })
		if len(c.Names) > 0 {
			calls = append(calls, c)
		}
	}
	p.Syscalls = append(calls, specs.LinuxSyscall{Names: []string{notified}, Action: specs.ActNotify})
	p.ListenerPath = socket
}
