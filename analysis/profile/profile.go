// SPDX-License-Identifier: Apache-2.0

// Package profile is the aggregated model that every view is made from: how
// often each stack was seen under each set of labels.
//
// A Builder takes samples in and interns everything: frames to FrameID, stacks
// to StackID, label sets to LabelsID. What repeats costs a table lookup and no
// memory. A caller with a hot path keeps the ids and passes integers only:
//
//	b := profile.NewBuilder()
//	ev := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
//	l := b.Labels(profile.Labels{Container: "web", Comm: "nginx"})
//	s := b.Stack([]profile.FrameID{leaf, caller, main})
//	b.Add(l, s, ev, 1, period)
//	p := b.Profile()
//
// Ids are given in order of first use, so the same input gives the same ids.
//
// A Builder and the Profile that it returns share memory and are not safe for
// concurrent use; a finished Profile may be read from many goroutines.
package profile

import (
	"iter"
	"time"
)

// FrameID names an interned Frame.
type FrameID uint32

// StackID names an interned stack. Zero is the empty stack.
type StackID uint32

// LabelsID names an interned set of labels.
type LabelsID uint32

// Labels says whose sample it is. Fields left zero do not tell samples apart:
// fill only what the report asks for.
type Labels struct {
	// Container is the name shown for the container; empty outside of any.
	Container string
	// ContainerID is the runtime's full id.
	ContainerID string
	// Pod is the name shown for the pod; empty outside of any.
	Pod string
	// Namespace is the pod's, of Kubernetes.
	Namespace string
	Image     string
	// Identities are those under the definitions that were asked for.
	Identities Identities
	// Cgroup is the path in the cgroup hierarchy.
	Cgroup   string
	Comm     string
	PID, TID int32
	CPU      int32
}

// Fields is a set of labels.
type Fields uint32

// The labels that a profile can tell apart.
const (
	FieldContainer Fields = 1 << iota
	FieldPod
	FieldNamespace
	FieldImage
	FieldCgroup
	FieldComm
	FieldPID
	FieldTID
	FieldCPU
)

// Has reports whether all of want is in f.
func (f Fields) Has(want Fields) bool { return f&want == want }

// EventInfo describes one event and what was seen of it.
type EventInfo struct {
	// Name as perf spells it: cpu-clock, cycles:u, sched:sched_switch.
	Name string
	// Unit of the values: nanoseconds for the clock events, else count.
	// Empty is count.
	Unit string
	// Period is the fixed sampling period in Unit, Freq the frequency asked
	// for in samples per second. At most one of them is set.
	Period, Freq uint64
	// Samples and Value are the totals of what was added; the Builder counts.
	Samples, Value uint64
}

// LostCount is a number of samples that the kernel or the recorder dropped.
type LostCount struct {
	Event     string // empty if not known
	Container string // empty if not known
	CPU       int32  // -1 if not known
	Samples   uint64
}

// Meta says where a profile comes from. The zero value is valid.
type Meta struct {
	Hostname string
	CmdLine  []string
	Start    time.Time
	Duration time.Duration
	// Fields are the labels that the samples carry, so that an export can
	// tell CPU 0 from a CPU that was not asked for. Zero if not known.
	Fields Fields
	// Main is the path of the program that was profiled, when there is one.
	Main string
}

// Sample is the weight of one stack under one set of labels.
type Sample struct {
	Labels LabelsID
	Stack  StackID
	Event  int
	Count  uint64
	Value  uint64
}

// Profile is an aggregated profile, ready to be viewed or exported.
type Profile struct {
	Meta   Meta
	Events []EventInfo
	Lost   []LostCount

	frames  frameTable
	stacks  stackTable
	labels  column[Labels]
	samples column[sample]
}

// NumSamples is the number of distinct samples (not the number of samples
// taken, which is in Events).
func (p *Profile) NumSamples() int { return p.samples.len() }

// Samples gives all distinct samples in order of first use.
func (p *Profile) Samples() iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		for _, chunk := range p.samples.chunks {
			for i := range chunk {
				if !yield(chunk[i].public()) {
					return
				}
			}
		}
	}
}

// Sample returns the i-th distinct sample.
func (p *Profile) Sample(i int) Sample { return p.samples.at(uint32(i)).public() }

// NumFrames is the number of frames; ids are 0 .. NumFrames-1.
func (p *Profile) NumFrames() int { return p.frames.frames.len() }

// Frame returns the frame id.
func (p *Profile) Frame(id FrameID) Frame { return p.frames.get(id) }

// Inlined reports whether frame id is an inlined call, as Frame does, for less.
func (p *Profile) Inlined(id FrameID) bool { return p.frames.frames.at(uint32(id)).isInlined }

// NumStacks is the number of stacks; ids are 0 .. NumStacks-1, and 0 is the
// empty stack.
func (p *Profile) NumStacks() int { return p.stacks.stacks.len() }

// Stack returns the frames of s, leaf first. They must not be changed.
func (p *Profile) Stack(s StackID) []FrameID { return p.stacks.get(s) }

// NumLabels is the number of label sets; ids are 0 .. NumLabels-1.
func (p *Profile) NumLabels() int { return p.labels.len() }

// Labels returns the label set id. It must not be changed.
func (p *Profile) Labels(id LabelsID) *Labels { return p.labels.at(uint32(id)) }

// TotalLost sums Lost, for one event or, if event is empty, for all. Losses
// whose event is not known count for every event.
func (p *Profile) TotalLost(event string) uint64 {
	var n uint64
	for _, l := range p.Lost {
		if event == "" || l.Event == "" || l.Event == event {
			n += l.Samples
		}
	}
	return n
}
