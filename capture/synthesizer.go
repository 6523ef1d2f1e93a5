// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// openSource chooses how to find out what runs, if the target needs that at
// all. BPF programs are loaded here, before any event is open: it takes long.
func (r *Recorder) openSource() {
	t := &r.opts.Target
	switch {
	case r.opts.Snapshot != nil:
		r.source = r.opts.Snapshot
		return
	case len(t.Cgroups) == 0 && t.tasks():
		// Of these few all sideband is recorded, so that reading /proc
		// misses nobody.
		r.source = snapshot.ChooseProc(r.fs)
	case len(t.Cgroups) == 0 && r.child != nil && !t.All:
		return // the command, which is not yet there
	default:
		c := snapshot.Choose(r.fs)
		for _, no := range c.Refused {
			if no.Method == snapshot.ByBPF {
				r.notes = append(r.notes, "what runs is read from /proc, which can miss short processes: "+no.Why)
			}
		}
		r.source = c
	}
	r.files = append(r.files, r.source)
}

// synthesizer writes status records, and reads the rings of sideband in between so
// that they do not overflow.
type synthesizer struct {
	r    *Recorder
	want func(*snapshot.Task) bool // nil: all that are in scope
	data *dataMaps                 // nil: they are not wanted
}

// writeStatus writes what there was before the first sample. The sideband is
// enabled already.
func (r *Recorder) writeStatus(ctx context.Context) error {
	t := &synthesizer{r: r}
	if r.opts.dumpsStacks() {
		t.data = &dataMaps{fs: r.fs, scanner: procfs.NewMapsScanner()}
	}
	if err := t.kernel(); err != nil {
		return err
	}
	if err := t.bpf(); err != nil {
		return err
	}
	if err := t.cgroups(); err != nil {
		return err
	}
	if scope, ok := r.scope(); ok {
		if err := t.tasks(ctx, scope); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
	} else {
		r.names.namespaced.finish(false) // nobody waits for a snapshot that is not taken
	}
	if err := r.writeContainers(); err != nil {
		return err
	}
	// From here on a killed recorder leaves a file.
	if err := r.out.FinishRound(); err != nil {
		return writeError(err)
	}
	return nil
}

// maxPasses bounds how often the snapshot is taken for what it missed.
const maxPasses = 8

// snapshotStats is what the file says about the snapshot.
type snapshotStats struct {
	snapshot.Stats
	// Passes is how often it was taken: again for processes that were made
	// meanwhile by parents that nobody had seen. Missed are those that were
	// still unknown after the last time.
	Passes int `json:"passes"`
	Missed int `json:"missed,omitempty"`
	// Dropped are the beginnings and ends of processes meanwhile that there was
	// no room to remember: they may have led to more that were missed.
	Dropped int `json:"unheeded,omitempty"`
}

// tasks tells of all tasks in the scope, until every process that was made
// meanwhile has a known parent or is told of itself.
func (t *synthesizer) tasks(ctx context.Context, scope snapshot.Scope) (err error) {
	r := t.r
	r.side.gaps = new(snapshotGaps)
	defer func() { r.side.gaps, r.side.snapshotFiles = nil, snapshotFiles{} }()
	if s := r.names.namespaced; s != nil {
		all := scope.All && t.want == nil && !r.binaries.blind
		defer func() {
			// The one may be the first process, which some machines hide:
			// it is the host itself.
			s.finish(all && err == nil && r.snapshot.Denied <= 1 && r.snapshot.Unreadable == 0)
		}()
	}
	sink := snapshot.Sink{Record: t.task, Want: t.want, Pause: t.pause}
	stats := &r.snapshot
	for stats.Passes = 1; ; stats.Passes++ {
		found, err := r.source.Take(ctx, scope, sink)
		if stats.Passes == 1 {
			stats.Stats = found
		} else {
			stats.Mappings += found.Mappings
		}
		if err != nil {
			return err
		}
		if err := r.drain(); err != nil {
			return err
		}
		missing := r.side.gaps.missing()
		if len(missing) == 0 || stats.Passes == maxPasses {
			stats.Missed, stats.Dropped = len(missing), r.side.gaps.dropped
			return nil
		}
		scope = snapshot.Scope{PIDs: missing}
	}
}

// writeContainers writes the containers as they are known now: a stream's reader
// needs them now, and a file whose recorder is killed has no others.
func (r *Recorder) writeContainers() error {
	section, early, err := r.names.section()
	r.namesPending = early
	return r.writeContainerSection(section, err)
}

// writeLateNames is tellContainers for runtimes that had not answered by then.
func (r *Recorder) writeLateNames() error {
	if !r.namesPending {
		return nil
	}
	section, ok, err := r.names.late()
	if !ok {
		return nil
	}
	r.namesPending = false
	return r.writeContainerSection(section, err)
}

// writeContainerSection writes what was given of the containers, or tells the error.
func (r *Recorder) writeContainerSection(section []byte, err error) error {
	if err == nil {
		section, err = r.bpf.addToSection(section)
	}
	if err != nil {
		return fmt.Errorf("describe containers: %w", err)
	}
	if err := r.out.WriteGantry(section); err != nil {
		return writeError(err)
	}
	return nil
}

// write writes one record with the id of the sideband.
func (t *synthesizer) write(rec perf.Record) error {
	perf.SampleIDOf(rec).ID = t.r.set.sideband.IDs[0]
	if err := t.r.out.WriteRecord(rec, t.r.set.sideband); err != nil {
		return writeError(err)
	}
	return nil
}

// task takes the records of tasks.
func (t *synthesizer) task(rec perf.Record) error {
	t.r.side.gaps.reported(rec)
	t.r.side.status(rec)
	t.r.side.notifyDecoded(rec)
	if m, ok := rec.(*perf.Mmap2); ok && t.data != nil {
		if err := t.dataMaps(m); err != nil {
			return err
		}
	}
	return t.write(rec)
}

// pause reads the rings if it is time: their records are older than what
// follows.
func (t *synthesizer) pause() error {
	if !t.r.crowded() {
		return nil
	}
	return t.r.pass()
}

// cgroups tells of every cgroup, in the hierarchy that samples refer to.
func (t *synthesizer) cgroups() error {
	trees, err := t.r.fs.CgroupTrees()
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
		t.r.names.addCgroup(id, rec.Path)
		t.r.side.notifyDecoded(&rec)
		return t.write(&rec)
	})
}

// scope is whose state the samples need; not ok: nobody's.
func (r *Recorder) scope() (s snapshot.Scope, ok bool) {
	t := &r.opts.Target
	switch {
	case len(t.Containers) > 0:
		s.All = true // any task may enter one
	case len(t.Cgroups) > 0:
		s.Cgroups = t.Cgroups
	case t.tasks():
		s.PIDs = append(s.PIDs, t.PIDs...)
		for _, tid := range t.TIDs {
			// One that has gone needs nothing.
			if st, err := r.fs.Proc(tid).Status(); err == nil {
				s.PIDs = append(s.PIDs, st.TGID)
			}
		}
	case r.set.onExec:
		return s, false
	default:
		s.All = true
	}
	return s, r.source != nil
}
