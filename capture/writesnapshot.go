// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"fmt"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/container"
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
	r := &Recorder{
		opts:   Options{CmdLine: o.CmdLine, Version: o.Version, Resolver: o.Resolver, Definitions: o.Definitions, PMUs: perfevent.NewPMUs(nil)},
		source: o.Source,
	}
	defer r.opts.PMUs.Close()
	r.set = &eventSet{opts: &r.opts}
	r.set.setSideband(sidebandAttr(false))
	r.set.sideband.IDs = []uint64{1} // of no event; the records refer to it
	r.set.list = append(r.set.list, r.set.sideband)
	defer r.unbegin()
	if err := r.begin(out); err != nil {
		return nil, err
	}
	r.binaries.start()
	r.names.start()
	err := r.writeSnapshot(ctx, o)
	r.binaries.wait()
	table := r.names.wait()
	if e := r.finish(table); err == nil {
		err = e
	}
	return &SnapshotResult{Stats: r.snapshot.Stats, Bytes: r.result.Bytes}, err
}

func (r *Recorder) writeSnapshot(ctx context.Context, o *SnapshotOptions) error {
	t := &synthesizer{r: r, want: o.Want}
	if err := t.cgroups(); err != nil {
		return err
	}
	if err := t.tasks(ctx, o.Scope); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return r.writeContainers()
}
