// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Capability is one bit of a capability set, see linux/capability.h.
type Capability uint

// Capabilities that profiling touches.
const (
	CapDACReadSearch     Capability = unix.CAP_DAC_READ_SEARCH
	CapIPCLock           Capability = unix.CAP_IPC_LOCK
	CapSysPtrace         Capability = unix.CAP_SYS_PTRACE
	CapSysAdmin          Capability = unix.CAP_SYS_ADMIN
	CapSysResource       Capability = unix.CAP_SYS_RESOURCE
	CapSyslog            Capability = unix.CAP_SYSLOG
	CapPerfmon           Capability = unix.CAP_PERFMON
	CapBPF               Capability = unix.CAP_BPF
	CapCheckpointRestore Capability = unix.CAP_CHECKPOINT_RESTORE
)

func (c Capability) String() string {
	switch c {
	case CapDACReadSearch:
		return "CAP_DAC_READ_SEARCH"
	case CapIPCLock:
		return "CAP_IPC_LOCK"
	case CapSysPtrace:
		return "CAP_SYS_PTRACE"
	case CapSysAdmin:
		return "CAP_SYS_ADMIN"
	case CapSysResource:
		return "CAP_SYS_RESOURCE"
	case CapSyslog:
		return "CAP_SYSLOG"
	case CapPerfmon:
		return "CAP_PERFMON"
	case CapBPF:
		return "CAP_BPF"
	case CapCheckpointRestore:
		return "CAP_CHECKPOINT_RESTORE"
	}
	return fmt.Sprintf("capability %d", uint(c))
}

// MarshalText is the capability's name, for JSON.
func (c Capability) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Capabilities is a set of capabilities.
type Capabilities uint64

// Has reports whether c is in the set.
func (s Capabilities) Has(c Capability) bool { return s>>c&1 != 0 }

// EffectiveCapabilities is what the calling thread may do in its user
// namespace; the kernel checks most of perf in the initial one.
func EffectiveCapabilities() (Capabilities, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&h, &data[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return Capabilities(data[0].Effective) | Capabilities(data[1].Effective)<<32, nil
}
