// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"fmt"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/perf"
)

const (
	// holdTime and maxHeld bound the samples that wait until it is known what
	// their container is called.
	holdTime = 3 * time.Second
	maxHeld  = 64 << 20 // bytes
)

// SampleFilter drops the samples that are not recorded from what the rings hold.
// Its zero value drops none. The samples must be of perf.RawSampleType.
type SampleFilter struct {
	// Filter decides by container; nil: containers do not count.
	Filter *Filter
	// Tasks decides about the events that are recorded of single tasks and
	// cannot be bound to them (AddEvent). It is nil if the target has no tasks.
	Tasks *TaskSet
	// OnKeep is called with the process of each sample that Filter does not
	// drop; it may be nil.
	OnKeep func(pid int32)

	events    map[uint64]eventFilter // by the id of the event
	byTask    bool                   // some of them are filtered by task
	lastID    uint64                 // the event of the last sample, and its filter
	lastEvent eventFilter

	held  []heldSample
	bytes []byte // of the samples held, one behind the other
	since time.Time
}

// eventFilter is how the samples of one event are filtered.
type eventFilter struct {
	inKernel bool // the kernel has let them pass
	byTask   bool // only those of Tasks count
	// cgroupBack is the offset of the cgroup from the sample's end, 0: it has
	// none.
	cgroupBack int
}

// heldSample is a sample that waits.
type heldSample struct {
	origin Origin
	size   int
}

// AddEvent adds an open event. inKernel: its samples have passed the filter in the
// kernel. byTask: only those of Tasks are recorded.
func (s *SampleFilter) AddEvent(id uint64, st perf.SampleType, inKernel, byTask bool) {
	if s.events == nil {
		s.events = make(map[uint64]eventFilter)
	}
	e := eventFilter{inKernel: inKernel, byTask: byTask}
	if st&perf.SampleCgroup != 0 && st&perf.SampleAux == 0 {
		e.cgroupBack = 8
		for _, behind := range []perf.SampleType{perf.SampleDataPageSize, perf.SampleCodePageSize} {
			if st&behind != 0 {
				e.cgroupBack += 8
			}
		}
	}
	s.events[id] = e
	s.byTask = s.byTask || byTask
}

// Active reports whether some samples are not recorded.
func (s *SampleFilter) Active() bool { return s.Filter != nil || s.byTask }

// Apply returns what is to be written of the records that a ring of samples holds,
// a followed by b: all of them where they lie, or those that are kept, in scratch.
func (s *SampleFilter) Apply(a, b []byte, scratch *[]byte) (x, y []byte, err error) {
	var wrapped []byte
	kept, all := (*scratch)[:0], true
	at := 0
	for raw, err := range perfevent.Records(a, b, &wrapped) {
		if err != nil {
			return nil, nil, fmt.Errorf("read ring: %w", err)
		}
		keep := s.keep(raw)
		if !keep && all {
			all = false
			kept = append(append(kept, a[:min(at, len(a))]...), b[:max(at-len(a), 0)]...)
		}
		if keep && !all {
			kept = append(kept, raw...)
		}
		at += len(raw)
	}
	*scratch = kept
	if all {
		return a, b, nil
	}
	return kept, nil, nil
}

// keep reports whether a record is written now.
func (s *SampleFilter) keep(raw perf.Raw) bool {
	if raw.Type() != perf.RecordSample || len(raw) < perf.RawSampleMin {
		return true
	}
	if id := raw.SampleIdentifier(); id != s.lastID {
		s.lastID, s.lastEvent = id, s.events[id]
	}
	e := s.lastEvent
	if e.byTask {
		return s.Tasks.Has(raw.SampleTID())
	}
	if s.Filter == nil {
		return true
	}
	sample := Sample{TID: raw.SampleTID(), Time: raw.SampleTime(), Passed: e.inKernel}
	if e.cgroupBack > 0 {
		sample.Cgroup = perf.NativeOrder.Uint64(raw[len(raw)-e.cgroupBack:])
	}
	v, origin := s.Filter.Decide(&sample)
	if v != Drop && s.OnKeep != nil {
		s.OnKeep(raw.SamplePID())
	}
	if v == Hold {
		s.hold(raw, origin)
	}
	return v == Keep
}

func (s *SampleFilter) hold(raw []byte, origin Origin) {
	if len(s.held) == 0 {
		s.since = time.Now()
	}
	s.held = append(s.held, heldSample{origin, len(raw)})
	s.bytes = append(s.bytes, raw...)
}

// Holding reports whether samples wait. Those that come later are older than
// what has been written, so that no round is finished meanwhile.
func (s *SampleFilter) Holding() bool { return len(s.held) > 0 }

// Overdue reports whether samples have been held for as long as may be.
func (s *SampleFilter) Overdue() bool {
	return len(s.bytes) >= maxHeld || s.Holding() && time.Since(s.since) >= holdTime
}

// Release returns the samples that need not wait any longer and are kept; with
// last those are all. The result is valid until the next sample is held.
func (s *SampleFilter) Release(last bool) []byte {
	out, rest, from := s.bytes[:0:0], s.held[:0], s.bytes
	var wait []byte
	for _, h := range s.held {
		raw := from[:h.size]
		from = from[h.size:]
		switch s.Filter.Settle(h.origin, last) {
		case Keep:
			out = append(out, raw...)
		case Hold:
			rest = append(rest, h)
			wait = append(wait, raw...)
		}
	}
	s.held, s.bytes = rest, wait
	return out
}
