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

// Priorities of sys.SetRealtime: the thread that drains rings runs before the recorder's.
const (
	readerPriority  = 1
	drainerPriority = 2
)

// spareProcs is added to GOMAXPROCS while rings are drained at real-time priority. A
// thread that returns from a system call waits for a free P of Go's scheduler, whatever
// its priority is; all may be held by goroutines whose threads wait for a CPU.
const spareProcs = 4

// setRealtime gives the recorder real-time priority where samples are so large that a
// ring fills up before a busy machine schedules the recorder. It returns nil where
// that is not needed or not permitted, and if the recorder compresses: that would
// take the CPU from what is recorded.
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

// ringDrainer empties rings into memory before they are full, while the recorder
// waits for a disk, a file or a lock. It runs in a thread of its own, at real-time
// priority, and never blocks on the recorder.
type ringDrainer struct {
	// mu guards the readers' side of the rings, and what was drained.
	mu    sync.Mutex
	rings []*ring
	poll  *sys.Poller
	every time.Duration
	// closers are the mappings behind the buffers.
	closers []*sys.Mapping
}

// drained is what was taken out of a ring and is not yet written.
type drained struct {
	// bytes are whole records. For samples there are two buffers in turn: while one
	// is filled, a pass writes the other.
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
	// drainRings and maxDrainBuffer are the capacity for what is drained of a ring, in
	// sizes of the ring and in bytes. Pages are allocated when they are first used.
	drainRings     = 8
	maxDrainBuffer = 16 << 20
	// readyBuffer is how many bytes of it are allocated from the beginning.
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

// close releases the memory. What was drained must have been written.
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

// start begins to drain; stop ends it, and returns when the thread is gone.
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

// drain empties the rings that are filled to drainFill.
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

// drainRing moves the ring's records to memory, unless the buffer is full.
func (r *ring) drainRing() {
	a, b := r.Peek()
	n := len(a) + len(b)
	if c := &r.drained; cap(c.bytes)-len(c.bytes) >= n {
		c.bytes = append(append(c.bytes, a...), b...)
		r.Consume(n)
	}
}

// takeSamples sets the records of each ring of samples, valid until the next call,
// and consumes them in the ring.
func (c *ringDrainer) takeSamples() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ring := range c.rings {
		if ring.sideband {
			continue
		}
		a, b := ring.Peek()
		k := &ring.drained
		// Beyond the buffer's capacity, append allocates.
		ring.a, ring.b = append(append(k.bytes, a...), b...), nil
		ring.Consume(len(a) + len(b))
		k.turn = 1 - k.turn
		k.bytes = k.buffers[k.turn]
	}
}

// takeSideband appends the ring's records to dst, and consumes them.
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

// waiting is how many bytes are unread in the ring, and drained but not written.
func (c *ringDrainer) waiting(ring *ring) int {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	return ring.Unread() + len(ring.drained.bytes)
}
