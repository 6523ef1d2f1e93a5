// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
)

// Errors of the kernel's user_events, with what is behind them.
var (
	// ErrOtherFields: an event of that name has other fields, or the bit is taken.
	ErrOtherFields = fmt.Errorf("the event exists with other fields: %w", syscall.EADDRINUSE)
	ErrBitTaken    = fmt.Errorf("the bit is registered already: %w", syscall.EADDRINUSE)
	ErrNoEvent     = fmt.Errorf("no such event: %w", syscall.ENOENT)
	ErrEventBusy   = fmt.Errorf("the event is in use: %w", syscall.EBUSY)
	ErrDisabled    = fmt.Errorf("the event is not enabled: %w", syscall.EBADF)
	ErrFull        = fmt.Errorf("the namespace has no room for more: %w", syscall.EMFILE)
)

// Key tells a registration from others: a bit at an address of a program's memory. Owner
// numbers the memory, which threads share.
type Key struct {
	Owner, Addr uint64
	Bit         uint8
}

// Instant orders registrations and forks of a machine: ticks of its clock, and within one
// the numbers that processes were given.
type Instant struct {
	Ticks uint64
	PID   int
}

// Before reports whether i comes before o.
func (i Instant) Before(o Instant) bool {
	return i.Ticks < o.Ticks || i.Ticks == o.Ticks && i.PID < o.PID
}

// Switch sets the bit of a registration in the program's memory.
type Switch interface {
	// Set sets or clears it. An error says that the memory is gone, or is none.
	Set(on bool) error
	// Alive reports whether the program has that memory still.
	Alive() bool
	Close() error
}

// Bit is what a program registers with an event.
type Bit struct {
	Key
	Switch
	// At is when; what was forked later has it too. Its PID is the last one given.
	At Instant
}

// Heir is a program that has the memory of another by fork, and registrations with it.
type Heir struct {
	// Owner numbers its memory, Of the one that it is a copy of.
	Owner, Of uint64
	Born      Instant
	// Open opens a bit of it.
	Open func(addr uint64, bit uint8) (Switch, error)
}

// registration is a program's interest in whether an event is enabled.
type registration struct {
	event *Event
	sw    Switch
	file  *File // nil once it is closed
	at    Instant
}

// Register registers an event and returns the index that its writes begin with. With
// several, events of one name may differ in their fields, and have a number behind it.
// The bit says whether the event is enabled. Its Switch becomes the set's, which closes
// it, also after an error.
func (f *File) Register(d *Description, several bool, bit Bit) (index int, err error) {
	s := f.set
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if err != nil {
			_ = bit.Close() // nothing was done with it
		}
	}()
	s.sweep()
	if old := s.regs[bit.Key]; old != nil && !old.sw.Alive() {
		s.drop(bit.Key, old) // of a program that this one was before its exec
	}
	name, e := s.named(d, several)
	switch {
	case s.regs[bit.Key] != nil:
		return 0, ErrBitTaken
	case e != nil && (!e.Same(d) && !several || (e.base != "") != several):
		return 0, ErrOtherFields
	case s.limits.Registrations > 0 && len(s.regs) >= s.limits.Registrations,
		e == nil && s.limits.Events > 0 && len(s.byName) >= s.limits.Events:
		return 0, ErrFull
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, syscall.EBADF
	}
	on := e != nil && e.Enabled()
	made := e == nil
	if made {
		on = s.isWanted(name)
	}
	if on {
		if err := bit.Set(true); err != nil {
			return 0, errors.Join(fmt.Errorf("set the bit: %w", syscall.EFAULT), err)
		}
	}
	if made {
		e = s.make(d, name, several)
	}
	s.add(bit.Key, &registration{event: e, sw: bit.Switch, file: f, at: bit.At})
	if index = slices.Index(f.events, e); index < 0 {
		index = len(f.events)
		f.events = append(f.events, e)
		e.refs++
	}
	return index, nil
}

// named is the event that a description means, nil if there is none, and its name. The
// caller holds mu.
func (s *Set) named(d *Description, several bool) (string, *Event) {
	if !several {
		return d.Name, s.byName[d.Name]
	}
	for n := 0; ; n++ {
		name := d.Name + "." + strconv.FormatInt(int64(n), 16)
		e := s.byName[name]
		if e == nil || e.base == d.Name && slices.Equal(e.Fields, d.Fields) {
			return name, e
		}
	}
}

// make makes an event; the caller holds mu.
func (s *Set) make(d *Description, name string, several bool) *Event {
	s.lastID++
	e := &Event{Description: *d, System: SystemName, ID: s.lastID, regs: make(map[Key]*registration)}
	e.Name = name
	if several {
		e.base = d.Name
	}
	s.byName[name] = e
	s.count(e)
	return e
}

// add adds a registration; the caller holds mu.
func (s *Set) add(key Key, r *registration) {
	r.event.refs++
	s.regs[key], r.event.regs[key] = r, r
	if r.file == nil {
		s.orphans++
	}
}

