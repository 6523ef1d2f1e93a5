// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// maxProcesses bounds how many processes otherTasks looks at.
const maxProcesses = 500

// otherTasks reads of other processes what the recorder reads of all. One
// that has more capabilities than we have stays closed even to root.
func (p *Prober) otherTasks() Result {
	r := p.privilege()
	if r.InPIDNS && !r.InContainer {
		return no(Namespace, EffortProcess, "run outside of this pid namespace",
			"only tasks of this pid namespace are seen")
	}
	if r.InContainer {
		return no(Namespace, EffortProcess, "--pid=host (docker), hostPID: true (Kubernetes), or run on the host",
			"only tasks of this pid namespace are seen")
	}
	if _, err := os.Stat(p.fs.Proc(1).Path("stat")); errors.Is(err, fs.ErrNotExist) {
		return no(FileSystem, EffortMachine, "sudo, or remount /proc without hidepid",
			"/proc hides the tasks of others (hidepid)")
	}
	pids, err := p.fs.PIDs()
	if err != nil {
		return unknown(err)
	}
	var seen, closed int
	for _, pid := range pids[:min(len(pids), maxProcesses)] {
		switch err := readTask(p.fs.Proc(pid)); {
		case err == nil:
			seen++
		case permission(err):
			closed++
		case !procfs.Gone(err):
			return unknown(err)
		}
	}
	total := seen + closed
	switch {
	case closed == 0:
		return yes("maps, namespaces and files of all processes")
	case closed*10 <= total:
		return yes("maps, namespaces and files of %d of %d", seen, total)
	case r.caps.Has(sys.CapSysPtrace):
		return p.module(fmt.Errorf("%d of %d processes: %w", closed, total, syscall.EACCES))
	}
	return p.lacks(Capability, "", []sys.Capability{sys.CapSysPtrace},
		"%d of %d processes are closed, no SYS_PTRACE", closed, total)
}

// readTask reads a byte of the maps, a namespace and the root of a process.
func readTask(t procfs.Proc) error {
	maps, err := os.Open(t.Path("maps"))
	if err != nil {
		return err
	}
	// The right to read is checked again when reading.
	_, err = maps.Read(make([]byte, 1))
	maps.Close()
	if err != nil && err != io.EOF {
		return err
	}
	if _, err := t.Namespace("mnt"); err != nil {
		return err
	}
	_, err = os.Stat(t.Path("root") + "/.")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel thread, or a root that was unmounted
	}
	return err
}

// maxSymbols bounds how far kallsyms is read for a first address: per-CPU
// variables come first, and their addresses may be zero.
const maxSymbols = 1000

