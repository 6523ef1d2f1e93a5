// SPDX-License-Identifier: Apache-2.0

package events

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bound what a namespace takes of this process. 0 is no limit.
type Limits struct {
	// Events, Readers and Registrations are how many there may be at a time; readers of
	// the host (ListenHost) do not count.
	Events, Readers, Registrations int
	// Rate is how many records a second are taken; what is more is lost, and counted.
	Rate int
	// Writes is how many calls a second write a record each; more of them wait, see Pace.
	Writes int
	// Queue is how many bytes wait for a reader; what comes when it is full is lost, and
	// counted.
	Queue int
}

// DefaultLimits are those of a namespace whose options say nothing.
var DefaultLimits = Limits{Events: 1000, Readers: 8, Registrations: 1000, Rate: 1_000_000, Writes: 25_000,
	Queue: 1 << 20}

// Event is an event of a Set.
type Event struct {
	Description
	// System is the trace system that it is of, SystemName as a rule.
	System string
	// ID numbers it in the set: the type of its records.
	ID int

	base    string // of a name that several formats have: the name before the number
	wanted  int    // readers, and 1 for SetEnabled
	forced  bool
	enabled atomic.Bool // wanted > 0
	refs    int         // of files and registrations
	regs    map[Key]*registration
	sw      Switch // of another system; may be nil
}

// Enabled reports whether somebody listens.
func (e *Event) Enabled() bool { return e.enabled.Load() }

// Set is the events of a namespace. It is safe for concurrent use.
type Set struct {
	mu      sync.RWMutex
	limits  Limits
	byName  map[string]*Event
	others  []*Event // of other systems
	lastID  int
	regs    map[Key]*registration
	orphans int // of them, whose file is closed
	heirs   func(owners map[uint64]bool) []Heir
	files   int
	readers map[*Reader]bool

	rate, writes  rate
	active        atomic.Int64  // how many events are enabled
	enabled       chan struct{} // has room for one word: there are more
	written, lost atomic.Uint64
	left          uint64 // registrations that were not inherited
}

// firstID is that of a set's first event: the kernel's own events have the lower ones.
const firstID = 1

// NewSet is without events. heirs finds the programs that have the memory of others by
// fork, see Heir; nil finds none.
func NewSet(l Limits, heirs func(owners map[uint64]bool) []Heir) *Set {
	return &Set{limits: l, byName: make(map[string]*Event), regs: make(map[Key]*registration), heirs: heirs,
		readers: make(map[*Reader]bool), enabled: make(chan struct{}, 1), lastID: firstID - 1}
}

// SetLimits changes the limits; what is there already stays.
func (s *Set) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = l
}

// Limits are those in force.
func (s *Set) Limits() Limits {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.limits
}

// Find is an event by its name, nil if there is none.
func (s *Set) Find(name string) *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	return s.byName[name]
}

// List is all events, by name.
func (s *Set) List() []*Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	list := make([]*Event, 0, len(s.byName))
	for _, e := range s.byName {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Event) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// All is List with the events of other systems behind it.
func (s *Set) All() []*Event {
	list := s.List()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append(list, s.others...)
}

// Busy reports whether files, registrations or readers are open.
func (s *Set) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	return s.files > 0 || len(s.regs) > 0 || len(s.readers) > 0
}

// Written and Lost count records: those that were taken, and those that found the queue
// of a reader full, once for each reader.
func (s *Set) Written() uint64 { return s.written.Load() }
func (s *Set) Lost() uint64    { return s.lost.Load() }

// Left counts the registrations that forked programs did not inherit, because there were
// too many.
func (s *Set) Left() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.left
}

// Active reports whether an event is enabled, and Enabled tells when one becomes so. They
// are for one who looks after data that come without a call.
func (s *Set) Active() bool             { return s.active.Load() > 0 }
func (s *Set) Enabled() <-chan struct{} { return s.enabled }

// setEnabled notes whether an event is enabled, and reports whether that is new; the
// caller holds mu.
func (s *Set) setEnabled(e *Event, on bool) bool {
	if e.enabled.Swap(on) == on {
		return false
	}
	if !on {
		s.active.Add(-1)
		return true
	}
	s.active.Add(1)
	select {
	case s.enabled <- struct{}{}:
	default:
	}
	return true
}

