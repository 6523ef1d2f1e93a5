// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Priorities of sys.Urgent: who catches comes before who reads.
const (
	readerPriority  = 1
	catcherPriority = 2
)

// spareProcs is how many more goroutines may run at once in a hurry. A thread
// that comes back from a system call waits until one of so many places is free,
// whatever its priority is; those of the CPUs may be taken by goroutines whose
// threads wait for a CPU.
const spareProcs = 4

// hurry puts reading before everything else, where samples have so many bytes
// that a ring is full before a busy machine lets the recorder run. It is nil
// where that is not needed or not permitted, and for a recorder that compresses,
// which would take the time from what is recorded.
func (r *Recorder) hurry() (calm func()) {
	if !r.opts.dumpsStacks() || r.opts.Compress != 0 {
		return nil
	}
	undo, err := sys.Urgent(readerPriority)
	if err != nil {
		return nil
	}
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + spareProcs)
	r.poll.Direct()
	stop := func() {}
	if c, err := newCatcher(r.rings, r.sizes.samples); err == nil {
		r.catcher = c
		stop = c.start()
	}
	return func() {
		stop()
		runtime.GOMAXPROCS(procs)
		_ = undo() // its thread ends with the recording, or does nothing but write the end
	}
}

// catcher moves what is in rings to memory before they are full, while the
// recorder is held up: by a disk, by a file that it looks at, by a lock. It runs
// in a thread of its own, of a higher priority, that waits for nobody.
type catcher struct {
	// mu guards the rings, as far as reading them goes, and what was caught.
	mu    sync.Mutex
	rings []*ring
	poll  *sys.Poller
	every time.Duration
	// closers are the memory.
	closers []*sys.Mapping
}

// caught is what was taken out of a ring and is not yet written.
type caught struct {
	// bytes are whole records. Their memory is, for samples, one of two pieces by
	// turns: the other has what a pass writes.
	bytes []byte
	room  [2][]byte
	turn  int
}

const (
	// catchFill is the share of a ring that is left in it.
	catchFill = 1. / 16
	// catchRate is how fast a ring may fill up, in bytes a second: with 5 kHz of
	// 8 KiB each, and a half more.
	catchRate = 64 << 20
	// catchRoom is the room for what is caught of a ring, in rings, and
	// maxCatchRoom in bytes. It takes memory where it has been used.
	catchRoom    = 8
	maxCatchRoom = 16 << 20
	// readyRoom is how much of it has memory from the beginning.
	readyRoom = 1 << 20
)

// newCatcher prepares one for rings of such a size.
func newCatcher(rings []*ring, size int) (_ *catcher, err error) {
	c := &catcher{rings: rings}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	// A ring is a quarter full at a look that is on time, and room is left for one that
	// is not. Each look costs Go's monitor more than this thread: see sys.Poller.
	fills := time.Duration(float64(time.Second) * float64(size) / catchRate)
	c.every = min(max(fills/4, time.Millisecond), tick/8)
	if c.poll, err = sys.NewPoller(); err != nil {
		return nil, err
	}
	c.poll.Direct()
	for _, ring := range rings {
		room := max(min(catchRoom*ring.Size(), maxCatchRoom), ring.Size())
		for i := range ring.caught.room {
			if ring.sideband && i > 0 {
				break // it is copied from there at once
			}
			m, err := sys.Memory(room, min(ring.Size(), readyRoom))
			if err != nil {
				return nil, err
			}
			c.closers = append(c.closers, m)
			ring.caught.room[i] = m.Bytes()[:0]
		}
		ring.caught.bytes = ring.caught.room[0]
	}
	return c, nil
}

// close releases the memory: what was caught must be written by then.
func (c *catcher) close() {
	if c == nil {
		return
	}
	if c.poll != nil {
		c.poll.Close()
	}
	for _, ring := range c.rings {
		ring.caught = caught{}
	}
	for _, m := range c.closers {
		m.Close()
	}
}

// start begins to catch; stop waits for the end of it.
func (c *catcher) start() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		undo, err := sys.Urgent(catcherPriority)
		if err != nil {
			return
		}
		defer undo()
		c.run(over)
	}()
	return func() {
		close(over)
		_ = c.poll.Wake() // else at the next look
		<-ended
	}
}

func (c *catcher) run(over <-chan struct{}) {
	var ready []sys.Ready
	for {
		var err error
		ready, err = c.poll.Wait(c.every, ready)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		select {
		case <-over:
			return
		default:
			c.look()
		}
	}
}

// look catches what rings have that are filled.
func (c *catcher) look() {
	if !c.mu.TryLock() {
		return // the recorder takes all there is
	}
	defer c.mu.Unlock()
	for _, ring := range c.rings {
		if float64(ring.Unread()) >= catchFill*float64(ring.Size()) {
			ring.catch()
		}
	}
}

// catch moves what the ring has to memory, if there is room.
func (r *ring) catch() {
	a, b := r.Peek()
	n := len(a) + len(b)
	if c := &r.caught; cap(c.bytes)-len(c.bytes) >= n {
		c.bytes = append(append(c.bytes, a...), b...)
		r.Consume(n)
	}
}

// takeSamples gives each ring of samples what it has, until the next call, and
// frees the ring.
func (c *catcher) takeSamples() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ring := range c.rings {
		if ring.sideband {
			continue
		}
		a, b := ring.Peek()
		k := &ring.caught
		// Where there is no room for it, in memory of Go's.
		ring.a, ring.b = append(append(k.bytes, a...), b...), nil
		ring.Consume(len(a) + len(b))
		k.turn = 1 - k.turn
		k.bytes = k.room[k.turn]
	}
}

// takeSideband appends what the ring has to dst, and frees it.
func (c *catcher) takeSideband(dst []byte, ring *ring) []byte {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	dst = append(dst, ring.caught.bytes...)
	ring.caught.bytes = ring.caught.bytes[:0]
	a, b := ring.Peek()
	dst = append(append(dst, a...), b...)
	ring.Consume(len(a) + len(b))
	return dst
}

// waiting is how many bytes of the ring are unread, and of those that were caught.
func (c *catcher) waiting(ring *ring) int {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return ring.Unread() + len(ring.caught.bytes)
}