// drop ends a registration; the caller holds mu.
func (s *Set) drop(key Key, r *registration) {
	delete(s.regs, key)
	delete(r.event.regs, key)
	if r.file == nil {
		s.orphans--
	}
	_ = r.sw.Close() // the memory may be gone
	s.unref(r.event)
}

// unref takes one reference of an event; the last one ends it, as the kernel does. The
// caller holds mu.
func (s *Set) unref(e *Event) {
	if e.refs--; e.refs == 0 {
		s.forget(e)
	}
}

func (s *Set) forget(e *Event) {
	if s.byName[e.Name] == e {
		delete(s.byName, e.Name)
	}
	s.setEnabled(e, false)
}

// sweep ends the registrations of memory that is gone, where no file tells: the caller
// holds mu.
func (s *Set) sweep() {
	if s.orphans == 0 {
		return
	}
	alive := make(map[uint64]bool)
	for key, r := range s.regs {
		if r.file != nil {
			continue
		}
		is, asked := alive[key.Owner]
		if !asked {
			is = r.sw.Alive()
			alive[key.Owner] = is
		}
		if !is {
			s.drop(key, r)
		}
	}
}

// Unregister ends a registration, and clears its bit. The event stays while its file is
// open.
func (s *Set) Unregister(key Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regs[key]
	if r == nil {
		return ErrNoEvent
	}
	err := r.sw.Set(false)
	gone := err != nil && !r.sw.Alive()
	s.drop(key, r)
	switch {
	case gone:
		return ErrNoEvent
	case err != nil:
		return errors.Join(fmt.Errorf("clear the bit: %w", syscall.EFAULT), err)
	}
	return nil
}

// inheritAll has all programs inherit what they should; the caller holds mu.
func (s *Set) inheritAll() {
	if s.heirs == nil || len(s.regs) == 0 {
		return
	}
	owners := make(map[uint64]bool)
	for key := range s.regs {
		owners[key.Owner] = true
	}
	for _, h := range s.heirs(owners) {
		s.inherit(h)
	}
}

// Inherit gives a program what it has by fork, before it does something itself. find says
// of which of the owners it is an heir.
func (s *Set) Inherit(owner uint64, find func(owners map[uint64]bool) (Heir, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.regs) == 0 {
		return
	}
	owners := make(map[uint64]bool)
	for key := range s.regs {
		owners[key.Owner] = true
	}
	if owners[owner] {
		return // it has
	}
	if h, ok := find(owners); ok {
		s.inherit(h)
	}
}

func (s *Set) inherit(h Heir) {
	type inherited struct {
		key Key
		*registration
	}
	var list []inherited
	for key, r := range s.regs {
		if key.Owner == h.Of && r.at.Before(h.Born) {
			list = append(list, inherited{key, r})
		}
	}
	for _, i := range list {
		key := Key{h.Owner, i.key.Addr, i.key.Bit}
		if s.regs[key] != nil {
			continue
		}
		if s.limits.Registrations > 0 && len(s.regs) >= s.limits.Registrations {
			s.left++
			continue
		}
		sw, err := h.Open(key.Addr, key.Bit)
		if err != nil {
			return // it has ended
		}
		if sw.Set(i.event.Enabled()) != nil {
			_ = sw.Close() // it has given that memory back
			continue
		}
		s.add(key, &registration{event: i.event, sw: sw, at: h.Born})
	}
}

// Kept is an event of a file, as the next server registers it again.
type Kept struct {
	Text    string
	Several bool
}

// KeptBit is a registration of a file.
type KeptBit struct {
	Addr  uint64
	Bit   uint8
	Index int
	At    Instant
}

// Keep returns what Restore takes: the file's events, in the order of their indices, and
// the registrations that were made by it.
func (f *File) Keep() (list []Kept, bits []KeptBit) {
	s := f.set
	s.mu.RLock()
	defer s.mu.RUnlock()
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, e := range f.events {
		d := e.Description
		if e.base != "" {
			d.Name = e.base
		}
		list = append(list, Kept{d.Text(), e.base != ""})
	}
	for key, r := range s.regs {
		if r.file == f {
			bits = append(bits, KeptBit{key.Addr, key.Bit, slices.Index(f.events, r.event), r.at})
		}
	}
	return list, bits
}

// Restore registers what another file had. open opens a bit; one that cannot be opened is
// left out, as of a program that has ended.
func (f *File) Restore(list []Kept, bits []KeptBit, open func(*KeptBit) (Bit, error)) error {
	for i := range list {
		d, err := Parse(list[i].Text)
		if err != nil {
			return err
		}
		f.hold(d, list[i].Several)
	}
	for i := range bits {
		if bits[i].Index < 0 || bits[i].Index >= len(list) {
			continue
		}
		bit, err := open(&bits[i])
		if err != nil {
			continue
		}
		k := &list[bits[i].Index]
		d, err := Parse(k.Text)
		if err == nil {
			_, err = f.Register(d, k.Several, bit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hold gives an event the file's next index.
func (f *File) hold(d *Description, several bool) {
	s := f.set
	s.mu.Lock()
	defer s.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	name, e := s.named(d, several)
	if e == nil {
		e = s.make(d, name, several)
	}
	f.events = append(f.events, e)
	e.refs++
}
