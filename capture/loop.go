// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// tick is how long a record waits in a ring at most. What a killed recorder
// loses is less than that.
const tick = 250 * time.Millisecond

// childID is the poller's number for the command; rings come before it.
const childID = 1 << 30

// loop moves records until the recording is over.
func (r *Recorder) loop(ctx context.Context) error {
	for {
		if ctx.Err() != nil || r.timeUp() {
			return nil
		}
		over, err := r.wait()
		if err != nil {
			return err
		}
		if over {
			return nil
		}
		if err := r.lookAtSideband(); err != nil {
			return err
		}
		late := time.Since(r.lastPass)+r.interval.interval > tick // at the next look
		if late || r.crowded() || r.cutting.Load() {
			if r.opts.Live && r.names.changed() {
				r.namesPending = true
			}
			if err := r.writeLateNames(); err != nil {
				return err
			}
			if err := r.pass(); err != nil {
				return err
			}
			r.progress()
			if err := r.cutIfAsked(); err != nil {
				return err
			}
		}
	}
}

// timeUp: the recording has lasted as long as it should.
func (r *Recorder) timeUp() bool {
	return r.opts.Duration > 0 && time.Since(r.started) >= r.opts.Duration
}

// wait sleeps until there may be something to do. It is true if the command or
// all tasks have ended.
func (r *Recorder) wait() (over bool, err error) {
	timeout := tick - time.Since(r.lastPass)
	if d := r.opts.Duration; d > 0 {
		timeout = min(timeout, d-time.Since(r.started))
	}
	timeout = min(timeout, r.interval.left(time.Now()))
	r.ready, err = r.poll.Wait(max(timeout, 0), r.ready)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return false, fmt.Errorf("wait for records: %w", err)
	}
	for _, ready := range r.ready {
		if ready.ID == childID {
			return true, nil
		}
		if ready.Hangup {
			gone, err := r.nextFeeder(r.rings[ready.ID], ready.ID)
			if gone || err != nil {
				return gone, err
			}
		}
	}
	return false, nil
}

// nextFeeder polls another event of a ring when the tasks of the polled one
// have ended. It is true if there is none: the ring stays empty from now on,
// and as every task feeds every ring, so do the others.
func (r *Recorder) nextFeeder(ring *ring, id int) (bool, error) {
	if err := r.poll.Remove(ring.feeders[ring.polled].FD()); err != nil {
		return false, err
	}
	if ring.polled++; ring.polled >= len(ring.feeders) {
		return true, nil
	}
	return false, r.watch(ring, id)
}

// watch polls the event of a ring whose turn it is.
func (r *Recorder) watch(ring *ring, id int) error {
	fd := ring.feeders[ring.polled].FD()
	if ring.sideband {
		return r.poll.AddSuspendable(fd, id)
	}
	return r.poll.Add(fd, id)
}

// maxPending is how much sideband of a CPU waits to be written, about.
const maxPending = 1 << 20

// crowded: a ring is a quarter full, or much sideband waits. The kernel wakes the
// recorder each time that half a ring has been written, wherever that was read
// meanwhile: what is left for the next time grows by as much until then.
func (r *Recorder) crowded() bool {
	for _, ring := range r.rings {
		if len(ring.pending) >= maxPending || r.drainer.waiting(ring) >= ring.Size()/4 {
			return true
		}
	}
	return false
}

// pass reads every ring once and writes what is there: a round. No record that
// is written later is older than what the round before this one wrote.
func (r *Recorder) pass() error {
	// Before the sideband is read, which then tells of all that was before
	// these samples.
	begun, err := monotonic()
	if err != nil {
		return err
	}
	r.takeSamples()
	if err := r.drain(); err != nil {
		return err
	}
	parts := make([][]byte, 0, 2*len(r.rings)+1)
	add := func(b []byte) {
		if len(b) > 0 {
			parts = append(parts, b)
		}
	}
	for _, ring := range r.rings {
		a, b, err := r.take(ring)
		if err != nil {
			return fmt.Errorf("cpu %d: %w", ring.cpu, err)
		}
		add(a)
		add(b)
	}
	r.side.round()
	late, err := r.endRound()
	if err != nil {
		return err
	}
	add(late)
	told, err := r.sources.take()
	if err != nil {
		return err
	}
	add(told)
	if err := r.feedStatus(begun); err != nil {
		return err
	}
	r.lastPass = time.Now()
	err = r.writeParts(parts)
	for _, ring := range r.rings {
		ring.written()
	}
	return writeError(err)
}

