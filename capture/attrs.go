// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"runtime"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// readFormat is what is read of each event at the end.
const readFormat = perf.FormatID | perf.FormatLost

// sidebandAttr is the event that only carries sideband. Its records do not
// count as events, so that only a watermark wakes the reader for them.
func sidebandAttr(inherit bool) perf.Attr {
	a := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, SampleCount: 1,
		SampleType: perf.RawSampleType, ReadFormat: readFormat,
		Flags: perf.AttrDisabled | perf.AttrExcludeKernel | perf.AttrExcludeHV | perf.AttrSampleIDAll |
			perf.AttrMmap | perf.AttrMmap2 | perf.AttrComm | perf.AttrCommExec | perf.AttrTask |
			perf.AttrNamespaces | perf.AttrCgroup | perf.AttrKsymbol | perf.AttrBPFEvent |
			perf.AttrWatermark | perf.AttrUseClockID,
		Wakeup: 1, ClockID: int32(sys.ClockMonotonic),
	}
	if inherit {
		a.Flags |= perf.AttrInherit
	}
	return a
}

// inFile is the sideband's attr as the file has it: its MMAP2 records have
// build-ids, which the recorder puts there.
func inFile(a perf.Attr) perf.Attr {
	a.Flags |= perf.AttrBuildID
	return a
}

// sampleAttr completes the attr of one event of a spec: what to sample, how
// often, on whose behalf. leader: the first of its group.
func (o *Options) sampleAttr(g *perfevent.Group, s *perfevent.EventSpec, leader bool, inherit, onExec bool) perf.Attr {
	a := s.Attr
	a.SampleType |= perf.RawSampleType | perf.SamplePeriod | perf.SampleCgroup
	a.ReadFormat |= readFormat
	a.Flags |= perf.AttrSampleIDAll | perf.AttrUseClockID
	a.ClockID = int32(sys.ClockMonotonic)
	if s.Tracepoint != nil || s.Probe != nil || isBPFOutput(&a) {
		a.SampleType |= perf.SampleRaw
	}
	if s.Terms.NoTime {
		// Without a time the record could not be put in order.
		a.SampleType |= perf.SampleTime
	}
	o.setCount(&a, s)
	o.setStack(&a, s)
	if g.SampleRead {
		lead := &g.Events[0].Attr
		a.SampleType |= perf.SampleRead
		a.ReadFormat |= lead.ReadFormat | perf.FormatGroup
		if !leader {
			a.SampleCount = 0
			a.Flags &^= perf.AttrFreq
		}
	}
	if inherit && !s.Terms.NoInherit {
		a.Flags |= perf.AttrInherit
	}
	if leader {
		a.Flags |= perf.AttrDisabled
		if onExec {
			a.Flags |= perf.AttrEnableOnExec
		}
	}
	return a
}

func isBPFOutput(a *perf.Attr) bool {
	return a.Type == perf.TypeSoftware && a.Config == perf.SWBPFOutput
}

// setCount chooses how often an event is sampled.
func (o *Options) setCount(a *perf.Attr, s *perfevent.EventSpec) {
	switch {
	case s.Terms.Period || s.Terms.Freq:
	case o.Period != 0:
		a.SampleCount = o.Period
		a.Flags &^= perf.AttrFreq
	case o.Frequency != 0:
		a.SampleCount = o.Frequency
		a.Flags |= perf.AttrFreq
	case everyHit(a, s):
		a.SampleCount = 1
		a.Flags &^= perf.AttrFreq
	default:
		a.SampleCount = DefaultFrequency
		if o.MaxFrequency != 0 {
			a.SampleCount = min(a.SampleCount, o.MaxFrequency)
		}
		a.Flags |= perf.AttrFreq
	}
}

// everyHit: each occurrence is worth a record.
func everyHit(a *perf.Attr, s *perfevent.EventSpec) bool {
	return s.Tracepoint != nil || s.Probe != nil || isBPFOutput(a) ||
		a.Type == perf.TypeTracepoint || a.Type == perf.TypeBreakpoint
}

// dumpsStacks reports whether any event takes its stacks as memory.
func (o *Options) dumpsStacks() bool {
	for _, g := range o.Groups {
		for i := range g.Events {
			a := perf.Attr{}
			o.setStack(&a, &g.Events[i])
			if a.SampleType&perf.SampleStackUser != 0 {
				return true
			}
		}
	}
	return o.CallGraph == DWARF
}

// setStack chooses how an event's stacks are taken.
func (o *Options) setStack(a *perf.Attr, s *perfevent.EventSpec) {
	mode, size := o.CallGraph, o.StackSize
	switch s.Terms.CallGraph {
	case "no":
		mode = NoCallGraph
	case "fp":
		mode = FramePointers
	case "dwarf":
		mode = DWARF
	}
	if s.Terms.StackSize != 0 {
		size = int(s.Terms.StackSize)
	}
	if size == 0 {
		size = DefaultStackSize
	}
	if s.Terms.MaxStack != 0 {
		a.SampleMaxStack = s.Terms.MaxStack
	}
	switch mode {
	case FramePointers:
		a.SampleType |= perf.SampleCallchain
	case DWARF:
		a.SampleType |= perf.SampleCallchain | perf.SampleRegsUser | perf.SampleStackUser
		a.Flags |= perf.AttrExcludeCallchainUser
		a.SampleRegsUser = userRegs()
		a.SampleStackUser = uint32(min((size+7)&^7, maxStackSize))
	}
}

// userRegs is the mask of the registers that unwinding may need: all general
// ones (arch/*/include/uapi/asm/perf_regs.h).
func userRegs() uint64 {
	if runtime.GOARCH == "arm64" {
		return 1<<33 - 1 // x0 to x30, sp, pc
	}
	return 0xff0fff // without ds, es, fs and gs, which 64 bit code does not have
}
