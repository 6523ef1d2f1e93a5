// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"io"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
)

// CollectOptions say what a profile tells apart. Everything that it does not
// ask for costs nothing.
type CollectOptions struct {
	Fields profile.Fields
	// Definitions are the names of those whose identities tell samples apart.
	Definitions []string
	// Symbols: a sample's stack is at least its leaf. Without, stacks are
	// empty.
	Symbols bool
	// Stacks: the callers as well.
	Stacks bool
	// Addresses: frames are told apart by address, not by function.
	Addresses bool
	// Lines: frames have the source line, and are told apart by it.
	Lines bool
	// Inline: calls that the compiler inlined are frames. It counts with
	// Stacks only.
	Inline bool
}

// collector adds samples up.
type collector struct {
	s      *Session
	o      CollectOptions
	b      *profile.Builder
	events []int // builder's event by perf.Event.Index, plus one
	slots  []labelSlot
	cache  []frameSlot
	kernel []profile.FrameID // by kallsyms index, plus one
	batch  batch
	out    *profile.Batch
	lost   losses

	calls    []symbol.Call
	groups   [][]profile.FrameID
	expanded []profile.FrameID

	first uint64 // times of samples
	last  uint64
}

// labelSlot remembers the labels of a thread's sample before.
type labelSlot struct {
	id      profile.LabelsID
	valid   bool
	cpu     uint32
	process uint32 // serial of the process
	cgroup  uint64
}

// Collect reads the recording to its end and adds its samples up. What was
// odd is told by Warnings afterwards.
func (s *Session) Collect(o CollectOptions) (*profile.Profile, error) {
	o.Inline = o.Inline && o.Stacks
	c := &collector{
		s: s, o: o, b: profile.NewBuilder(),
	}
	c.out = c.b.NewBatch()
	if o.Symbols {
		c.cache = make([]frameSlot, 1<<frameBits)
	}
	s.headOnly, s.before, s.renamed = !o.Stacks, c.flush, c.forgetLabels
	for {
		item, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if item.Sample != nil {
			c.sample(item)
		} else {
			c.other(item)
		}
	}
	c.finish()
	return c.b.Profile(), nil
}

func (c *collector) sample(it *Item) {
	event, labels := c.event(it.Event), c.labels(it)
	if c.first == 0 {
		c.first = it.Time
	}
	c.last = it.Time
	if c.o.Symbols {
		c.push(it, labels, event)
	} else {
		c.b.Add(labels, 0, event, 1, it.Sample.Period)
	}
}

// event is the builder's number of ev. Events are told to the builder when
// their first sample comes, which keeps the sideband's out.
func (c *collector) event(ev *perf.Event) int {
	if ev.Index < len(c.events) && c.events[ev.Index] > 0 {
		return c.events[ev.Index] - 1
	}
	for len(c.events) <= ev.Index {
		c.events = append(c.events, 0)
	}
	info := profile.EventInfo{Name: ev.Name, Unit: unit(&ev.Attr)}
	if ev.Attr.Flags.Has(perf.AttrFreq) {
		info.Freq = ev.Attr.SampleCount
	} else {
		info.Period = ev.Attr.SampleCount
	}
	n := c.b.Event(info)
	c.events[ev.Index] = n + 1
	return n
}

func unit(a *perf.Attr) string {
	if a.Type == perf.TypeSoftware && (a.Config == perf.SWCPUClock || a.Config == perf.SWTaskClock) {
		return "nanoseconds"
	}
	return "count"
}

// labels is the label set of the sample.
func (c *collector) labels(it *Item) profile.LabelsID {
	serial, process := 0, uint32(0)
	if it.Thread != nil {
		serial, process = int(it.Thread.Serial), it.Thread.Process.Serial
	}
	for len(c.slots) <= serial {
		c.slots = append(c.slots, labelSlot{})
	}
	slot := &c.slots[serial]
	sm := it.Sample
	if slot.valid && slot.cgroup == sm.Cgroup && slot.process == process && (slot.cpu == sm.CPU || !c.o.Fields.Has(profile.FieldCPU)) {
		return slot.id
	}
	*slot = labelSlot{id: c.b.Labels(c.makeLabels(it)), valid: true, cpu: sm.CPU, process: process, cgroup: sm.Cgroup}
	return slot.id
}

// containerFields are the labels that hang on the container.
const containerFields = profile.FieldContainer | profile.FieldPod | profile.FieldNamespace | profile.FieldImage | profile.FieldCgroup

func (c *collector) makeLabels(it *Item) profile.Labels {
	var l profile.Labels
	f := c.o.Fields
	if f&containerFields != 0 {
		c.containerLabels(&l, it)
	}
	if len(c.o.Definitions) > 0 {
		l.Identities = c.s.IdentitiesUnder(c.o.Definitions, it)
	}
	if f.Has(profile.FieldCPU) {
		l.CPU = int32(it.Sample.CPU)
	}
	if it.Thread == nil {
		return l
	}
	if f.Has(profile.FieldComm) {
		l.Comm = it.Thread.Comm
	}
	if f.Has(profile.FieldPID) {
		l.PID = it.Sample.PID
	}
	if f.Has(profile.FieldTID) {
		l.TID = it.Sample.TID
	}
	return l
}

func (c *collector) containerLabels(l *profile.Labels, it *Item) {
	f, id := c.o.Fields, it.Sample.Cgroup
	if f.Has(profile.FieldCgroup) {
		l.Cgroup = c.s.CgroupPath(id)
	}
	if f.Has(profile.FieldContainer) {
		l.Container = c.s.ContainerName(id, it.Thread)
	}
	if f.Has(profile.FieldPod) {
		l.Pod = c.s.PodName(id, it.Thread)
	}
	ctn := c.s.ContainerOf(id, it.Thread)
	if ctn == nil {
		return
	}
	if f.Has(profile.FieldContainer) {
		l.ContainerID = ctn.ID
	}
	if f.Has(profile.FieldNamespace) {
		l.Namespace = ctn.PodNamespace
	}
	if f.Has(profile.FieldImage) {
		l.Image = ctn.Image
	}
}

// finish fills in what the profile says about itself.
func (c *collector) finish() {
	c.flush()
	c.out.Flush()
	f := c.s.r.Features()
	m := c.b.Meta()
	m.Hostname, m.CmdLine, m.Fields = f.Hostname, f.CmdLine, c.o.Fields
	if c.last > c.first {
		m.Duration = time.Duration(c.last - c.first)
	}
	if d := f.ClockData; d != nil && c.first != 0 {
		m.Start = time.Unix(0, int64(d.WallNS+(c.first-d.ClockNS))).UTC()
	}
	c.lost.report(c.b)
}
