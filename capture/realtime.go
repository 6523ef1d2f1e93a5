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

// Priorities of sys.SetRealtime: who catches comes before who reads.
const (
	readerPriority  = 1
	drainerPriority = 2
)

// spareProcs is how many more goroutines may run at once while rings are drained at real-time priority. A thread
// that comes back from a system call waits until one of so many places is free,
// whatever its priority is; those of the CPUs may be taken by goroutines whose
// threads wait for a CPU.
const spareProcs = 4

// setRealtime puts reading before everything else, where samples have so many bytes
// that a ring is full before a busy machine lets the recorder run. It is nil
// where that is not needed or not permitted, and for a recorder that compresses,
// which would take the time from what is recorded.
func (r *Recorder) setRealtime() (leave func()) {
	if !r.opts.dumpsStacks() || r.opts.Compress != 0 {
		return nil
	}
	undo, err := sys.SetRealtime(readerPriority)
	if err != nil {
		return nil
	}
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + spareProcs)
	r.poll.Blocking()
	stop := func() {}
	if c, err := newRingDrainer(r.rings, r.sizes.samples); err == nil {
		r.drainer = c
		stop = c.start()
	}
	return func() {
		stop()
		runtime.GOMAXPROCS(procs)
		_ = undo() // its thread ends with the recording, or does nothing but write the end
	}
}

// ringDrainer moves what is in rings to memory before they are full, while the
// recorder is held up: by a disk, by a file that it looks at, by a lock. It runs
// in a thread of its own, of real-time priority, that waits for no other.
type ringDrainer struct {
	// mu guards the rings, as far as reading them goes, and what was caught.
	mu    sync.Mutex
	rings []*ring
	poll  *sys.Poller
	every time.Duration
	// closers are the memory.
	closers []*sys.Mapping
}

// drained is what was taken out of a ring and is not yet written.
type drained struct {
	// bytes are whole records. Their memory is, for samples, one of two pieces by
	// turns: the other has what a pass writes.
	bytes   []byte
	buffers [2][]byte
	turn    int
}

const (
	// drainFill is the share of a ring that is left in it.
	drainFill = 1. / 16
	// drainRate is how fast a ring may fill up, in bytes a second: with 5 kHz of
	// 8 KiB each, and a half more.
	drainRate = 64 << 20
	// drainRings is the room for what is caught of a ring, in rings, and
	// maxCatchRoom in bytes. It takes memory where it has been used.
	drainRings     = 8
	maxDrainBuffer = 16 << 20
	// readyBuffer is how much of it has memory from the beginning.
	readyBuffer = 1 << 20
)

// newRingDrainer prepares one for rings of such a size.
func newRingDrainer(rings []*ring, size int) (_ *ringDrainer, err error) {
	c := &ringDrainer{rings: rings}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	// A ring is a quarter full at a look that is on time, and room is left for one that
	// is not. Each look costs Go's monitor more than this thread: see sys.Poller.
	fills := time.Duration(float64(time.Second) * float64(size) / drainRate)
	c.every = min(max(fills/4, time.Millisecond), tick/8)
	if c.poll, err = sys.NewPoller(); err != nil {
		return nil, err
	}
	c.poll.Blocking()
	for _, ring := range rings {
		capacity := max(min(drainRings*ring.Size(), maxDrainBuffer), ring.Size())
		for i := range ring.drained.buffers {
			if ring.sideband && i > 0 {
				break // it is copied from there at once
			}
			m, err := sys.Memory(capacity, min(ring.Size(), readyBuffer))
			if err != nil {
				return nil, err
			}
			c.closers = append(c.closers, m)
			ring.drained.buffers[i] = m.Bytes()[:0]
		}
		ring.drained.bytes = ring.drained.buffers[0]
	}
	return c, nil
}

// close releases the memory: what was caught must be written by then.
func (c *ringDrainer) close() {
	if c == nil {
		return
	}
	if c.poll != nil {
		c.poll.Close()
	}
	for _, ring := range c.rings {
		ring.drained = drained{}
	}
	for _, m := range c.closers {
		m.Close()
	}
}

// start begins to catch; stop waits for the end of it.
func (c *ringDrainer) start() (stop func()) {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		undo, err := sys.SetRealtime(drainerPriority)
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

func (c *ringDrainer) run(over <-chan struct{}) {
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
			c.drain()
		}
	}
}

// drain catches what rings have that are filled.
func (c *ringDrainer) drain() {
	if !c.mu.TryLock() {
		return // the recorder takes all there is
	}
	defer c.mu.Unlock()
	for _, ring := range c.rings {
		if float64(ring.Unread()) >= drainFill*float64(ring.Size()) {
			ring.drainRing()
		}
	}
}

// drainRing moves what the ring has to memory, if there is room.
func (r *ring) drainRing() {
	a, b := r.Peek()
	n := len(a) + len(b)
	if c := &r.drained; cap(c.bytes)-len(c.bytes) >= n {
		c.bytes = append(append(c.bytes, a...), b...)
		r.Consume(n)
	}
}

// takeSamples gives each ring of samples what it has, until the next call, and
// frees the ring.
func (c *ringDrainer) takeSamples() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ring := range c.rings {
		if ring.sideband {
			continue
		}
		a, b := ring.Peek()
		k := &ring.drained
		// Where there is no room for it, in memory of Go's.
		ring.a, ring.b = append(append(k.bytes, a...), b...), nil
		ring.Consume(len(a) + len(b))
		k.turn = 1 - k.turn
		k.bytes = k.buffers[k.turn]
	}
}

// takeSideband appends what the ring has to dst, and frees it.
func (c *ringDrainer) takeSideband(dst []byte, ring *ring) []byte {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	dst = append(dst, ring.drained.bytes...)
	ring.drained.bytes = ring.drained.bytes[:0]
	a, b := ring.Peek()
	dst = append(append(dst, a...), b...)
	ring.Consume(len(a) + len(b))
	return dst
}

// waiting is how many bytes of the ring are unread, and of those that were caught.
func (c *ringDrainer) waiting(ring *ring) int {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return ring.Unread() + len(ring.drained.bytes)
}
