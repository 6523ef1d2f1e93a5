// SPDX-License-Identifier: Apache-2.0

package script

import (
	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/perf"
)

// counters remembers what the counters in samples stood at.
type counters map[uint64]uint64 // by kernel id

// group prints a sample that reads the counters of its group ({a,b}:S): as one
// sample for each counter that moved, with what it moved by as the period.
func (p *printer) group(it *analysis.Item) {
	leader, period := it.Event, it.Sample.Period
	for _, c := range it.Sample.Read.Counts {
		id := c.ID
		if leader.Attr.ReadFormat&perf.FormatID == 0 {
			id = it.Sample.ID
		}
		ev := p.r.Events().ByID(id)
		switch {
		case ev != nil:
		case leader.Attr.ReadFormat&perf.FormatGroup != 0:
			continue
		default: // a counter of its own, recorded without an id
			ev = leader
		}
		moved := c.Value - p.counters[id]
		p.counters[id] = c.Value
		if moved == 0 {
			continue
		}
		it.Event, it.Sample.Period = ev, moved
		p.sample(it)
	}
	it.Event, it.Sample.Period = leader, period
}
