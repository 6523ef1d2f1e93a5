// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Segments are the files of a recording that is cut: each is whole by itself. The status
// records of the next one come from what was recorded, and not from another look at what runs.
type Segments struct {
	// Next is the output that follows, Done gets each that has ended but the last one. Both
	// are called by Run, in its goroutine; an error ends the recording.
	Next func() (Output, error)
	Done func(Output, Segment) error
}

// Segment is what became of one file.
type Segment struct {
	Bytes         int64
	Samples, Lost uint64
}

// Cut has Run end this file and go on in the next one, soon. It may be called by any
// goroutine. Without Options.Segments it does nothing.
func (r *Recorder) Cut() {
	if r.opts.Segments != nil {
		r.cutting.Store(true)
		r.poll.Wake()
	}
}

const (
	// statusLead is how much older than the first records of a file its status records are:
	// samples of the container that is looked for, and of programs, come late.
	statusLead = 100 * time.Millisecond
	// maxHeld is how many passes a cut waits for samples that are held.
	maxHeld = 20
	// lastNames is how long an ended file waits for the names of its containers.
	lastNames = 5 * time.Second
)

// segment is where a file began, or has ended.
type segment struct {
	samples, lost uint64
	losses        container.Lost
	rings         map[int]uint64 // records that CPUs' rings of samples had lost
}

// ended is a file that waits for the names of the last containers.
type ended struct {
	output
	Segment
	losses     container.Lost
	sampleTime [2]uint64
	at         time.Time
}

// feedStatus has the status know what a pass writes.
func (r *Recorder) feedStatus(begun uint64) error {
	if r.status == nil {
		return nil
	}
	for _, ring := range r.rings {
		for raw, err := range perfevent.Records(ring.pending, nil, nil) {
			if err != nil {
				return fmt.Errorf("read ring: %w", err)
			}
			r.status.Add(raw)
		}
	}
	// What comes now is no older than the pass before this one.
	r.status.Advance(r.lastBegun)
	r.settled, r.lastBegun = r.lastBegun, begun
	return nil
}

// cutIfAsked ends the file and begins the next one.
func (r *Recorder) cutIfAsked() error {
	if err := r.closeEnded(false); err != nil || !r.cutting.Load() {
		return err
	}
	if r.samples.Holding() && r.heldUp < maxHeld {
		r.heldUp++
		return nil
	}
	r.heldUp = 0
	r.cutting.Store(false)
	if r.unfinished {
		if err := r.out.FinishRound(); err != nil {
			return writeError(err)
		}
		r.unfinished = false
	}
	losses := r.losses()
	e := &ended{output: r.output, sampleTime: r.sampleTime(), at: time.Now(),
		losses: subtract(losses, r.segment.losses)}
	samples, lost := r.sampleCount(), r.lostCount()
	e.Samples, e.Lost = samples-r.segment.samples, lost-r.segment.lost
	r.segment = segment{samples, lost, losses, make(map[int]uint64)}
	for _, ring := range r.rings {
		if !ring.sideband {
			r.segment.rings[ring.cpu] = ring.tally.lost
		}
	}
	r.forgetTimes()
	r.ended = append(r.ended, e)
	out, err := r.opts.Segments.Next()
	if err != nil {
		return fmt.Errorf("the next file: %w", err)
	}
	if err := r.openOutput(out); err != nil {
		return err
	}
	return r.writeKnown()
}

// writeKnown begins a file that is not the first: with what is known of what runs.
func (r *Recorder) writeKnown() error {
	if err := r.forgetCgroups(); err != nil {
		return err
	}
	write := func(raw perf.Raw) error { return r.out.Write(raw) }
	at := r.settled - min(r.settled, uint64(statusLead))
	if err := r.status.Records(at, write); err != nil {
		return writeError(err)
	}
	if err := r.status.Recent(write); err != nil {
		return writeError(err)
	}
	if n := r.status.Untold; n > r.untold {
		r.result.note("of %d mappings the files after the first do not tell: there were too many", n)
		r.untold = n
	}
	r.namesPending = true
	if err := r.writeLateNames(); err != nil {
		return err
	}
	return writeError(r.out.FinishRound())
}

// forgetCgroups forgets the cgroups that are gone, when there are many more than there were.
func (r *Recorder) forgetCgroups() error {
	const few = 256
	if r.status.Cgroups() <= 2*r.cgroupsLeft+few {
		return nil
	}
	trees, err := r.fs.CgroupTrees()
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	tree := trees.Perf()
	if tree == nil {
		return nil
	}
	there := make(map[uint64]bool)
	if err := tree.Walk(func(id uint64, _ string) error { there[id] = true; return nil }); err != nil {
		return fmt.Errorf("list cgroups: %w", err)
	}
	r.status.KeepCgroups(there)
	r.cgroupsLeft = r.status.Cgroups()
	return nil
}

// closeEnded closes the files that have ended once the names of their containers are known.
func (r *Recorder) closeEnded(last bool) (err error) {
	for len(r.ended) > 0 {
		e := r.ended[0]
		table, unlock := r.names.lockTable(e.at, last || time.Since(e.at) > lastNames)
		if table == nil {
			return err
		}
		all := table.Lost
		table.Lost = e.losses
		failed := r.endOutput(&e.output, table, e.sampleTime)
		table.Lost = all
		unlock()
		e.Bytes = e.out.Size()
		r.result.Bytes += e.Bytes
		r.ended = r.ended[1:]
		err = errors.Join(err, writeError(failed), r.opts.Segments.Done(e.Output, e.Segment))
	}
	return err
}

// forgetTimes has the times of samples count from now on.
func (r *Recorder) forgetTimes() {
	for _, t := range r.tallies() {
		t.first, t.last = 0, 0
	}
}

// subtract is what a ledger has that another one, which is older, has not.
func subtract(now, before container.Lost) container.Lost {
	d := container.Lost{CPUs: make(map[int]container.LostCount),
		Cgroups: make(map[container.CgroupID]container.LostCount)}
	minus := func(a, b container.LostCount) container.LostCount {
		return container.LostCount{Records: a.Records - b.Records, Samples: a.Samples - b.Samples}
	}
	for cpu, n := range now.CPUs {
		if n = minus(n, before.CPUs[cpu]); n != (container.LostCount{}) {
			d.CPUs[cpu] = n
		}
	}
	for id, n := range now.Cgroups {
		if n = minus(n, before.Cgroups[id]); n != (container.LostCount{}) {
			d.Cgroups[id] = n
		}
	}
	return d
}

// monotonic is the time of the recording's clock, in nanoseconds.
func monotonic() (uint64, error) {
	now, err := sys.ClockMonotonic.Now()
	return uint64(now), err
}