func (p *Prober) kernelSymbols() Result {
	f, err := os.Open(p.fs.Path("proc/kallsyms"))
	if errors.Is(err, fs.ErrNotExist) {
		return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_KALLSYMS", "there is no /proc/kallsyms")
	}
	if err != nil {
		return unknown(err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 0; n < maxSymbols && sc.Scan(); n++ {
		if word, _, _ := strings.Cut(sc.Text(), " "); strings.Trim(word, "0") != "" {
			return yes("names and addresses in /proc/kallsyms")
		}
	}
	if err := sc.Err(); err != nil {
		return unknown(err)
	}
	return p.hiddenSymbols()
}

// hiddenSymbols: who hides the kernel's addresses, see kptr_restrict in
// Documentation/admin-guide/sysctl/kernel.rst. At 0 they are still hidden if
// perf_event_paranoid is above 1.
func (p *Prober) hiddenSymbols() Result {
	n, err := p.fs.SysctlInt("kernel.kptr_restrict")
	if err != nil {
		return unknown(err)
	}
	needs := []sys.Capability{sys.CapSyslog}
	switch {
	case n >= 2:
		return no(Sysctl, EffortMachine, "sysctl kernel.kptr_restrict=1", "kptr_restrict is %d: no one sees addresses",
			n)
	case n == 0:
		return p.lacks(Capability, "sysctl kernel.perf_event_paranoid=1", needs,
			"addresses are hidden, SYSLOG is missing")
	}
	return p.lacks(Capability, "sysctl kernel.kptr_restrict=0", needs, "addresses are hidden, SYSLOG is missing")
}

// tracepoints: the description in tracefs, and samples with the fields.
func (p *Prober) tracepoints() Result {
	tree, where, closeTree, err := p.sys.tracefs()
	if err != nil {
		return p.noTracefs(err)
	}
	defer closeTree()
	text, err := fs.ReadFile(tree, "events/sched/sched_switch/id")
	if err != nil {
		return p.noTracefs(err)
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return unknown(fmt.Errorf("id of sched:sched_switch: %w", err))
	}
	cpus, err := p.sys.cpus()
	if err != nil || len(cpus) == 0 {
		return unknown(fmt.Errorf("list CPUs: %w", err))
	}
	a := &perf.Attr{
		Type: perf.TypeTracepoint, Config: id, Size: perf.AttrSizeVer0, SampleCount: 1,
		SampleType: perf.SampleRaw, Flags: perf.AttrDisabled,
	}
	if err := p.sys.openEvent(a, target{pid: -1, cpu: cpus[0]}); err != nil {
		return p.refused(err, -1)
	}
	if where == "" {
		where = "a private mount"
	}
	return yes("tracefs in %s", where)
}

func (p *Prober) noTracefs(err error) Result {
	r := p.privilege()
	if r.Lockdown == "confidentiality" && permission(err) {
		return no(Lockdown, EffortKernel, "boot without lockdown=confidentiality", "lockdown is confidentiality")
	}
	switch {
	case errors.Is(err, errNotMounted) && r.InContainer:
		return no(FileSystem, EffortProcess,
			"-v /sys/kernel/tracing:/sys/kernel/tracing:ro (docker), or run on the host", "tracefs is not mounted")
	case errors.Is(err, errNotMounted) && permission(err):
		return no(FileSystem, EffortProcess, "sudo, or as root: mount -t tracefs tracefs /sys/kernel/tracing",
			"tracefs is not mounted")
	case permission(err):
		return p.lacks(FileSystem, "", []sys.Capability{sys.CapDACReadSearch}, "tracefs is closed to uid %d", r.UID)
	case errors.Is(err, syscall.ENODEV):
		return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_FTRACE", "the kernel has no tracefs")
	case errors.Is(err, syscall.ENOSYS), errors.Is(err, fs.ErrNotExist):
		return no(FileSystem, EffortMachine, "mount -t tracefs tracefs /sys/kernel/tracing", "tracefs is not mounted")
	}
	return unknown(err)
}

// What the recorder uses if nothing else is asked for.
const (
	usualRate  = 4000
	usualStack = 127
)

func (p *Prober) sampleRate() Result {
	rate, err := p.fs.SysctlInt("kernel.perf_event_max_sample_rate")
	if err != nil {
		return unknown(err)
	}
	share, err := p.fs.SysctlInt("kernel.perf_cpu_time_max_percent")
	if err != nil {
		return unknown(err)
	}
	stack, err := p.fs.SysctlInt("kernel.perf_event_max_stack")
	if err != nil {
		return unknown(err)
	}
	found := fmt.Sprintf("%d Hz, %d %% of a CPU, %d frames", rate, share, stack)
	switch {
	case rate < usualRate:
		return no(Sysctl, EffortMachine,
			fmt.Sprintf("record -F %d, or sysctl kernel.perf_event_max_sample_rate=100000", rate), "%s", found)
	case stack < usualStack:
		return no(Sysctl, EffortMachine, "sysctl kernel.perf_event_max_stack=127", "%s", found)
	}
	return yes("%s", found)
}

func (p *Prober) procmapQuery() Result {
	err := p.sys.procmapQuery()
	switch {
	case err == nil:
		return yes("mappings and build-ids without reading maps")
	case errors.Is(err, syscall.ENOTTY), errors.Is(err, syscall.EINVAL):
		return no(Kernel, EffortNone, "none needed: maps are read as text; Linux 6.11 is faster", "needs Linux 6.11")
	}
	return unknown(err)
}

// bpfIterators loads the programs of the snapshot, if the rights are there.
func (p *Prober) bpfIterators() Result {
	return p.bpf(p.sys.loadIterators, "snapshots by BPF iterators", "snapshots come from /proc", "5.17")
}

// bpfFilter loads the filter of samples and sets it on an event.
func (p *Prober) bpfFilter() Result {
	return p.bpf(p.sys.loadFilter, "containers are told apart in the kernel", "the recorder tells containers apart",
		"5.12")
}

// bpfCopies loads the program that copies others, and attaches it.
func (p *Prober) bpfCopies() Result {
	return p.bpf(p.sys.loadCopier, "BPF programs that live microseconds are known",
		"those that live less than a millisecond may be missed", "5.17 on x86-64")
}

// bpfDetails looks for the first program.
func (p *Prober) bpfDetails() Result {
	err := p.sys.bpfPrograms()
	switch {
	case err == nil:
		return yes("BPF programs are described to who asks")
	case permission(err):
		return no(Capability, EffortNone,
			"none needed where bpf-copies works; sudo tells of programs that run already, too",
			"BPF programs are described with CAP_SYS_ADMIN only")
	case errors.Is(err, syscall.ENOSYS):
		return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_BPF_SYSCALL", "the kernel has no bpf(2)")
	}
	return unknown(err)
}

// bpf tries load where the rights are there. without says what is done if the
// kernel refuses, which lacks nothing from the version since on.
func (p *Prober) bpf(load func() error, with, without, since string) Result {
	if _, err := os.Stat(p.fs.Path("sys/kernel/btf/vmlinux")); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return no(Kernel, EffortKernel, "boot a kernel built with CONFIG_DEBUG_INFO_BTF", "the kernel has no BTF")
		}
		return unknown(err)
	}
	r := p.privilege()
	switch {
	case r.Lockdown == "confidentiality":
		return no(Lockdown, EffortKernel, "boot without lockdown=confidentiality",
			"BTF, but lockdown is confidentiality")
	case r.Has(sys.CapSysAdmin), r.Has(sys.CapBPF) && r.Has(sys.CapPerfmon):
	case r.InUserNS:
		return no(Namespace, EffortProcess, "run on the host: rights of a user namespace do not count here",
			"BTF, but no rights on the host")
	default:
		return p.lacks(Capability, "", []sys.Capability{sys.CapBPF, sys.CapPerfmon},
			"BTF, but not both CAP_BPF and CAP_PERFMON")
	}
	err := load()
	switch {
	case err == nil:
		return yes("%s", with)
	case permission(err) && r.InUserNS:
		return no(Namespace, EffortProcess, "run on the host: rights of a user namespace do not count here",
			"BTF, but no rights on the host")
	case permission(err):
		return no(LSM, EffortMachine, "allow bpf(2) in the policy or the seccomp profile; "+without+" until then",
			"refused although the rights suffice: %v", err)
	}
	// What the kernel lacks it says in many ways.
	return no(Kernel, EffortNone, "none needed: "+without+"; Linux "+since+" has what is missing", "%v", err)
}

func (p *Prober) userEvents() Result {
	tree, _, closeTree, err := p.sys.tracefs()
	if err != nil {
		return p.noTracefs(err)
	}
	defer closeTree()
	_, err = fs.Stat(tree, "user_events_data")
	switch {
	case err == nil:
		return yes("user_events in tracefs")
	case errors.Is(err, fs.ErrNotExist):
		return no(Kernel, EffortNone, "none needed to record; tracing user_events wants CONFIG_USER_EVENTS",
			"no user_events in tracefs")
	case permission(err):
		return p.noTracefs(err)
	}
	return unknown(err)
}
