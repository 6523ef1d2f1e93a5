// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"time"
)

// Merge adds profiles up. Events of the same name and unit become one; what
// the profiles say differently of their origin is left out, and the time is
// from the first start to the last end. The profiles stay as they are.
func Merge(profiles ...*Profile) *Profile {
	b := NewBuilder()
	for i, p := range profiles {
		b.merge(p)
		if i == 0 {
			*b.Meta() = p.Meta
		} else {
			b.Meta().merge(&p.Meta)
		}
	}
	return b.Profile()
}

func (b *Builder) merge(p *Profile) {
	events := make([]int, len(p.Events))
	for i, e := range p.Events {
		events[i] = b.mergeEvent(e)
	}
	frames := make([]FrameID, p.NumFrames())
	for id := range frames {
		frames[id] = b.Frame(p.Frame(FrameID(id)))
	}
	labels := make([]LabelsID, p.NumLabels())
	for id := range labels {
		labels[id] = b.Labels(*p.Labels(LabelsID(id)))
	}
	var stack []FrameID
	for s := range p.Samples() {
		stack = stack[:0]
		for _, f := range p.Stack(s.Stack) {
			stack = append(stack, frames[f])
		}
		b.Add(labels[s.Labels], b.Stack(stack), events[s.Event], s.Count, s.Value)
	}
	for _, l := range p.Lost {
		b.Lost(l)
	}
}

// mergeEvent finds the event or adds it. A period or frequency that differs is
// not known any more.
func (b *Builder) mergeEvent(e EventInfo) int {
	i := slices.IndexFunc(b.p.Events, func(x EventInfo) bool { return x.Name == e.Name && x.Unit == e.Unit })
	if i < 0 {
		return b.Event(e)
	}
	if x := &b.p.Events[i]; x.Period != e.Period || x.Freq != e.Freq {
		x.Period, x.Freq = 0, 0
	}
	return i
}

func (m *Meta) merge(o *Meta) {
	if m.Hostname != o.Hostname {
		m.Hostname = ""
	}
	if !slices.Equal(m.CmdLine, o.CmdLine) {
		m.CmdLine = nil
	}
	if m.Main != o.Main {
		m.Main = ""
	}
	m.Fields &= o.Fields
	switch {
	case o.Start.IsZero() || m.Start.IsZero():
		m.Start, m.Duration = time.Time{}, m.Duration+o.Duration
	default:
		end := m.Start.Add(m.Duration)
		if e := o.Start.Add(o.Duration); e.After(end) {
			end = e
		}
		if o.Start.Before(m.Start) {
			m.Start = o.Start
		}
		m.Duration = end.Sub(m.Start)
	}
}
