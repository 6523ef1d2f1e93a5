// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"io"
	"time"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
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
	// Addresses: frames differ by address, not by function.
	Addresses bool
	// Reasons: frames without a name say in Source why. It counts with Stacks
	// only.
	Reasons bool
	// Places: Function tells afterwards what frames are. It counts with
	// Addresses, and without Lines and Inline, only.
	Places bool
	// Lines: frames have the source line, and differ by it.
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
	epoch  uint32 // of the slots that are valid
	cache  []frameSlot
	kernel []profile.FrameID // by kallsyms index, plus one
	batch  batch
	sites  *sites // nil unless functions of leaves are all that counts
	out    *profile.Batch
	lost   losses

	calls    []symbol.Call
	groups   [][]profile.FrameID
	expanded []profile.FrameID

	first uint64 // times of samples
	last  uint64
}

// labelSlot remembers the labels of a thread's sample before. Threads share
// slots: those that ran lately have one each as a rule.
type labelSlot struct {
	id      profile.LabelsID
	epoch   uint32 // valid in
	thread  uint32 // serial
	cpu     uint32
	process uint32 // serial of the process
	cgroup  uint64
}

// maxSlots is how many slots there are at most, a power of two.
const maxSlots = 1 << 16

// Collect reads the recording to its end and adds its samples up. What was
// odd is in Warnings afterwards.
func (s *Session) Collect(o CollectOptions) (*profile.Profile, error) {
	c := s.newCollector(o)
	if err := c.collect(0); !errors.Is(err, io.EOF) {
		return nil, err
	}
	c.finish()
	s.KeepLines()
	return c.b.Profile(), nil
}

// leaves adds the samples that come next, if only their leaves count: the fast path
// of Next and sample.
func (c *collector) leaves() {
	if !c.s.leafOnly || c.o.Symbols && c.sites == nil {
		return
	}
	for {
		list := c.s.samples()
		if len(list) == 0 {
			return
		}
		for i := range list {
			raw := &list[i]
			if err := c.s.decode(raw.Raw, raw.Event); err != nil {
				c.s.bad.add(raw.Offset, err)
				continue
			}
			c.s.now = raw.Time
			c.add(raw.Event, raw.Time, c.s.threadOf(raw.Event), &c.s.sample)
		}
	}
}

func (c *collector) sample(it *Item) { c.add(it.Event, it.Time, it.Thread, it.Sample) }

func (c *collector) add(ev *perf.Event, time uint64, th *timeline.Thread, sm *perf.Sample) {
	if c.first == 0 {
		c.first = time
	}
	c.last = time
	if ev.Layout.SampleType&perf.SampleRead == 0 {
		c.count(ev, th, sm)
		return
	}
	c.s.GroupCounts(ev, sm, func(member *perf.Event, period uint64) {
		sm.Period = period
		c.count(member, th, sm)
	})
}

// count adds a sample to those of an event.
func (c *collector) count(ev *perf.Event, th *timeline.Thread, sm *perf.Sample) {
	event, labels := c.event(ev), c.labels(th, sm)
	switch {
	case c.sites != nil:
		c.sites.push(c.s.Timeline, th, sm, labels, event)
	case c.o.Symbols:
		c.push(th, sm, labels, event)
	default:
		c.b.Add(labels, 0, event, 1, sm.Period)
	}
}

// event is the builder's number of ev. Events are given to the builder when
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
func (c *collector) labels(th *timeline.Thread, sm *perf.Sample) profile.LabelsID {
	serial, process := uint32(0), uint32(0)
	if th != nil {
		serial, process = th.Serial, th.Process.Serial
	}
	slot := c.slot(serial)
	if slot.epoch == c.epoch && slot.thread == serial && slot.cgroup == sm.Cgroup && slot.process == process &&
		(slot.cpu == sm.CPU || !c.o.Fields.Has(profile.FieldCPU)) {
		return slot.id
	}
	*slot = labelSlot{id: c.b.Labels(c.makeLabels(th, sm)), epoch: c.epoch, thread: serial, cpu: sm.CPU,
		process: process, cgroup: sm.Cgroup}
	return slot.id
}

func (c *collector) slot(serial uint32) *labelSlot {
	i := int(serial % maxSlots)
	for len(c.slots) <= i {
		c.slots = append(c.slots, labelSlot{})
	}
	return &c.slots[i]
}

// containerFields are the labels that hang on the container.
const containerFields = profile.FieldContainer | profile.FieldPod | profile.FieldNamespace | profile.FieldImage |
	profile.FieldCgroup

func (c *collector) makeLabels(th *timeline.Thread, sm *perf.Sample) profile.Labels {
	var l profile.Labels
	f := c.o.Fields
	if f&containerFields != 0 {
		c.containerLabels(&l, th, sm.Cgroup)
	}
	if len(c.o.Definitions) > 0 {
		l.Identities = c.s.IdentitiesUnder(c.o.Definitions, sm.Cgroup, th)
	}
	if f.Has(profile.FieldCPU) {
		l.CPU = int32(sm.CPU)
	}
	if th == nil {
		return l
	}
	if f.Has(profile.FieldComm) {
		l.Comm = th.Comm
	}
	if f.Has(profile.FieldPID) {
		l.PID = sm.PID
	}
	if f.Has(profile.FieldTID) {
		l.TID = sm.TID
	}
	return l
}

func (c *collector) containerLabels(l *profile.Labels, th *timeline.Thread, id uint64) {
	f := c.o.Fields
	if f.Has(profile.FieldCgroup) {
		l.Cgroup = c.s.CgroupPath(id)
	}
	if f.Has(profile.FieldContainer) {
		l.Container = c.s.ContainerName(id, th)
	}
	if f.Has(profile.FieldPod) {
		l.Pod = c.s.PodName(id, th)
	}
	ctn := c.s.ContainerOf(id, th)
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
	if c.sites != nil {
		c.nameSites()
	}
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
