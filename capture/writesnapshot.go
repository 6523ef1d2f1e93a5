// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"fmt"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// SnapshotOptions say what to write with WriteSnapshot. All but Source may be
// left out.
type SnapshotOptions struct {
	// Source finds out; it stays the caller's.
	Source snapshot.Source
	// Scope and Want choose tasks, as those of package snapshot do.
	Scope snapshot.Scope
	Want  func(*snapshot.Task) bool

	// CmdLine and Version go into the header of the file.
	CmdLine []string
	Version string
	// Resolver and Definitions are as in Options.
	Resolver    *container.Resolver
	Definitions container.Definitions
}

// SnapshotResult is what became of it.
type SnapshotResult struct {
	Stats snapshot.Stats
	Bytes int64
}

// WriteSnapshot writes the status records of what runs now, the cgroups and
// the containers into a perf.data file without a sample. It opens no event, so
// that it needs no right but that of the source.
func WriteSnapshot(ctx context.Context, o *SnapshotOptions, out Output) (*SnapshotResult, error) {
	pmus := perfevent.NewPMUs(nil)
	defer pmus.Close()
	sideband := perf.NewEvent(inFile(sidebandAttr(false)), "dummy:HG", 1) // of no event; the records refer to it
	s := &session{cmdLine: o.CmdLine, version: o.Version, pmus: pmus, events: []*perf.Event{sideband},
		sideband: sideband}
	defer s.close(o.Resolver)
	if err := s.start(out, o.Resolver, o.Definitions, new(binaries.Options)); err != nil {
		return nil, err
	}
	s.binaries.Start()
	s.names.start()
	err := s.writeSnapshot(ctx, o)
	s.binaries.Wait()
	table := s.names.wait()
	table.Lost = container.Lost{CPUs: make(map[int]container.LostCount),
		Cgroups: make(map[container.CgroupID]container.LostCount)}
	if e := s.finish(table, [2]uint64{}); err == nil {
		err = e
	}
	return &SnapshotResult{Stats: s.snapshot.Stats, Bytes: s.result.Bytes}, err
}

func (s *session) writeSnapshot(ctx context.Context, o *SnapshotOptions) (err error) {
	y := s.synthesizer()
	y.Want = o.Want
	if err := y.Cgroups(); err != nil {
		return err
	}
	if s.snapshot, err = y.Tasks(ctx, o.Source, o.Scope); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	s.names.namespaced.Finish(o.Scope.All && o.Want == nil && s.snapshot.Denied <= 1 && s.snapshot.Unreadable == 0)
	return s.writeContainers()
}
