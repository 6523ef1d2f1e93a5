// SPDX-License-Identifier: Apache-2.0

//go:build linux

package broker

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"github.com/gantry-tools/gantry/perf"
)

// A refusal is a decision against an event: the errno that the process gets, which
// perf knows how to go on from, and why, for the audit log.
type refusal struct {
	errno  syscall.Errno
	reason error
}

func (r *refusal) Error() string   { return r.reason.Error() + ": " + r.errno.Error() }
func (r *refusal) Unwrap() []error { return []error{r.errno, r.reason} }

func refuse(errno syscall.Errno, format string, args ...any) error {
	return &refusal{errno, fmt.Errorf(format, args...)}
}

// hostOrder is the byte order of all machines that gantry is built for.
var hostOrder = perf.LittleEndian

// maxAttr is the kernel's limit of an attr's size, in bytes (a page).
const maxAttr = 4096

// readAttr reads the attr at an address of a process as the kernel does: once, and
// what is behind the fields that are known must be zero. read is sys.ReadMemory.
func readAttr(read func(addr uint64, b []byte) (int, error), addr uint64) (perf.Attr, error) {
	var buf [maxAttr]byte
	n, err := read(addr, buf[:perf.AttrSize])
	if err != nil || n < perf.AttrSizeVer0 {
		return perf.Attr{}, refuse(syscall.EFAULT, "the attr cannot be read")
	}
	size := int(binary.NativeEndian.Uint32(buf[4:]))
	switch {
	case size == 0:
		size = perf.AttrSizeVer0
	case size < perf.AttrSizeVer0, size > maxAttr, size%8 != 0:
		return perf.Attr{}, refuse(syscall.E2BIG, "the attr says that its size is %d", size)
	}
	if size > n && n < perf.AttrSize {
		return perf.Attr{}, refuse(syscall.EFAULT, "the attr cannot be read")
	}
	if size > perf.AttrSize {
		rest := buf[perf.AttrSize:size]
		if n, err := read(addr+perf.AttrSize, rest); err != nil || n < len(rest) {
			return perf.Attr{}, refuse(syscall.EFAULT, "the attr cannot be read")
		}
		for _, b := range rest {
			if b != 0 {
				return perf.Attr{}, refuse(syscall.E2BIG, "the attr has fields of a newer kernel")
			}
		}
		size = perf.AttrSize
	}
	binary.NativeEndian.PutUint32(buf[4:], uint32(size))
	a, err := perf.DecodeAttr(buf[:size], hostOrder)
	if err != nil {
		return perf.Attr{}, refuse(syscall.EINVAL, "%v", err)
	}
	return a, nil
}

// Flags of an attr. Those that are stripped would have the kernel tell of what is not
// the container's, or keep others from counting; perf works without them.
const (
	strippedFlags = perf.AttrPinned | perf.AttrExclusive | perf.AttrKsymbol | perf.AttrBPFEvent |
		perf.AttrTextPoke | perf.AttrCgroup
	refusedFlags = perf.AttrSigtrap | perf.AttrAuxOutput
	knownFlags   = perf.AttrDeferOutput<<1 - 1
)

// Parts of a sample that are never the container's own.
const refusedSamples = perf.SamplePhysAddr | perf.SampleAux

// Bits of branch_sample_type: branches in the kernel and in a hypervisor.
const branchesElsewhere = 1<<1 | 1<<2

// checker decides about attrs: what a Policy says, with what this machine has.
type checker struct {
	policy *Policy
	// tracepoint is the name of a tracepoint by its id, "" for one that is not known.
	tracepoint func(id uint64) string
	// core reports whether a dynamic PMU is one of the CPUs themselves.
	core func(perf.EventType) bool
}

