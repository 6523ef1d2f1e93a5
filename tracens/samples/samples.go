// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package samples gives the events of a tracing namespace to a recording, as samples of
// tracepoints SYSTEM.NAMESPACE:EVENT, beside those of the kernel.
//
// Start with Open; a Source is one of capture.Options.
package samples

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/events"
)

// Source is the events of one namespace. It is for one goroutine.
type Source struct {
	file    *sys.FD
	decoder *events.Decoder
	buf     []byte
	unread  []byte // the beginning of a message
	records []events.Record
	taken   []capture.SourceSample

	list []capture.SourceEvent
	// known are the events of the list, by what they are called and have in them, and of
	// the decoder, which has another one each time that a program registers one anew.
	known map[string]int
	index map[*events.Event]int
	tgids map[int]int
	match func(system, name string) bool
	late  uint64 // records of events that matched and are not of the list
}

var _ capture.Source = (*Source)(nil)

// ErrNoEvents says that a namespace has no events that match.
var ErrNoEvents = errors.New("no such events are registered")

// readSize is how much is read at once, in bytes.
const readSize = 128 << 10

// What is in the index of events that are not of the list: one that was registered too
// late, and one that does not match.
const (
	noPlace   = -1
	notWanted = -2
)

// maxThreads bounds the threads whose processes are remembered.
const maxThreads = 1 << 16

// Open listens to those events of a namespace that match and are registered now, by their
// system and name. dir is where the namespaces are mounted. The caller closes the source.
func Open(dir, namespace string, match func(system, name string) bool) (*Source, error) {
	file, err := sys.Open(filepath.Join(dir, namespace, "records"), syscall.O_RDONLY|syscall.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	s := &Source{file: file, decoder: events.NewDecoder(nil), buf: make([]byte, readSize),
		match: match, known: make(map[string]int), index: make(map[*events.Event]int), tgids: make(map[int]int)}
	for {
		list, whole := s.decoder.Events()
		if whole {
			s.choose(list, namespace, match)
			break
		}
		if _, err := s.read(nil); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if len(s.list) == 0 {
		return nil, errors.Join(ErrNoEvents, file.Close())
	}
	return s, nil
}

// choose takes the events that match.
func (s *Source) choose(list []*events.Event, namespace string, match func(system, name string) bool) {
	for _, e := range list {
		if e == nil || !match(e.System, e.Name) {
			continue
		}
		s.known[identity(e)], s.index[e] = len(s.list), len(s.list)
		s.list = append(s.list, capture.SourceEvent{System: e.System + "." + namespace, Name: e.Name, Format: e.Format})
	}
}

func identity(e *events.Event) string { return e.System + " " + e.Text() }

// Close ends listening.
func (s *Source) Close() error { return s.file.Close() }

// Events implements capture.Source.
func (s *Source) Events() []capture.SourceEvent { return s.list }

// read reads once, and adds what came.
func (s *Source) read(list []events.Record) ([]events.Record, error) {
	n, err := s.file.Read(s.buf)
	if err != nil {
		return list, err
	}
	if n == 0 {
		return list, fmt.Errorf("the namespace has ended: %w", syscall.EPIPE)
	}
	s.unread = append(s.unread, s.buf[:n]...)
	used, list, err := s.decoder.Decode(s.unread, list)
	s.unread = append(s.unread[:0], s.unread[used:]...)
	return list, err
}

// Take implements capture.Source. Records of events that were registered after Open, with
// another name or other fields, count as lost: the recording has no place for them.
func (s *Source) Take() (list []capture.SourceSample, lost uint64, err error) {
	s.records, s.taken = s.records[:0], s.taken[:0]
	for err == nil {
		s.records, err = s.read(s.records)
	}
	if !errors.Is(err, syscall.EAGAIN) {
		return nil, s.decoder.Lost() + s.late, err
	}
	for i := range s.records {
		r := &s.records[i]
		at, ok := s.index[r.Event]
		if !ok {
			switch at, ok = s.known[identity(r.Event)]; {
			case !ok && s.match(r.Event.System, r.Event.Name):
				at = noPlace
			case !ok:
				at = notWanted
			}
			s.index[r.Event] = at
		}
		if at == noPlace {
			s.late++
		}
		if at < 0 {
			continue
		}
		s.taken = append(s.taken, capture.SourceSample{Event: at, PID: s.process(&r.Writer), TID: r.TID, Time: r.Time,
			Data: r.Data})
	}
	return s.taken, s.decoder.Lost() + s.late, nil
}

// process is the process of who wrote, the thread itself if it has ended.
func (s *Source) process(w *events.Writer) int {
	if w.PID != 0 {
		return w.PID
	}
	pid, ok := s.tgids[w.TID]
	if !ok {
		pid = w.TID
		if st, err := procfs.New("").Proc(w.TID).Status(); err == nil {
			pid = st.TGID
		}
		if len(s.tgids) >= maxThreads {
			clear(s.tgids)
		}
		s.tgids[w.TID] = pid
	}
	return pid
}
