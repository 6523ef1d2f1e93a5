// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// feature is a requirement that needs no argument.
type feature string

// The requirements without an argument.
const (
	// Root is uid 0 in the initial user namespace, with its capabilities.
	Root feature = "root"
	// PerfEvents is the right to sample every task on a CPU.
	PerfEvents feature = "system-wide perf events"
	// HardwarePMU is a CPU that counts cycles.
	HardwarePMU feature = "a hardware PMU"
	// CgroupV2 is a writable cgroup2 hierarchy, also one of a hybrid layout.
	CgroupV2 feature = "a writable cgroup2 hierarchy"
	// CgroupHybrid is cgroup2 beside cgroup v1 hierarchies.
	CgroupHybrid feature = "a hybrid cgroup layout"
	// Tracefs is a mounted, readable tracefs.
	Tracefs feature = "tracefs"
	// BTF is the kernel's own type information.
	BTF feature = "kernel BTF"
)

func (f feature) String() string { return string(f) }

func (f feature) Missing() string {
	switch f {
	case Root:
		if os.Geteuid() != 0 {
			return "uid is " + strconv.Itoa(os.Geteuid()) + "; run as root"
		}
		return Cap("CAP_SYS_ADMIN").Missing()
	case PerfEvents:
		return missingEvent(perfTypeSoftware, perfCountCPUClock, -1, 0)
	case HardwarePMU:
		return missingEvent(perfTypeHardware, perfCountCycles, 0, -1)
	case CgroupV2:
		return missingCgroup2()
	case CgroupHybrid:
		return missingHybrid()
	case Tracefs:
		if _, err := os.ReadDir("/sys/kernel/tracing/events"); err != nil {
			return fmt.Sprintf("%v; mount -t tracefs nodev /sys/kernel/tracing ('make test' does)", err)
		}
	case BTF:
		if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
			return err.Error()
		}
	default:
		return "unknown requirement"
	}
	return ""
}

// From include/uapi/linux/perf_event.h.
const (
	perfTypeHardware  = 0
	perfTypeSoftware  = 1
	perfCountCycles   = 0
	perfCountCPUClock = 0
	perfAttrSizeVer0  = 64
	perfFlagCloexec   = 8
)

// missingEvent tries to open a counter of task pid on cpu.
func missingEvent(typ uint32, config uint64, pid, cpu int) string {
	attr := struct {
		typ, size uint32
		config    uint64
		rest      [perfAttrSizeVer0 - 16]byte
	}{typ: typ, size: perfAttrSizeVer0, config: config}
	fd, _, errno := syscall.Syscall6(sysPerfEventOpen, uintptr(unsafe.Pointer(&attr)),
		uintptr(pid), uintptr(cpu), ^uintptr(0), perfFlagCloexec, 0)
	if errno != 0 {
		return "perf_event_open: " + errno.Error()
	}
	syscall.Close(int(fd))
	return ""
}

func missingCgroup2() string {
	root, err := cgroup2Mount()
	if err != nil {
		return err.Error()
	}
	const writeOK = 2
	if err := syscall.Access(root, writeOK); err != nil {
		return fmt.Sprintf("%s: %v", root, err)
	}
	return ""
}

func missingHybrid() string {
	root, err := cgroup2Mount()
	if err != nil {
		return err.Error()
	}
	if root == "/sys/fs/cgroup" {
		return "the layout is pure cgroup2"
	}
	return ""
}

// cgroup2Mount is where the cgroup2 hierarchy is mounted whole.
func cgroup2Mount() (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		before, after, ok := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if ok && strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errors.New("no cgroup2 in /proc/self/mountinfo")
}

// Kernel requires a release of at least version, "major.minor".
func Kernel(version string) Requirement { return kernelRequirement(version) }

type kernelRequirement string

func (r kernelRequirement) String() string { return "Linux " + string(r) }

func (r kernelRequirement) Missing() string {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err.Error()
	}
	var have, want [2]int
	release := strings.TrimSpace(string(data))
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return fmt.Sprintf("release %q: %v", release, err)
	}
	if _, err := fmt.Sscanf(string(r), "%d.%d", &want[0], &want[1]); err != nil {
		return fmt.Sprintf("version %q: %v", string(r), err)
	}
	if have[0] < want[0] || have[0] == want[0] && have[1] < want[1] {
		return "this kernel is " + release
	}
	return ""
}

// Cap requires effective capabilities, by their names: "CAP_PERFMON".
func Cap(names ...string) Requirement { return capRequirement(names) }

type capRequirement []string

func (r capRequirement) String() string { return strings.Join(r, ", ") }

func (r capRequirement) Missing() string {
	have, err := effectiveCaps()
	if err != nil {
		return err.Error()
	}
	var missing []string
	for _, name := range r {
		bit, ok := capBit(name)
		if !ok {
			return "unknown capability " + name
		}
		if have&(1<<bit) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("no %s (%d capabilities are effective)", strings.Join(missing, ", "), bits.OnesCount64(have))
}

// capBit is the number of a capability, from include/uapi/linux/capability.h.
func capBit(name string) (uint, bool) {
	switch name {
	case "CAP_DAC_READ_SEARCH":
		return 2, true
	case "CAP_NET_ADMIN":
		return 12, true
	case "CAP_IPC_LOCK":
		return 14, true
	case "CAP_SYS_PTRACE":
		return 19, true
	case "CAP_SYS_ADMIN":
		return 21, true
	case "CAP_SYS_RESOURCE":
		return 24, true
	case "CAP_SYSLOG":
		return 34, true
	case "CAP_PERFMON":
		return 38, true
	case "CAP_BPF":
		return 39, true
	case "CAP_CHECKPOINT_RESTORE":
		return 40, true
	}
	return 0, false
}

func effectiveCaps() (uint64, error) {
	data, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	return 0, errors.New("no CapEff in /proc/thread-self/status")
}
