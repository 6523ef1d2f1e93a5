// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"fmt"
	"sync"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// Check names something that can be asked.
type Check string

// Checks, in the order in which a doctor tells them.
const (
	Syscall       Check = "syscall"        // perf_event_open can be called
	OwnUser       Check = "own-user"       // user space of own tasks
	OwnKernel     Check = "own-kernel"     // and the kernel on their behalf
	CPUWide       Check = "cpu-wide"       // every task on a CPU
	CgroupEvents  Check = "cgroup-events"  // the tasks of one cgroup
	Rings         Check = "rings"          // locked memory for the rings
	OtherTasks    Check = "other-tasks"    // /proc of tasks that are not ours
	CgroupIDs     Check = "cgroup-ids"     // cgroup ids in samples, Linux 5.7
	Namespaces    Check = "namespaces"     // namespace records, 4.12
	BPFEvents     Check = "bpf-events"     // BPF programs that come and go, 5.1
	TextPoke      Check = "text-poke"      // changes of the kernel's code, 5.9
	LostCounts    Check = "lost-counts"    // lost samples in counts, 6.0
	KernelSymbols Check = "kernel-symbols" // /proc/kallsyms with addresses
	Tracepoints   Check = "tracepoints"    // tracefs and raw samples
	HardwarePMU   Check = "hardware-pmu"   // cycles
	SampleRate    Check = "sample-rate"    // limits of rate and depth
	ProcmapQuery  Check = "procmap-query"  // ioctl on maps files, 6.11
	BPFIterators  Check = "bpf-iterators"  // BTF and the rights to load
	BPFFilter     Check = "bpf-filter"     // programs that filter samples, 5.12
	BPFCopies     Check = "bpf-copies"     // programs copied at their load, 5.17, x86-64
	BPFDetails    Check = "bpf-details"    // programs opened by their id, 4.13
	UserEvents    Check = "user-events"    // user_events, 6.4
)

// checks is what is done for each.
func checks() []struct {
	name Check
	run  func(*Prober) Result
} {
	return []struct {
		name Check
		run  func(*Prober) Result
	}{
		{Syscall, (*Prober).syscall},
		{OwnUser, (*Prober).ownUser},
		{OwnKernel, (*Prober).ownKernel},
		{CPUWide, (*Prober).cpuWide},
		{CgroupEvents, (*Prober).cgroupEvents},
		{Rings, (*Prober).rings},
		{OtherTasks, (*Prober).otherTasks},
		{CgroupIDs, (*Prober).cgroupIDs},
		{Namespaces, (*Prober).namespaces},
		{BPFEvents, (*Prober).bpfEvents},
		{TextPoke, (*Prober).textPoke},
		{LostCounts, (*Prober).lostCounts},
		{KernelSymbols, (*Prober).kernelSymbols},
		{Tracepoints, (*Prober).tracepoints},
		{HardwarePMU, (*Prober).hardwarePMU},
		{SampleRate, (*Prober).sampleRate},
		{ProcmapQuery, (*Prober).procmapQuery},
		{BPFIterators, (*Prober).bpfIterators},
		{BPFFilter, (*Prober).bpfFilter},
		{BPFCopies, (*Prober).bpfCopies},
		{BPFDetails, (*Prober).bpfDetails},
		{UserEvents, (*Prober).userEvents},
	}
}

// Checks lists every check.
func Checks() []Check {
	var list []Check
	for _, c := range checks() {
		list = append(list, c.name)
	}
	return list
}

// Prober asks the kernel. It may be used from several goroutines.
type Prober struct {
	fs  procfs.FS
	sys system

	mu     sync.Mutex
	rights *Privilege
	cache  map[Check]Result
}

// New asks this machine's kernel.
func New() *Prober { return newProber("/", live{}) }

func newProber(root string, s system) *Prober {
	return &Prober{fs: procfs.New(root), sys: s, cache: map[Check]Result{}}
}

// Check runs a check, or repeats a conclusive answer. An unknown name gives
// Unknown.
func (p *Prober) Check(name Check) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.check(name)
}

func (p *Prober) check(name Check) Result {
	if r, ok := p.cache[name]; ok {
		return r
	}
	for _, c := range checks() {
		if c.name != name {
			continue
		}
		r := c.run(p)
		r.Check = name
		if r.Answer != Unknown {
			p.cache[name] = r
		}
		return r
	}
	r := unknown(fmt.Errorf("no check is called %q", name))
	r.Check = name
	return r
}
