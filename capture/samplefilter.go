// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"os"
	"time"

	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/perf"
)

// Places in the samples of this package, beside those of the scanner.
const (
	sampleIDAt  = 8
	samplePIDAt = 24
	sampleTIDAt = 28
)

const (
	// holdTime and maxHeld bound the samples that wait until it is known what
	// their container is called.
	holdTime = 3 * time.Second
	maxHeld  = 64 << 20 // bytes
)

// sampleFilter takes the samples out of what the rings hold that are not recorded.
type sampleFilter struct {
	filter *filter.Filter // nil: containers do not count
	plan   *filter.Plan   // of the filter
	// kernelErr is why the kernel did not take the filter.
	kernelErr error
	// tasks are the tasks that are recorded, nil if they are not told
	// apart: the target has tasks, and a probe cannot be bound to them.
	tasks   *taskSet
	byEvent map[uint64]eventFilter // by the id of the event
	byTask  bool                   // some of them follow tasks
	lastID  uint64                 // the event of the last sample, and how it is sifted
	lastHow eventFilter

	deferred *deferredBinaries // of binaries; nil without a filter
	held     []heldSample
	bytes    []byte // of the samples held, one behind the other
	since    time.Time
	late     tally // of those that were held and written
}

// eventFilter is how the samples of one event are sifted.
type eventFilter struct {
	// inKernel: the kernel has let them pass. follow: only those of followed
	// tasks count.
	inKernel, byTask bool
	// cgroupAt is the place of the cgroup from the sample's end, 0: it has
	// none.
	cgroupAt int
}

// heldSample is a sample that waits.
type heldSample struct {
	origin filter.Origin
	size   int
}

// add tells of an open event.
func (s *sampleFilter) add(ev *perfevent.Event, how eventFilter) {
	if s.byEvent == nil {
		s.byEvent = make(map[uint64]eventFilter)
	}
	st := ev.Attr.SampleType
	if st&perf.SampleCgroup != 0 && st&perf.SampleAux == 0 {
		how.cgroupAt = 8
		for _, behind := range []perf.SampleType{perf.SampleDataPageSize, perf.SampleCodePageSize} {
			if st&behind != 0 {
				how.cgroupAt += 8
			}
		}
	}
	s.byEvent[ev.ID] = how
	s.byTask = s.byTask || how.byTask
}

// active: some samples are not recorded.
func (s *sampleFilter) active() bool { return s.filter != nil || s.byTask }

// apply gives what is to be written of the records that a ring of samples holds:
// all of them as they are, or those that are kept, in room.
func (s *sampleFilter) apply(a, b []byte, room *[]byte) (x, y []byte, err error) {
	var scratch []byte
	kept, all := (*room)[:0], true
	at := 0
	for raw, err := range perfevent.Records(a, b, &scratch) {
		if err != nil {
			return nil, nil, fmt.Errorf("read ring: %w", err)
		}
		keep := s.verdict(raw)
		if !keep && all {
			all = false
			kept = append(append(kept, a[:min(at, len(a))]...), b[:max(at-len(a), 0)]...)
		}
		if keep && !all {
			kept = append(kept, raw...)
		}
		at += len(raw)
	}
	*room = kept
	if all {
		return a, b, nil
	}
	return kept, nil, nil
}

// verdict reports whether a record is written now.
func (s *sampleFilter) verdict(raw []byte) bool {
	if perf.RecordType(nativeOrder.Uint32(raw)) != perf.RecordSample || len(raw) < sampleMin {
		return true
	}
	if id := nativeOrder.Uint64(raw[sampleIDAt:]); id != s.lastID {
		s.lastID, s.lastHow = id, s.byEvent[id]
	}
	how := s.lastHow
	tid := int32(nativeOrder.Uint32(raw[sampleTIDAt:]))
	if how.byTask {
		return s.tasks.has(tid)
	}
	if s.filter == nil {
		return true
	}
	sample := filter.Sample{TID: tid, Time: nativeOrder.Uint64(raw[sampleTimeAt:]), Passed: how.inKernel}
	if how.cgroupAt > 0 {
		sample.Cgroup = nativeOrder.Uint64(raw[len(raw)-how.cgroupAt:])
	}
	v, place := s.filter.Decide(&sample)
	if v != filter.Drop {
		s.deferred.release(int32(nativeOrder.Uint32(raw[samplePIDAt:])))
	}
	if v == filter.Hold {
		s.hold(raw, place)
	}
	return v == filter.Keep
}

func (s *sampleFilter) hold(raw []byte, place filter.Origin) {
	if len(s.held) == 0 {
		s.since = time.Now()
	}
	s.held = append(s.held, heldSample{place, len(raw)})
	s.bytes = append(s.bytes, raw...)
}

// holding reports whether samples wait. Those that come later are older than
// what has been written, so that no round is finished meanwhile.
func (s *sampleFilter) holding() bool { return len(s.held) > 0 }

// overdue: no more samples are held.
func (s *sampleFilter) overdue() bool {
	return len(s.bytes) >= maxHeld || s.holding() && time.Since(s.since) >= holdTime
}

// release gives the samples that need not wait any longer and are kept; with
// last those are all. The result is valid until the next sample is held.
func (s *sampleFilter) release(last bool) []byte {
	out, rest, from := s.bytes[:0:0], s.held[:0], s.bytes
	var wait []byte
	for _, h := range s.held {
		raw := from[:h.size]
		from = from[h.size:]
		switch s.filter.Settle(h.origin, last) {
		case filter.Keep:
			out = append(out, raw...)
		case filter.Hold:
			rest = append(rest, h)
			wait = append(wait, raw...)
		}
	}
	s.held, s.bytes = rest, wait
	return out
}

// taskSet is the tasks that a recording follows, as its sideband tells of them.
type taskSet struct {
	self  int32 // this process, whose thread may stand for a command
	tasks map[int32]taskState
	// ended are those that ended in the current and the last round.
	ended, older []int32
}

// taskState is one task. executed is when it executed a program last.
type taskState struct {
	gone     bool
	executed uint64
}

func newTaskSet(tids []int) *taskSet {
	f := &taskSet{self: int32(os.Getpid()), tasks: make(map[int32]taskState)}
	for _, tid := range tids {
		f.tasks[int32(tid)] = taskState{}
	}
	return f
}

func (f *taskSet) has(tid int32) bool {
	_, ok := f.tasks[tid]
	return ok
}

func (f *taskSet) record(rec perf.Record) {
	switch rec := rec.(type) {
	case *perf.Fork:
		if rec.PID != f.self {
			f.tasks[rec.TID] = taskState{}
		}
	case *perf.Exit:
		if t, ok := f.tasks[rec.TID]; ok && rec.Time >= t.executed {
			f.tasks[rec.TID] = taskState{gone: true}
			f.ended = append(f.ended, rec.TID)
		}
	case *perf.Comm:
		// A thread that executes a program goes on with the number of the
		// first one of its process, which has ended.
		if f.has(rec.TID) && rec.Misc&perf.MiscCommExec != 0 {
			f.tasks[rec.TID] = taskState{executed: rec.SampleID.Time}
		}
	}
}

// round forgets the tasks that had ended before the last round.
func (f *taskSet) round() {
	for _, tid := range f.older {
		if f.tasks[tid].gone {
			delete(f.tasks, tid)
		}
	}
	f.ended, f.older = f.older[:0], f.ended
}
