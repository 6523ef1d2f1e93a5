// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"maps"
	"slices"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/perf"
)

// losses adds up what was lost, per event.
type losses struct {
	names  []string // of events, in the order of their first loss
	events map[string]*eventLosses
}

// eventLosses tells the two ways in which the kernel reports a loss apart: a
// LOST record where the ring had no room, and LOST_SAMPLES, which perf makes
// at the end out of the event's own count, and which therefore counts the
// same losses again.
type eventLosses struct {
	records []profile.LostCount
	counted uint64
	total   uint64
}

func (l *losses) of(event string) *eventLosses {
	if l.events == nil {
		l.events = make(map[string]*eventLosses)
	}
	e := l.events[event]
	if e == nil {
		e = new(eventLosses)
		l.events[event] = e
		l.names = append(l.names, event)
	}
	return e
}

// report tells b the larger of both counts.
func (l *losses) report(b *profile.Builder) {
	for _, name := range slices.Sorted(maps.Keys(l.events)) {
		e := l.events[name]
		for _, r := range e.records {
			b.Lost(r)
		}
		if e.counted > e.total {
			b.Lost(profile.LostCount{Event: name, CPU: -1, Samples: e.counted - e.total})
		}
	}
}

// other takes the records that are not samples.
func (c *collector) other(it *Item) {
	switch r := it.Other.(type) {
	case *perf.Lost:
		c.lostRecord(it, r)
	case *perf.LostSamples:
		c.lost.of(eventName(it.Event)).counted += r.N
	}
}

// forgetLabels makes the labels of the next samples anew.
func (c *collector) forgetLabels() {
	if c.epoch++; c.epoch == 0 {
		clear(c.slots) // it has gone round
		c.epoch = 1
	}
}

func eventName(ev *perf.Event) string {
	if ev == nil {
		return ""
	}
	return ev.Name
}

// lostRecord charges a loss to the task that ran when there was room again.
func (c *collector) lostRecord(it *Item, r *perf.Lost) {
	ev := c.s.r.Events().ByID(r.ID)
	if ev == nil {
		ev = it.Event
	}
	l := profile.LostCount{Event: eventName(ev), CPU: -1, Samples: r.N}
	if it.Event != nil && it.Event.Layout.SampleIDAll {
		if it.Event.Attr.SampleType&perf.SampleCPU != 0 {
			l.CPU = int32(r.SampleID.CPU)
		}
		if c.o.Fields.Has(profile.FieldContainer) {
			th := c.s.Timeline.Thread(r.SampleID.PID, r.SampleID.TID)
			if g := c.s.ContainerOf(c.lastCgroup(th.Serial), th); g != nil {
				l.Container = g.Label()
			}
		}
	}
	e := c.lost.of(l.Event)
	e.records = append(e.records, l)
	e.total += r.N
}

// lastCgroup is the cgroup of the thread's last sample, if that was lately.
func (c *collector) lastCgroup(serial uint32) uint64 {
	if slot := c.slot(serial); slot.thread == serial {
		return slot.cgroup
	}
	return 0
}
