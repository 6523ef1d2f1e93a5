// SPDX-License-Identifier: Apache-2.0

package analysis

import "github.com/gantry-tools/gantry/perf"

// counters remembers what the counters that samples read stood at.
type counters map[counter]uint64

// counter is a kernel event id; inherited events count for each thread apart.
type counter struct {
	id  uint64
	tid int32
}

// GroupCounts calls f for each event that a sample counts for. As a rule that
// is the sample's own, with its period. A sample that reads the counters of its
// group ({a,b}:S) counts for every member that moved since the last sample, by
// what it moved.
//
// Samples must come in the order of their time, each once.
func (s *Session) GroupCounts(ev *perf.Event, sm *perf.Sample, f func(ev *perf.Event, period uint64)) {
	if ev.Layout.SampleType&perf.SampleRead == 0 {
		f(ev, sm.Period)
		return
	}
	if s.counters == nil {
		s.counters = make(counters)
	}
	format := ev.Attr.ReadFormat
	for _, c := range sm.Read.Counts {
		key := counter{id: c.ID}
		if format&perf.FormatID == 0 {
			key.id = sm.ID
		}
		if ev.Attr.Flags.Has(perf.AttrInherit) {
			key.tid = sm.TID
		}
		member := s.r.Events().ByID(key.id)
		switch {
		case member != nil:
		case format&perf.FormatGroup != 0:
			continue
		default: // a counter of its own, recorded without an id
			member = ev
		}
		moved := c.Value - s.counters[key]
		s.counters[key] = c.Value
		if moved != 0 {
			f(member, moved)
		}
	}
}