// takeSamples gives each ring of samples to the pass: where they lie, if nobody
// catches them.
func (r *Recorder) takeSamples() {
	if r.drainer != nil {
		r.drainer.takeSamples()
		return
	}
	for _, ring := range r.rings {
		if !ring.sideband {
			ring.a, ring.b = ring.Peek()
			ring.taken = len(ring.a) + len(ring.b)
		}
	}
}

// writeParts writes what a pass has read. While samples are held that are older than
// others, the round goes on.
func (r *Recorder) writeParts(parts [][]byte) error {
	r.preallocation.extend(r.out.Size())
	r.bpf.checkpoint(r.out)
	if r.samples.Holding() || r.sources.late() {
		r.unfinished = r.unfinished || len(parts) > 0
		if err := r.out.Write(parts...); err != nil {
			return err
		}
		return r.out.Commit()
	}
	if len(parts) == 0 && !r.unfinished {
		return nil
	}
	r.unfinished = false
	r.sources.finished = time.Now()
	err := r.out.WriteRound(parts...)
	if err == nil {
		r.result.Written = r.sampleCount()
	}
	return err
}

// sampleCount is how many samples have been taken from the rings.
func (r *Recorder) sampleCount() (n uint64) {
	for _, t := range r.tallies() {
		n += t.samples
	}
	return n
}

// take gives what a pass writes of a ring, in two parts: samples straight out
// of the ring, sideband out of memory.
func (r *Recorder) take(ring *ring) (a, b []byte, err error) {
	if ring.sideband {
		return ring.pending, nil, nil
	}
	a, b = ring.a, ring.b
	if r.samples.Active() {
		if a, b, err = r.samples.Apply(a, b, &ring.kept); err != nil {
			return nil, nil, err
		}
	}
	if err := r.scan.scan(a, b, &ring.tally); err != nil || r.trim == nil {
		return a, b, err
	}
	ring.trimmed, err = r.trim.trim(ring.trimmed[:0], a, b)
	return ring.trimmed, nil, err
}

// drain moves what the rings of sideband hold into memory, where the records
// can be completed: the pages of a ring cannot be written to. Who is in which
// mount namespace is learned from all rings before any mapping is looked at: a
// task is forked on one CPU and maps files on another.
func (r *Recorder) drain() error {
	for _, ring := range r.rings {
		ring.fresh = len(ring.pending)
		if !ring.sideband {
			continue
		}
		ring.pending = r.drainer.takeSideband(ring.pending, ring)
	}
	for _, walk := range []func(*ring, []byte) error{r.side.learn, r.side.read} {
		for _, ring := range r.rings {
			if fresh := ring.pending[ring.fresh:]; len(fresh) > 0 {
				if err := walk(ring, fresh); err != nil {
					return fmt.Errorf("cpu %d: %w", ring.cpu, err)
				}
			}
		}
	}
	r.mappings.EndPass()
	return nil
}

// lookAtSideband looks at sideband before it is written, which may be some
// time later: a process may not live that long.
func (r *Recorder) lookAtSideband() error {
	if !r.interval.due(time.Now()) {
		return nil
	}
	var f observation
	for _, ring := range r.rings {
		if ring.sideband {
			f.fill = max(f.fill, float64(r.drainer.waiting(ring))/float64(ring.Size()))
		}
	}
	asked, found := r.mappings.Lookups(), r.table.NewMountNS
	if f.fill > 0 {
		if err := r.drain(); err != nil {
			return err
		}
	}
	f.file, f.mountNS = r.mappings.Lookups() != asked, r.table.NewMountNS != found
	r.interval.observe(time.Now(), f)
	return r.poll.Suspend(r.interval.interval != 0)
}

// Progress is how far a recording is.
type Progress struct {
	Elapsed       time.Duration
	Samples, Lost uint64
	// Bytes are those of all files, FileBytes of the one that is written.
	Bytes, FileBytes int64
	Containers       int
}

func (r *Recorder) progress() {
	if r.opts.Progress == nil {
		return
	}
	p := Progress{Elapsed: time.Since(r.started), FileBytes: r.out.Size(), Samples: r.sampleCount(),
		Lost: r.lostCount()}
	p.Bytes = r.result.Bytes + p.FileBytes
	for _, e := range r.ended {
		p.Bytes += e.out.Size()
	}
	r.scan.settle()
	p.Containers = r.names.count(r.scan.cgroups)
	r.opts.Progress(p)
}
