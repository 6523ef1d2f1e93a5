// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Writer is who wrote a record, as the host numbers it.
type Writer struct{ PID, TID int }

// Record is one event that happened.
type Record struct {
	// Time is when it was taken, of the monotonic clock.
	Time time.Time
	Writer
	Event *Event
	// Data are the event's fields; they are everybody's and must not be changed.
	Data []byte
}

// recordCost is what a record takes beside its data, in bytes, about.
const recordCost = 96

// Reader listens to events of a Set, also to those that come later.
type Reader struct {
	set   *Set
	match func(name string) bool
	host  bool

	mu    sync.Mutex
	queue []Record
	bytes int
	limit int
	ready chan struct{} // has room for one word: there is something
	lost  atomic.Uint64
}

func (r *Reader) wants(name string) bool { return r.match == nil || r.match(name) }

// Listen begins to listen to the events that match; nil is all. The caller closes the
// reader. EMFILE is one too many.
func (s *Set) Listen(match func(name string) bool) (*Reader, error) { return s.listen(match, false) }

// ListenHost is Listen for who is trusted: containers cannot use its place up.
func (s *Set) ListenHost(match func(name string) bool) (*Reader, error) { return s.listen(match, true) }

func (s *Set) listen(match func(name string) bool, host bool) (*Reader, error) {
	r := &Reader{set: s, match: match, host: host, ready: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	others := 0
	for o := range s.readers {
		if !o.host {
			others++
		}
	}
	if !host && s.limits.Readers > 0 && others >= s.limits.Readers {
		return nil, fmt.Errorf("%d readers: %w", others, syscall.EMFILE)
	}
	r.limit = s.limits.Queue
	s.readers[r] = true
	s.wantAll(r, 1)
	return r, nil
}

// Close ends listening. What was not read is gone.
func (r *Reader) Close() {
	s := r.set
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readers[r] {
		return
	}
	delete(s.readers, r)
	s.wantAll(r, -1)
}

// wantAll is want for all events of a reader; the caller holds mu.
func (s *Set) wantAll(r *Reader, by int) {
	s.inheritAll()
	for _, e := range s.byName {
		if r.wants(e.Name) {
			s.want(e, by)
		}
	}
	for _, e := range s.others {
		if r.wants(e.Name) {
			s.want(e, by)
		}
	}
}

// Lost counts the records that found the reader's queue full.
func (r *Reader) Lost() uint64 { return r.lost.Load() }

// Next waits for records and returns all that there are, the oldest first. The error is
// the context's.
func (r *Reader) Next(ctx context.Context) ([]Record, error) {
	for {
		if list := r.Take(); len(list) > 0 {
			return list, nil
		}
		select {
		case <-r.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Take returns the records that there are.
func (r *Reader) Take() []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.queue
	r.queue, r.bytes = nil, 0
	return list
}

// publish gives a record to those that listen.
func (s *Set) publish(who Writer, e *Event, data []byte) {
	s.written.Add(1)
	s.mu.RLock()
	defer s.mu.RUnlock()
	var rec Record
	for r := range s.readers {
		if !r.wants(e.Name) {
			continue
		}
		if rec.Event == nil {
			rec = Record{Time: time.Now(), Writer: who, Event: e, Data: append([]byte(nil), data...)}
		}
		if !r.add(rec) {
			s.lost.Add(1)
		}
	}
}

// add queues a record, or counts it as lost.
func (r *Reader) add(rec Record) bool {
	r.mu.Lock()
	cost := len(rec.Data) + recordCost
	full := r.limit > 0 && r.bytes+cost > r.limit
	if !full {
		r.queue = append(r.queue, rec)
		r.bytes += cost
	}
	r.mu.Unlock()
	if full {
		r.lost.Add(1)
		return false
	}
	select {
	case r.ready <- struct{}{}:
	default:
	}
	return true
}
