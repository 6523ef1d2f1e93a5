// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// nameSources remembers which names came from EVENT_UPDATE records.
type nameSources struct {
	updated map[*perf.Event]string
	// described are the events that EVENT_DESC named.
	described map[*perf.Event]bool

	tracing     *TracingData // parsed, of tracingSize bytes
	tracingSize int
}

// update names ev after an EVENT_UPDATE record, unless EVENT_DESC did.
func (n *nameSources) update(ev *perf.Event, name string) {
	if ev == nil || name == "" {
		return
	}
	if n.updated == nil {
		n.updated = make(map[*perf.Event]string)
	}
	n.updated[ev] = name
	if !n.described[ev] {
		ev.Name = name
	}
}

func (r *Reader) setEvents(list []*perf.Event) {
	r.events = perf.NewEvents(list...)
	for _, ev := range list {
		r.ids += len(ev.IDs)
	}
}

// nameEvents gives the events the best names known so far: from EVENT_DESC,
// from EVENT_UPDATE, or made from the attribute.
func (r *Reader) nameEvents() {
	list := r.events.List()
	n := &r.names
	n.described = make(map[*perf.Event]bool)
	r.describe(list)
	for _, ev := range list {
		if n.described[ev] {
			continue
		}
		if name := n.updated[ev]; name != "" {
			ev.Name = name
			continue
		}
		ev.Name = attrName(&ev.Attr, r.tracing(), r.features.PMUMappings)
	}
}

// tracing returns the parsed tracing data, empty if there is none to be read.
func (r *Reader) tracing() *TracingData {
	n := &r.names
	if n.tracing == nil || n.tracingSize != len(r.features.TracingData) {
		n.tracing, n.tracingSize = &TracingData{}, len(r.features.TracingData)
		if n.tracingSize == 0 {
			return n.tracing
		}
		if t, err := ParseTracingData(r.features.TracingData); err == nil {
			n.tracing = t
		}
	}
	return n.tracing
}

// describe takes names from EVENT_DESC, whose entries are in the order of the
// events; where they are not, by their ids.
func (r *Reader) describe(list []*perf.Event) {
	for i, d := range r.features.EventDesc {
		var ev *perf.Event
		if i < len(list) && slices.Equal(list[i].IDs, d.IDs) {
			ev = list[i]
		} else if len(d.IDs) > 0 {
			ev = r.events.ByID(d.IDs[0])
		}
		if ev != nil && d.Name != "" {
			ev.Name = d.Name
			r.names.described[ev] = true
		}
	}
}

// attrName names an event as perf would, from its attribute.
func attrName(a *perf.Attr, t *TracingData, pmus []PMU) string {
	return baseName(a, t, pmus) + modifiers(a)
}

func baseName(a *perf.Attr, t *TracingData, pmus []PMU) string {
	switch a.Type {
	case perf.TypeHardware:
		return nameOf(a.Config, "unknown-hardware", "cycles", "instructions", "cache-references", "cache-misses",
			"branches", "branch-misses", "bus-cycles", "stalled-cycles-frontend", "stalled-cycles-backend",
			"ref-cycles")
	case perf.TypeSoftware:
		return nameOf(a.Config, "unknown-software", "cpu-clock", "task-clock", "page-faults", "context-switches",
			"cpu-migrations", "minor-faults", "major-faults", "alignment-faults", "emulation-faults", "dummy",
			"bpf-output", "cgroup-switches")
	case perf.TypeHWCache:
		return cacheName(a.Config)
	case perf.TypeTracepoint:
		if f := t.Event(a.Config); f != nil {
			return f.System + ":" + f.Name
		}
		return fmt.Sprintf("tracepoint:%d", a.Config)
	case perf.TypeBreakpoint:
		return fmt.Sprintf("mem:%#x", a.Config1)
	case perf.TypeRaw:
		return fmt.Sprintf("r%x", a.Config)
	}
	for _, m := range pmus {
		if m.Type == uint32(a.Type) {
			return fmt.Sprintf("%s/config=%#x/", m.Name, a.Config)
		}
	}
	return fmt.Sprintf("pmu%d/config=%#x/", a.Type, a.Config)
}

func nameOf(i uint64, unknown string, names ...string) string {
	if i < uint64(len(names)) {
		return names[i]
	}
	return fmt.Sprintf("%s-%d", unknown, i)
}

// cacheName decodes the config of TypeHWCache: cache, operation, result.
func cacheName(config uint64) string {
	cache := nameOf(config&0xff, "cache", "L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node")
	op := nameOf(config>>8&0xff, "op", "load", "store", "prefetch")
	if config>>16&0xff == 1 {
		return cache + "-" + op + "-misses"
	}
	if op == "prefetch" {
		return cache + "-prefetches"
	}
	return cache + "-" + op + "s"
}

// modifiers are the letters behind the colon.
func modifiers(a *perf.Attr) string {
	var s strings.Builder
	put := func(flag perf.AttrFlags, letter byte) {
		if !a.Flags.Has(flag) {
			s.WriteByte(letter)
		}
	}
	if a.Flags&(perf.AttrExcludeKernel|perf.AttrExcludeUser|perf.AttrExcludeHV) != 0 {
		put(perf.AttrExcludeKernel, 'k')
		put(perf.AttrExcludeUser, 'u')
		put(perf.AttrExcludeHV, 'h')
	}
	s.WriteString(strings.Repeat("p", a.Flags.PreciseIP()))
	if a.Flags.Has(perf.AttrExcludeHost) {
		s.WriteByte('G')
	}
	if s.Len() == 0 {
		return ""
	}
	return ":" + s.String()
}
