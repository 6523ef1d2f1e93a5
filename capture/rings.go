// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/perf"
)

// ring is one ring of one CPU: sideband or samples.
type ring struct {
	*perfevent.Ring
	cpu      int
	sideband bool
	// feeders are the events that write into it. One of them is polled: the
	// first whose tasks have not all ended.
	feeders []*perfevent.Event
	polled  int
	// pending is sideband that was read and not yet written; what has not
	// been looked at begins at fresh.
	pending []byte
	fresh   int
	drained drained
	// a and b are the samples that the current pass reads, taken is their
	// size as far as they lie in the ring; kept is room for those of them that
	// are written, trimmed for what is left of dumped stacks.
	a, b          []byte
	taken         int
	kept, trimmed []byte
	tally         tally
}

// written frees what the pass has written.
func (r *ring) written() {
	if r.sideband {
		r.pending = r.pending[:0]
	} else if r.taken > 0 { // else the catcher may be reading the ring
		r.Consume(r.taken)
	}
	r.a, r.b, r.taken = nil, nil, 0
}

// ringSizes is the size of a CPU's rings in bytes.
type ringSizes struct{ samples, sideband int }

// chooseRings gives the sizes to try first.
func chooseRings(o *Options, events []*perf.Event, cpus int) ringSizes {
	size := o.RingSize
	if size == 0 {
		size = smallRing
		for _, ev := range events {
			if busy(&ev.Attr) {
				size = largeRing
			}
		}
		for size > smallRing && size*cpus > allRings {
			size /= 2
		}
	}
	// That of sideband stays: half of it lost thousands of records in storms of
	// processes that began while the snapshot was taken.
	return ringSizes{samples: size, sideband: sidebandRing}
}

// busy: the event may write faster than a small ring is read.
func busy(a *perf.Attr) bool {
	const fast = 5000 // Hz
	switch {
	case a.SampleType&perf.SampleStackUser != 0:
		return true
	case a.Flags&perf.AttrFreq != 0:
		return a.SampleCount > fast
	case a.Type == perf.TypeSoftware && (a.Config == perf.SWCPUClock || a.Config == perf.SWTaskClock):
		return a.SampleCount > 0 && a.SampleCount < 1e9/fast // nanoseconds
	}
	return a.SampleCount == 1 && a.Config != perf.SWDummy
}

// shrink halves the sizes, or that of sideband only; it is false if they are as
// small as can be.
func (s *ringSizes) shrink(sidebandOnly bool) bool {
	if sidebandOnly {
		s.sideband /= 2
		return s.sideband >= smallestRing
	}
	if s.samples <= smallestRing {
		return false
	}
	s.samples /= 2
	// The sideband's half of what the samples have fits the 516 kB that the
	// kernel gives everyone.
	s.sideband = max(min(s.sideband, s.samples/2), smallestRing)
	return true
}

// mapRings maps two rings for each CPU and sends every event to one of them.
// It takes what is permitted: of sideband, and without an order of samples too.
func mapRings(s *eventSet, o *Options) ([]*ring, ringSizes, error) {
	sizes := chooseRings(o, s.list, len(s.cpus))
	for {
		rings, err := tryRings(s, sizes)
		if err == nil {
			return rings, sizes, nil
		}
		closeRings(rings)
		if !errors.Is(err, perfevent.ErrLockedMemory) || !sizes.shrink(o.RingSize != 0) {
			return nil, sizes, err
		}
	}
}

func tryRings(s *eventSet, sizes ringSizes) ([]*ring, error) {
	var rings []*ring
	byCPU := make(map[int][2]*ring)
	add := func(events []*perfevent.Event, sideband bool, size int) error {
		kind := 0
		if sideband {
			kind = 1
		}
		for _, ev := range events {
			cpu := ev.Target.CPU
			pair := byCPU[cpu]
			if r := pair[kind]; r != nil {
				if err := ev.SetOutput(r.feeders[0]); err != nil {
					return fmt.Errorf("share ring of cpu %d: %w", cpu, err)
				}
				r.feeders = append(r.feeders, ev)
				continue
			}
			m, err := perfevent.NewRing(ev, perfevent.RingPages(size))
			if err != nil {
				return err
			}
			pair[kind] = &ring{Ring: m, cpu: cpu, sideband: sideband, feeders: []*perfevent.Event{ev}}
			byCPU[cpu] = pair
			rings = append(rings, pair[kind])
		}
		return nil
	}
	if err := add(s.observer, true, sizes.sideband); err != nil {
		return rings, err
	}
	return rings, add(s.samplers(), false, sizes.samples)
}

// samplers are the open events that are not sideband.
func (s *eventSet) samplers() []*perfevent.Event { return s.all[len(s.observer):] }

// event is the event in the file that has a kernel id; nil if there is none.
func (s *eventSet) event(id uint64) *perf.Event {
	for _, ev := range s.list {
		if slices.Contains(ev.IDs, id) {
			return ev
		}
	}
	return nil
}

func closeRings(rings []*ring) {
	for _, r := range rings {
		r.Close()
	}
}