// check decides about an attr and changes it to what is opened.
func (c *checker) check(a *perf.Attr) error {
	switch {
	case a.Flags&^knownFlags != 0 || a.SampleType&^knownSamples != 0:
		return refuse(syscall.EINVAL, "the attr has bits of a newer kernel")
	case a.Flags&refusedFlags != 0:
		return refuse(syscall.EACCES, "signals and hardware trace are not for containers")
	case a.SampleType&refusedSamples != 0:
		return refuse(syscall.EACCES, "physical addresses and hardware trace are not for containers")
	}
	if err := c.class(a); err != nil {
		return err
	}
	if err := c.kernel(a); err != nil {
		return err
	}
	a.Flags &^= strippedFlags
	a.AuxAction = 0
	c.slow(a)
	return nil
}

// knownSamples are the bits of sample_type up to SampleWeightStruct.
const knownSamples = perf.SampleWeightStruct<<1 - 1

// class decides by what is counted.
func (c *checker) class(a *perf.Attr) error {
	var class Class
	switch a.Type {
	case perf.TypeSoftware:
		class = Software
		if a.Config == perf.SWBPFOutput || a.Config > perf.SWCgroupSwitches {
			return refuse(syscall.ENOENT, "no such software event")
		}
	case perf.TypeHardware, perf.TypeHWCache:
		class = Hardware
	case perf.TypeRaw:
		class = Raw
	case perf.TypeTracepoint:
		name := c.tracepoint(a.Config)
		if name == "" || !c.policy.allowsTracepoint(name) {
			return refuse(syscall.EACCES, "the policy does not allow the tracepoint %s", orNumber(name, a.Config))
		}
		return nil
	case perf.TypeBreakpoint:
		return refuse(syscall.EACCES, "breakpoints are few, and all containers' together")
	default:
		if !c.core(a.Type) {
			return refuse(syscall.ENOENT, "the PMU %d is not the CPUs' own", a.Type)
		}
		class = Raw
	}
	if c.policy.Classes&class == 0 {
		return refuse(syscall.ENOENT, "the policy does not allow this class of events")
	}
	return nil
}

func orNumber(name string, id uint64) string {
	if name == "" {
		return fmt.Sprintf("with id %d", id)
	}
	return name
}

// kernel decides by what an event tells of the kernel. perf asks again for user
// space only when it gets EACCES.
func (c *checker) kernel(a *perf.Attr) error {
	switch {
	case c.policy.Kernel:
		return nil
	case a.Type == perf.TypeTracepoint:
		a.Flags |= perf.AttrExcludeCallchainKernel
		if a.SampleType&(perf.SampleRegsIntr|perf.SampleBranchStack) != 0 {
			return refuse(syscall.EACCES, "registers and branches of a tracepoint are the kernel's")
		}
		return nil
	case a.SampleType&perf.SampleBranchStack != 0 && a.BranchSampleType&branchesElsewhere != 0:
		return refuse(syscall.EACCES, "branches in the kernel are not allowed by the policy")
	case a.Flags.Has(perf.AttrExcludeKernel):
		a.Flags |= perf.AttrExcludeHV
		return nil
	case a.Type == perf.TypeSoftware && (a.SampleCount == 0 || a.Config == perf.SWDummy):
		// It only counts, and an ioctl cannot make a counter a sampler.
		return nil
	}
	return refuse(syscall.EACCES, "samples in the kernel are not allowed by the policy")
}

// nsPerSecond is what clocks count in a second.
const nsPerSecond = 1_000_000_000

// slow lowers the rate of samples to the policy's.
func (c *checker) slow(a *perf.Attr) {
	limit := c.policy.MaxFrequency
	if limit == 0 || a.SampleCount == 0 {
		return
	}
	if a.Flags.Has(perf.AttrFreq) {
		a.SampleCount = min(a.SampleCount, limit)
		return
	}
	if a.Type == perf.TypeSoftware && (a.Config == perf.SWCPUClock || a.Config == perf.SWTaskClock) {
		a.SampleCount = max(a.SampleCount, nsPerSecond/limit)
	}
}
