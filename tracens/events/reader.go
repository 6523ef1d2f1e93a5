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

// Writer is who wrote a record, as the host numbers it, and when.
type Writer struct {
	PID, TID int // 0 is not known
	// Time is nanoseconds of CLOCK_MONOTONIC.
	Time uint64
}

// Record is one event that happened.
type Record struct {
	Writer
	Event *Event
	// Data are the event's fields; they are everybody's and must not be changed.
	Data []byte
}

// recordCost is what a record takes beside its data, in bytes, about.
const recordCost = 96

// hostQueue is the least that waits for a reader of the host, in bytes: it reads what rings
// give in one go.
const hostQueue = 32 << 20

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
	if r.limit = s.limits.Queue; host && r.limit > 0 {
		r.limit = max(r.limit, hostQueue)
	}
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
	s.PublishAll([]Record{{who, e, append([]byte(nil), data...)}})
}

// PublishAll gives records that File.Record has checked to those that listen, in their
// order. Their data become the set's.
func (s *Set) PublishAll(list []Record) {
	s.written.Add(uint64(len(list)))
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.rate.take(len(list), s.limits.Rate); n < len(list) {
		s.lose(uint64(len(list) - n))
		list = list[:n]
	}
	for r := range s.readers {
		if lost := r.add(list); lost > 0 {
			s.lost.Add(lost)
		}
	}
}

// Lose counts records that were written and could not be taken.
func (s *Set) Lose(n uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.lose(n)
}

// lose is Lose; the caller holds mu, as a reader at least.
func (s *Set) lose(n uint64) {
	s.lost.Add(n)
	for r := range s.readers {
		r.lost.Add(n)
	}
}

// add queues the records that the reader wants, and returns how many found no room.
func (r *Reader) add(list []Record) (lost uint64) {
	r.mu.Lock()
	for i := range list {
		if !r.wants(list[i].Event.Name) {
			continue
		}
		cost := len(list[i].Data) + recordCost
		if r.limit > 0 && r.bytes+cost > r.limit {
			lost++
			continue
		}
		r.queue = append(r.queue, list[i])
		r.bytes += cost
	}
	r.mu.Unlock()
	r.lost.Add(lost)
	select {
	case r.ready <- struct{}{}:
	default:
	}
	return lost
}

// rate bounds something per second.
type rate struct {
	mu   sync.Mutex
	left float64
	at   time.Time
}

// refill adds what has come up since the last call, most at most. The caller holds mu.
func (r *rate) refill(perSecond, most float64) {
	now := time.Now()
	if r.at.IsZero() {
		r.left = most
	} else {
		r.left = min(most, r.left+now.Sub(r.at).Seconds()*perSecond)
	}
	r.at = now
}

// take takes up to n of what a second has, 0 without a limit, and returns how many it
// got. What was left of a second before may come on top.
func (r *rate) take(n, limit int) int {
	if limit == 0 {
		return n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(float64(limit), float64(limit))
	n = min(n, int(r.left))
	r.left -= float64(n)
	return n
}

// queue takes one, and returns how long to wait for it. A tenth of a second's may come at
// once.
func (r *rate) queue(limit int) time.Duration {
	if limit == 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refill(float64(limit), max(1, float64(limit)/10))
	r.left--
	return max(0, time.Duration(-r.left/float64(limit)*float64(time.Second)))
}
