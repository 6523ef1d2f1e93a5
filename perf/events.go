// SPDX-License-Identifier: Apache-2.0

package perf

// Event is one event of a recording: its attr, the ids the kernel gave to its
// instances (one per cpu and thread) and its name as perf spells it.
type Event struct {
	Attr   Attr
	IDs    []uint64
	Name   string
	Layout Layout
	// Index is the place among the events of the recording, from 0.
	Index int

	set *Events // that it was added to, if any
}

// buildIDs reports whether the recording's MMAP2 records may carry build-ids.
//
// The bit in the record alone does not tell: Linux (6.18, and before) sets it
// for one event that asked for build-ids and forgets to clear it for the
// events that it serves next. A recording without build-ids is so made to lie
// by any recording with them that runs at the same time.
func (e *Event) buildIDs() bool {
	if e.set != nil {
		return e.set.buildIDs
	}
	return e.Attr.Flags.Has(AttrBuildID)
}

// NewEvent makes an event and computes its layout.
func NewEvent(a Attr, name string, ids ...uint64) *Event {
	return &Event{Attr: a, IDs: ids, Name: name, Layout: NewLayout(&a)}
}

// Events finds the event that a record belongs to. The zero value has none.
// It is not safe for use while Add runs.
type Events struct {
	list []*Event
	byID map[uint64]*Event
	// dense is byID for the usual case: the kernel counts ids up.
	base  uint64
	dense []*Event
	// sampleID is where a sample holds its id (absent: nowhere that all
	// events agree on), sidID how far before the end other records do.
	sampleID int8
	sidID    int
	// sampleTime and sidTime are the same for the time, and agree is
	// whether all events have it there.
	agree      bool
	sampleTime int8
	sidTime    int
	buildIDs   bool // an event asks for them
}

// maxDense bounds the table by id, which has room for as many as denseBefore
// below the first.
const (
	maxDense    = 1 << 16
	denseBefore = 1 << 9
)

// NewEvents makes the set of the given events and numbers them.
func NewEvents(list ...*Event) *Events {
	e := new(Events)
	for _, ev := range list {
		e.Add(ev)
	}
	return e
}

// List is the events in their order. The slice is the set's own.
func (e *Events) List() []*Event { return e.list }

// Add appends ev, which the set numbers and keeps.
func (e *Events) Add(ev *Event) {
	ev.Index, ev.set = len(e.list), e
	e.buildIDs = e.buildIDs || ev.Attr.Flags.Has(AttrBuildID)
	l := &ev.Layout
	idAt, sidID := l.ident, l.sidIdent
	if idAt == absent {
		idAt, sidID = l.id, l.sidID
	}
	if len(e.list) == 0 {
		e.sampleID, e.sidID = idAt, sidID
		e.sampleTime, e.sidTime, e.agree = l.time, l.sidTime, true
	} else {
		if idAt != e.sampleID {
			e.sampleID = absent
		}
		if sidID != e.sidID {
			e.sidID = 0
		}
		e.agree = e.agree && l.time == e.sampleTime && l.sidTime == e.sidTime
	}
	e.list = append(e.list, ev)
	for _, id := range ev.IDs {
		e.index(id, ev)
	}
}

func (e *Events) index(id uint64, ev *Event) {
	if e.byID == nil {
		e.byID = make(map[uint64]*Event)
		e.base = id - min(id, denseBefore)
	}
	e.byID[id] = ev
	if i := id - e.base; i < maxDense {
		for uint64(len(e.dense)) <= i {
			e.dense = append(e.dense, nil)
		}
		e.dense[i] = ev
	}
}

// ByID is the event with that kernel id, nil if there is none.
func (e *Events) ByID(id uint64) *Event {
	if i := id - e.base; i < uint64(len(e.dense)) {
		return e.dense[i]
	}
	return e.byID[id]
}

// Of is the event that the whole record raw belongs to. A record that names
// no event, or id 0 as perf's own records do, belongs to the first; one that
// names an event not in the set to none (nil).
func (e *Events) Of(raw []byte, o Order) *Event {
	if len(e.list) == 0 {
		return nil
	}
	first := e.list[0]
	if len(e.list) == 1 && len(first.IDs) == 0 {
		return first
	}
	id, ok := e.id(raw, o)
	if !ok || id == 0 {
		return first
	}
	if ev := e.ByID(id); ev != nil {
		return ev
	}
	if len(e.list) == 1 || len(e.byID) == 0 {
		return first
	}
	return nil
}

func (e *Events) id(raw []byte, o Order) (uint64, bool) {
	if RecordType(o.Uint32(raw)) == RecordSample {
		if e.sampleID == absent || len(raw) < int(e.sampleID)+8 {
			return 0, false
		}
		return o.Uint64(raw[e.sampleID:]), true
	}
	raw = e.ungrown(raw, o)
	if e.sidID == 0 || len(raw) < HeaderSize+e.sidID {
		return 0, false
	}
	return o.Uint64(raw[len(raw)-e.sidID:]), true
}

// Time is the time of the whole record raw of the kernel, in nanoseconds;
// false if it has none.
func (e *Events) Time(raw []byte, o Order) (uint64, bool) {
	if !e.agree {
		ev := e.Of(raw, o)
		if ev == nil {
			return 0, false
		}
		return ev.Layout.Time(ev.ungrown(raw, o), o)
	}
	at := int(e.sampleTime)
	if RecordType(o.Uint32(raw)) != RecordSample {
		raw = e.ungrown(raw, o)
		if e.sidTime == 0 || len(raw) < HeaderSize+e.sidTime {
			return 0, false
		}
		at = len(raw) - e.sidTime
	} else if at < 0 || len(raw) < at+8 {
		return 0, false
	}
	return o.Uint64(raw[at:]), true
}
