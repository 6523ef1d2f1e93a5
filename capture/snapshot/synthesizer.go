// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Synthesizer writes the status records of a recording (perf calls them synthesized):
// the kernel and its modules, cgroups, tasks and their mappings. The sideband is
// enabled by then, and is read in between, so that its rings do not overflow.
type Synthesizer struct {
	FS    procfs.FS
	Table *proctable.Table
	// Write writes a record. The record is used again after the call.
	Write func(perf.Record) error
	// Mapping is called for each mapping before it is written, and may complete it.
	Mapping func(*perf.Mmap2)
	// Drain passes what the rings hold on to the Table; nil: there are no rings.
	Drain func() error
	// Pause is called now and then. It may read the rings and write what they
	// hold: that is older than what follows. It may be nil.
	Pause func() error
	// Want chooses tasks; nil: all in scope.
	Want func(*Task) bool
	// DataMaps reports the mappings of programs and libraries that are not
	// executable as well: perf unwinds dumped stacks by them.
	DataMaps bool
}

// MaxPasses bounds how often the tasks are read for what the last pass missed.
const MaxPasses = 8

// Result is what the file says about the snapshot of tasks.
type Result struct {
	Stats
	// Passes is how often the tasks were read: again for processes that were
	// forked meanwhile by parents that are not known. Missed are those that were
	// still unknown after the last pass.
	Passes int `json:"passes"`
	Missed int `json:"missed,omitempty"`
	// Dropped are the forks, execs and exits meanwhile that there was no room to
	// remember: they may have led to more that were missed.
	Dropped int `json:"unheeded,omitempty"`
}

// Tasks reports all tasks in the scope, until every process that was forked
// meanwhile has a known parent or is reported itself.
func (s *Synthesizer) Tasks(ctx context.Context, from Source, scope Scope) (res Result, err error) {
	gaps := new(gaps)
	s.Table.Subscribe(gaps)
	defer s.Table.Unsubscribe(gaps)
	data := dataMaps{fs: s.FS, scanner: procfs.NewMapsScanner()}
	sink := Sink{Want: s.Want, Pause: s.Pause, Record: func(rec perf.Record) error {
		gaps.reported(rec)
		s.Table.Decoded(rec)
		if m, ok := rec.(*perf.Mmap2); ok {
			s.Mapping(m)
			if s.DataMaps {
				if err := data.write(m, s.Write); err != nil {
					return err
				}
			}
		}
		return s.Write(rec)
	}}
	for res.Passes = 1; ; res.Passes++ {
		stats, err := from.Take(ctx, scope, sink)
		if res.Passes == 1 {
			res.Stats = stats
		} else {
			res.Mappings += stats.Mappings
		}
		if err != nil {
			return res, err
		}
		if s.Drain == nil {
			return res, nil
		}
		if err := s.Drain(); err != nil {
			return res, err
		}
		missing := gaps.missing()
		if len(missing) == 0 || res.Passes == MaxPasses {
			res.Missed, res.Dropped = len(missing), gaps.dropped
			return res, nil
		}
		scope = Scope{PIDs: missing}
	}
}

// Cgroups reports every cgroup, in the hierarchy that samples refer to.
func (s *Synthesizer) Cgroups() error {
	trees, err := s.FS.CgroupTrees()
	if err != nil {
		return fmt.Errorf("find cgroups: %w", err)
	}
	tree := trees.Perf()
	if tree == nil {
		return nil
	}
	now, err := sys.ClockMonotonic.Now()
	if err != nil {
		return err
	}
	rec := perf.Cgroup{}
	rec.Misc = perf.MiscStatusOnly
	rec.SampleID.Time = uint64(now)
	prefix := ""
	if tree.Root != "/" && !strings.HasPrefix(tree.Root, "/..") {
		prefix = tree.Root // the kernel's records have the whole path
	}
	return tree.Walk(func(id uint64, path string) error {
		path = strings.TrimSuffix(prefix+path, "/")
		rec.ID, rec.Path = id, cmp.Or(path, "/")
		s.Table.Decoded(&rec)
		return s.Write(&rec)
	})
}
