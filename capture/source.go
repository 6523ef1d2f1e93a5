// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"math"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Source has samples that come from no ring of the kernel's: events that programs tell of
// by themselves. They enter the recording as samples of tracepoints, in order of time. Its
// methods are called by one goroutine.
type Source interface {
	// Events are what its samples may be of. They do not change.
	Events() []SourceEvent
	// Take returns what has come since the last call, and how many samples were lost so
	// far. The list is valid until the next call. It does not wait. An error ends the recording.
	Take() (list []SourceSample, lost uint64, err error)
}

// SourceEvent is an event of a Source.
type SourceEvent struct {
	System, Name string
	// Format is its format file, as tracefs has them, of the event with a number.
	Format func(id int) string
}

// SourceSample is a sample of a Source.
type SourceSample struct {
	Event    int // of Events
	PID, TID int
	Time     uint64 // nanoseconds of CLOCK_MONOTONIC
	// Data are the fields behind the common ones.
	Data []byte
}

const (
	// sourceWindow is how much later than others a sample of a source may come: rounds are
	// not finished more often.
	sourceWindow = 50 * time.Millisecond
	// firstSourceID is where the ids of sources' events begin: the kernel counts its from 1.
	firstSourceID = 1 << 40
)

// source is a Source with the events that it has in the file.
type source struct {
	Source
	events []*perf.Event
	lost   uint64
}

// sources are those of a recording.
type sources struct {
	list     []*source
	points   []*perfevent.Tracepoint
	tally    tally
	room     []byte
	raw      []byte    // of a sample
	finished time.Time // when a round was
	begin    uint64    // CLOCK_MONOTONIC: what is older is not of the recording
}

// open puts the events of the options' sources into the set.
func (s *sources) open(set *eventSet, list []Source) error {
	id := math.MaxUint16 // the kernel numbers its events from below
	for _, from := range list {
		one := &source{Source: from}
		for _, e := range from.Events() {
			if id == math.MaxInt16 {
				return fmt.Errorf("%s:%s: more than %d events of sources", e.System, e.Name, math.MaxInt16)
			}
			s.points = append(s.points,
				&perfevent.Tracepoint{System: e.System, Name: e.Name, ID: uint64(id), Format: e.Format(id)})
			ev := perf.NewEvent(perf.Attr{
				Type: perf.TypeTracepoint, Config: uint64(id), SampleCount: 1, ReadFormat: readFormat,
				SampleType: perf.RawSampleType | perf.SamplePeriod | perf.SampleRaw,
				Flags:      perf.AttrDisabled | perf.AttrSampleIDAll | perf.AttrUseClockID,
				ClockID:    int32(sys.ClockMonotonic),
			}, e.System+":"+e.Name)
			ev.IDs = []uint64{firstSourceID + uint64(id)}
			ev.Index = len(set.list)
			set.list = append(set.list, ev)
			one.events = append(one.events, ev)
			id--
		}
		s.list = append(s.list, one)
	}
	return nil
}

// fromSource reports whether an event of the file is a source's: no ring has its samples.
func fromSource(ev *perf.Event) bool { return len(ev.IDs) == 1 && ev.IDs[0] > firstSourceID }

// start begins the recording: what came before is left out.
func (s *sources) start() error {
	now, err := sys.ClockMonotonic.Now()
	s.begin = uint64(now)
	return err
}

// take encodes what has come.
func (s *sources) take() ([]byte, error) {
	s.room = s.room[:0]
	for _, from := range s.list {
		list, lost, err := from.Take()
		if err != nil {
			return nil, fmt.Errorf("events of programs: %w", err)
		}
		for i := range list {
			if list[i].Time < s.begin {
				continue
			}
			if err := s.encode(from, &list[i]); err != nil {
				return nil, err
			}
		}
		if lost > from.lost && len(from.events) > 0 {
			rec := &perf.Lost{ID: from.events[0].IDs[0], N: lost - from.lost}
			from.lost = lost
			if now, err := sys.ClockMonotonic.Now(); err == nil {
				rec.SampleID.Time = uint64(now)
			}
			rec.SampleID.ID = rec.ID
			if s.room, err = perf.Append(s.room, rec, perf.NativeOrder, from.events[0]); err != nil {
				return nil, err
			}
		}
	}
	return s.room, nil
}

func (s *sources) encode(from *source, sample *SourceSample) error {
	ev := from.events[sample.Event]
	no := perf.NativeOrder
	// What every event's data begin with: type, flags, preempt count, pid.
	raw := no.AppendUint32(s.raw[:0], uint32(ev.Attr.Config))
	raw = append(no.AppendUint32(raw, uint32(sample.TID)), sample.Data...)
	for len(raw)%8 != 4 { // with its size in front it fills words
		raw = append(raw, 0)
	}
	s.raw = raw
	rec := &perf.Sample{ID: ev.IDs[0], PID: int32(sample.PID), TID: int32(sample.TID),
		Time: sample.Time, Period: 1, Raw: raw}
	var err error
	if s.tally.first == 0 || sample.Time < s.tally.first {
		s.tally.first = sample.Time
	}
	s.tally.samples, s.tally.last = s.tally.samples+1, max(s.tally.last, sample.Time)
	s.room, err = perf.Append(s.room, rec, perf.NativeOrder, ev)
	return err
}

// late reports whether samples may come that are older than others of this round.
func (s *sources) late() bool {
	return len(s.list) > 0 && time.Since(s.finished) < sourceWindow
}

// lost is how many samples were lost.
func (s *sources) lost() (n uint64) {
	for _, from := range s.list {
		n += from.lost
	}
	return n
}

// wait waits for samples that were on their way when the recording ended.
func (s *sources) wait() {
	if len(s.list) > 0 {
		time.Sleep(sourceWindow)
		s.finished = time.Time{}
	}
}
