// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// own is the calling thread.
func own() target { return target{pid: 0, cpu: -1} }

// clock is a software event that samples, of the smallest attr there is.
func clock(flags perf.AttrFlags) *perf.Attr {
	return &perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, Size: perf.AttrSizeVer0,
		SampleCount: 1 << 40, SampleType: perf.SampleIP, Flags: perf.AttrDisabled | flags,
	}
}

const userOnly = perf.AttrExcludeKernel | perf.AttrExcludeHV

// syscall: does perf_event_open reach the kernel, and may we call it at all.
func (p *Prober) syscall() Result {
	r := p.privilege()
	err := p.sys.syscallReached()
	if err != nil {
		switch {
		case r.Seccomp == "filter":
			return no(Seccomp, EffortProcess, p.seccompCure(), "the filter answers: %v", errno(err))
		case errors.Is(err, syscall.ENOSYS):
			return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_PERF_EVENTS",
				"the kernel has no perf events")
		}
		return unknown(err)
	}
	err = p.sys.syscallAllowed()
	switch {
	case err == nil:
		return yes("perf_event_open reaches the kernel")
	case r.Paranoid >= 3 && !r.Perfmon():
		return p.paranoid(2)
	case permission(err):
		return p.module(err)
	}
	return unknown(err)
}

func (p *Prober) seccompCure() string {
	if r := p.privilege(); r.InContainer || r.InUserNS {
		return "run gantry on the host, or allow perf_event_open in the seccomp profile"
	}
	return "allow perf_event_open in the seccomp filter of this service or sandbox"
}

// module: a security module is what is left to say no.
func (p *Prober) module(err error) Result {
	names := "unknown modules"
	if l := p.privilege().LSMs; l != nil {
		names = strings.Join(l, ",")
	}
	return no(LSM, EffortMachine, "allow perf_event in the policy of the security module (audit log)",
		"%v, rights suffice: %s", errno(err), names)
}

// paranoid: perf_event_paranoid says no; level is the highest that would do.
func (p *Prober) paranoid(level int64) Result {
	r := p.privilege()
	if r.InUserNS && r.caps.Has(sys.CapPerfmon) {
		return no(Namespace, EffortProcess, "run on the host: rights of a user namespace do not count here",
			"paranoid is %d, CAP_PERFMON of a user namespace", r.Paranoid)
	}
	return p.lacks(Paranoid, fmt.Sprintf("sysctl kernel.perf_event_paranoid=%d", level), perfmon(),
		"paranoid is %d and CAP_PERFMON is missing", r.Paranoid)
}

func perfmon() []sys.Capability { return []sys.Capability{sys.CapPerfmon} }

// refused explains why an event did not open, if perf_event_paranoid must be
// at most level for it.
func (p *Prober) refused(err error, level int64) Result {
	if s := p.check(Syscall); s.Answer == No {
		return s
	}
	switch r := p.privilege(); {
	case permission(err) && r.Paranoid > level && !r.Perfmon():
		return p.paranoid(level)
	case permission(err) && (r.Perfmon() || r.Paranoid != NoParanoid):
		return p.module(err)
	}
	return unknown(err)
}

func (p *Prober) ownUser() Result {
	if err := p.sys.openEvent(clock(userOnly), own()); err != nil {
		return p.refused(err, 2)
	}
	return yes("samples of own programs")
}

func (p *Prober) ownKernel() Result {
	if err := p.sys.openEvent(clock(0), own()); err != nil {
		return p.refused(err, 1)
	}
	return yes("samples of the kernel for own programs")
}

func (p *Prober) cpuWide() Result {
	cpus, err := p.sys.cpus()
	if err != nil {
		return unknown(err)
	}
	for _, cpu := range cpus {
		if err := p.sys.openEvent(clock(0), target{pid: -1, cpu: cpu}); err != nil {
			return p.refused(fmt.Errorf("cpu %d: %w", cpu, err), 0)
		}
	}
	return yes("every task on %s", plural(len(cpus), "CPU"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// cgroupEvents: the hierarchy that perf events follow, and an event on it.
func (p *Prober) cgroupEvents() Result {
	trees, err := p.fs.CgroupTrees()
	if err != nil {
		return unknown(err)
	}
	tree := trees.Perf()
	if tree == nil && p.privilege().InContainer {
		return no(Cgroup, EffortProcess, "-v /sys/fs/cgroup:/sys/fs/cgroup:ro (docker), or run on the host",
			"the hierarchy of perf_event is not mounted in this container")
	}
	if tree == nil {
		return no(Cgroup, EffortMachine, "mount the cgroup2 hierarchy: mount -t cgroup2 none /sys/fs/cgroup/unified",
			"%v, perf_event's hierarchy is not mounted", trees.Mode)
	}
	cpus, err := p.sys.cpus()
	if err != nil || len(cpus) == 0 {
		return unknown(fmt.Errorf("list CPUs: %w", err))
	}
	err = p.sys.openEvent(clock(0), target{cpu: cpus[0], cgroup: tree.Point})
	switch {
	case err == nil:
		return yes("%v, events on %s", trees.Mode, tree.Point)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EBADF):
		return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_CGROUP_PERF",
			"the kernel has no cgroup events")
	}
	return p.refused(err, 0)
}

// ringPages are the pages of a ring of 512 kB, as the recorder has at least
// one of for each CPU.
func ringPages() int { return 512 << 10 / sys.PageSize() }

func (p *Prober) rings() Result {
	cpus, err := p.sys.cpus()
	if err != nil {
		return unknown(err)
	}
	err = p.sys.mapRings(len(cpus), ringPages())
	switch {
	case err == nil:
		return yes("%d kB for %s", len(cpus)*512, plural(len(cpus), "CPU"))
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOMEM):
		return p.refused(err, 2)
	}
	if s := p.check(OwnUser); s.Answer != Yes {
		return s
	}
	kb, _ := p.fs.SysctlInt("kernel.perf_event_mlock_kb")
	limit := "unlimited"
	if soft, err := p.sys.memlock(); err == nil && soft != sys.Infinity {
		limit = fmt.Sprintf("%d kB", soft>>10)
	}
	return no(Limit, EffortProcess, "ulimit -l unlimited, or record -m 32, or sysctl kernel.perf_event_mlock_kb=1024",
		"%d kB a CPU, and locked memory %s", kb, limit)
}

func (p *Prober) hardwarePMU() Result {
	a := &perf.Attr{Type: perf.TypeHardware, Config: perf.HWCPUCycles, Size: perf.AttrSizeVer0,
		Flags: perf.AttrDisabled | userOnly}
	err := p.sys.openEvent(a, own())
	switch {
	case err == nil:
		return yes("the CPU counts cycles")
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.EOPNOTSUPP),
		errors.Is(err, syscall.ENXIO):
		return no(Hardware, EffortNone, "none needed: cpu-clock is used; a virtual machine's host may pass its PMU on",
			"no cycles here, cpu-clock stands in")
	}
	return p.refused(err, 2)
}

func permission(err error) bool { return errors.Is(err, fs.ErrPermission) }

// errno is the last word of a system call's error: "operation not permitted".
func errno(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}