// Status is the text of user_events_status.
func (s *Set) Status() string {
	var b strings.Builder
	busy := 0
	list := s.List()
	for _, e := range list {
		b.WriteString(e.Name)
		if e.Enabled() {
			busy++
			b.WriteString(" # Used by gantry")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nActive: %d\nBusy: %d\n", len(list), busy)
	return b.String()
}

// SetEnabled enables an event without a reader, or takes that back: the enable file. The
// error is ENOENT.
func (s *Set) SetEnabled(name string, on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byName[name]
	if e == nil {
		return fmt.Errorf("event %q: %w", name, syscall.ENOENT)
	}
	if e.forced != on {
		e.forced = on
		s.inheritAll()
		s.want(e, map[bool]int{true: 1, false: -1}[on])
	}
	return nil
}

// want changes how many want an event; the caller holds mu.
func (s *Set) want(e *Event, by int) {
	e.wanted += by
	on := e.wanted > 0
	if !s.setEnabled(e, on) {
		return
	}
	if e.sw != nil {
		_ = e.sw.Set(on) // the system knows what is not there
	}
	for key, r := range e.regs {
		if r.sw.Set(on) != nil {
			s.drop(key, r) // the program ended
		}
	}
}

// File is what one open of user_events_data has registered. Its methods may be called
// from several goroutines.
type File struct {
	set *Set

	mu     sync.RWMutex
	events []*Event // by the index that writes begin with
	closed bool
}

// Open is a file without registrations. The caller closes it.
func (s *Set) Open() *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files++
	return &File{set: s}
}

// Close ends the file. Registrations last as long as the memory that they are of.
func (f *File) Close() {
	s := f.set
	s.mu.Lock()
	defer s.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.closed = true
	for _, r := range s.regs {
		if r.file == f {
			r.file = nil
			s.orphans++
		}
	}
	for _, e := range f.events {
		s.unref(e)
	}
	f.events = nil
	s.files--
	s.sweep()
}

// count counts the readers of a new event; the caller holds mu.
func (s *Set) count(e *Event) {
	for r := range s.readers {
		if r.wants(e.Name) {
			e.wanted++
		}
	}
	s.setEnabled(e, e.wanted > 0)
}

// Add adds an event of another trace system, which writes it by Publish. It is not among
// those that programs see. sw, unless it is nil, is told whether somebody listens; the set
// does not close it.
func (s *Set) Add(system string, d *Description, sw Switch) *Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	e := &Event{Description: *d, System: system, ID: s.lastID, sw: sw}
	s.others = append(s.others, e)
	s.count(e)
	if sw != nil && e.Enabled() {
		_ = sw.Set(true) // the system knows what is not there
	}
	return e
}

// Drop takes an event away that Add added.
func (s *Set) Drop(e *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = slices.DeleteFunc(s.others, func(o *Event) bool { return o == e })
	if s.setEnabled(e, false) && e.sw != nil {
		_ = e.sw.Set(false) // the same
	}
}

// Publish gives a record of an event of another system to those who listen. ErrDisabled
// says that nobody does, EINVAL that the data are not the event's.
func (s *Set) Publish(who Writer, e *Event, data []byte) error {
	switch {
	case !e.Enabled():
		return ErrDisabled
	case len(data) < e.MinSize:
		return fmt.Errorf("%d bytes of data, %s has %d: %w", len(data), e.Name, e.MinSize, syscall.EINVAL)
	}
	if err := e.check(data); err != nil {
		return err
	}
	s.publish(who, e, data)
	return nil
}

// isWanted reports whether a reader waits for an event of that name.
func (s *Set) isWanted(name string) bool {
	for r := range s.readers {
		if r.wants(name) {
			return true
		}
	}
	return false
}

// Delete ends an event that nobody has registered.
func (s *Set) Delete(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep()
	e := s.byName[name]
	if e == nil {
		return ErrNoEvent
	}
	if e.refs > 0 || e.wanted > 0 {
		return ErrEventBusy
	}
	s.forget(e)
	return nil
}

// indexSize is the size of what a write begins with.
const indexSize = 4

// Write takes one record: the index of an event, and its data. It returns the length of
// all.
func (f *File) Write(who Writer, b []byte) (int, error) {
	if len(b) < indexSize {
		return 0, fmt.Errorf("a write without an index: %w", syscall.EFAULT)
	}
	index := int32(binary.NativeEndian.Uint32(b))
	if index < 0 {
		return 0, fmt.Errorf("index %d: %w", index, syscall.EINVAL)
	}
	data := b[indexSize:]
	e, err := f.find(int(index), data)
	if err != nil {
		return 0, err
	}
	f.set.publish(who, e, data)
	return len(b), nil
}

// Pace is how long a call that writes a record is to wait: a call costs whoever serves the set
// much more than a record.
func (s *Set) Pace() time.Duration { return s.writes.queue(s.Limits().Writes) }

// Record is a record of the file's event with that index, for PublishAll: its data, which
// must not change any more, were checked as those of a write.
func (f *File) Record(who Writer, index int, data []byte) (Record, error) {
	e, err := f.find(index, data)
	return Record{who, e, data}, err
}

// find is an event of the file that is enabled, and has such data.
func (f *File) find(index int, data []byte) (*Event, error) {
	f.mu.RLock()
	var e *Event
	if index < len(f.events) {
		e = f.events[index]
	}
	f.mu.RUnlock()
	switch {
	case e == nil:
		return nil, ErrNoEvent
	case len(data) < e.MinSize:
		return nil, fmt.Errorf("%d bytes of data, %s has %d: %w", len(data), e.Name, e.MinSize, syscall.EINVAL)
	case !e.Enabled():
		return nil, ErrDisabled
	}
	return e, e.check(data)
}

// check checks the places of data whose size is not fixed.
func (e *Event) check(data []byte) error {
	for i := range e.Fields {
		f := &e.Fields[i]
		if !dynamic(f.Type) {
			continue
		}
		relative := strings.HasPrefix(f.Type, "__rel_loc ")
		at := f.Offset - CommonSize
		where := binary.NativeEndian.Uint32(data[at:])
		from, size := int(where&0xffff), int(where>>16)
		if relative {
			from += at + f.Size
		} else {
			from -= CommonSize
		}
		if from < -CommonSize || from+size > len(data) {
			return fmt.Errorf("%s.%s lies outside of the data: %w", e.Name, f.Name, syscall.EFAULT)
		}
		// What is printed as a text ends with a zero.
		if strings.Contains(f.Type, "char") && from+size > 0 && size > 0 && data[from+size-1] != 0 {
			return fmt.Errorf("%s.%s has no end: %w", e.Name, f.Name, syscall.EFAULT)
		}
	}
	return nil
}
