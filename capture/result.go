// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Result is what became of a recording.
type Result struct {
	Duration time.Duration
	// TimeUp: it ended because of Options.Duration.
	TimeUp  bool
	Bytes   int64
	Samples uint64
	// Written is how many samples were in rounds that were written whole:
	// fewer than Samples if writing failed.
	Written uint64
	// Lost are samples, LostSideband other records that did not fit into the
	// rings: names and mappings may be missing.
	Lost, LostSideband uint64
	// Foreign: BPF programs of others are attached to tracepoints that were
	// recorded, and may have dropped samples.
	Foreign bool
	// LostBy is the ledger: samples lost by container, the greatest first.
	LostBy []ContainerLoss
	// Containers is how many containers were sampled.
	Containers int
	// Filtered is nil if the target was not containers.
	Filtered *Filtered
	Binaries binaries.Summary
	BPF      BPFPrograms
	Child    ChildStatus
	// Notes are what did not work as hoped and did not end the recording.
	Notes []string
	// Warnings are about the names of containers.
	Warnings []container.Warning
}

// BPFPrograms is what became of the BPF programs that were loaded while
// recording: Missed have no details, of Lost nothing is known but that they were
// loaded or unloaded.
type BPFPrograms struct{ Loaded, Missed, Lost uint64 }

// ContainerLoss is how many samples one container lost.
type ContainerLoss struct {
	Label string
	Lost  uint64
}

// note adds a note, once.
func (r *Result) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// newScanner prepares to look at the samples of the events.
func newScanner(s *eventSet) scanner {
	sc := scanner{cgroupLast: true, cgroups: make(map[uint64]uint64), lost: make(map[uint64]uint64)}
	const behind = perf.SampleDataPageSize | perf.SampleCodePageSize | perf.SampleAux
	for _, ev := range s.list {
		if ev == s.sideband || fromSource(ev) {
			continue
		}
		if ev.Attr.SampleType&perf.SampleCgroup == 0 || ev.Attr.SampleType&behind != 0 {
			sc.cgroupLast = false
		}
	}
	return sc
}

// tallies are what was counted of samples, wherever they come from.
func (r *Recorder) tallies() []*tally {
	list := []*tally{&r.late}
	for _, ring := range r.rings {
		list = append(list, &ring.tally)
	}
	return append(list, &r.sources.tally)
}

// sampleTime is the time of the first and of the last sample of the file.
func (r *Recorder) sampleTime() (span [2]uint64) {
	for _, t := range r.tallies() {
		if t.first == 0 {
			continue
		}
		if span[0] == 0 || t.first < span[0] {
			span[0] = t.first
		}
		span[1] = max(span[1], t.last)
	}
	return span
}

// countLost adds the losses without a LOST record, because no record
// found room after them: the kernel counts for each event what it dropped
// (Linux 6.0).
//
// It writes them into the file, as perf does: readers take what is more, this or
// the LOST records of the event.
func (r *Recorder) countLost() error {
	dropped := make(map[int]uint64) // by cpu
	told := maps.Clone(r.segment.rings)
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	for _, ev := range r.set.samplers() {
		if ev.Attr.ReadFormat&perf.FormatLost == 0 || ev.Attr.ReadFormat&perf.FormatGroup != 0 {
			continue
		}
		c, err := ev.ReadCounts()
		if err != nil || len(c.Counts) == 0 {
			continue // the count is a second opinion, its absence no error
		}
		lost := c.Counts[0].Lost
		dropped[ev.Target.CPU] += lost
		of := r.set.event(ev.ID)
		if n := min(lost, told[ev.Target.CPU]); n > 0 { // in LOST records of the files before this one
			lost, told[ev.Target.CPU] = lost-n, told[ev.Target.CPU]-n
		}
		if lost == 0 || of == nil {
			continue
		}
		rec := &perf.LostSamples{N: lost}
		rec.SampleID = perf.SampleIDInfo{Time: uint64(now), ID: ev.ID, CPU: uint32(max(ev.Target.CPU, 0))}
		if err := r.out.WriteRecord(rec, of); err != nil {
			return writeError(err)
		}
	}
	for _, ring := range r.rings {
		if !ring.sideband {
			ring.tally.lost = max(ring.tally.lost, dropped[ring.cpu])
		}
	}
	return nil
}

// losses is what was lost so far, by CPU and by cgroup.
func (r *Recorder) losses() container.Lost {
	lost := container.Lost{CPUs: make(map[int]container.LostCount),
		Cgroups: make(map[container.CgroupID]container.LostCount)}
	for _, ring := range r.rings {
		t := &ring.tally
		n := lost.CPUs[ring.cpu]
		n.Records += t.lost + t.lostSamples
		if !ring.sideband {
			n.Samples += t.lost + t.lostSamples
		}
		if n.Records != 0 {
			lost.CPUs[ring.cpu] = n
		}
	}
	for id, n := range r.scan.lost {
		lost.Cgroups[container.CgroupID(id)] = container.LostCount{Records: n, Samples: n}
	}
	return lost
}

// lostCount is how many samples were lost so far.
func (r *Recorder) lostCount() uint64 {
	n := r.sources.lost()
	for _, ring := range r.rings {
		if !ring.sideband {
			n += ring.tally.lost + ring.tally.lostSamples
		}
	}
	return n
}

// sumUp fills the result, and the ledger in the table, which is that of the last file.
func (r *Recorder) sumUp(table *container.Table) {
	res := &r.result
	res.Samples, res.Lost = r.sampleCount(), r.lostCount()
	for _, ring := range r.rings {
		if ring.sideband {
			res.LostSideband += ring.tally.lost
		}
	}
	lost := r.losses()
	by := make(map[string]uint64)
	for id, n := range lost.Cgroups {
		by[table.Label(id)] += n.Records
	}
	table.Lost = subtract(lost, r.segment.losses)
	for label, n := range by {
		res.LostBy = append(res.LostBy, ContainerLoss{Label: label, Lost: n})
	}
	slices.SortFunc(res.LostBy, func(a, b ContainerLoss) int {
		return cmp.Or(cmp.Compare(b.Lost, a.Lost), cmp.Compare(a.Label, b.Label))
	})
	if n := r.table.Untracked; n > 0 {
		res.note("there were more than %d processes at once: of %d the mount namespace was not remembered, and "+
			"build-ids may be missing",
			proctable.MaxProcesses, n)
	}
	if n := r.table.Unchecked; n > 0 {
		res.note("more than %d processes at once had outlived their first thread: of %d others the mount namespace "+
			"was not remembered, and build-ids may be missing",
			proctable.MaxOutlived, n)
	}
	r.scan.settle()
	res.Containers = countContainers(table, r.scan.cgroups)
	res.Warnings = r.names.warnings
}

func sortPMUs(list []perfdata.PMU) {
	slices.SortFunc(list, func(a, b perfdata.PMU) int { return cmp.Compare(a.Type, b.Type) })
}

// writeError says what to do about an output that takes no more.
func writeError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return hint.Wrap(err, "make room, or record to another disk with -o")
	case errors.Is(err, syscall.EFBIG):
		return hint.Wrap(err, "raise the limit of file sizes (ulimit -f)")
	}
	return err
}
