// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Recorder is an open recording. It belongs to the goroutine that called
// Open, which is locked to its thread until Close, or until Run loops where no
// command is recorded: a recorded command inherits its events from there.
type Recorder struct {
	opts  Options
	set   *eventSet
	rings []*ring
	sizes ringSizes
	tid   int
	// locked: the goroutine is locked to the thread tid.
	locked bool
	child  *workload   // nil: no command
	files  []io.Closer // what else is open

	session
	side    sidebandReader
	poll    *sys.Poller
	ready   []sys.Ready
	scan    scanner
	trim    *trimmer        // nil: samples are written as they are
	source  snapshot.Source // nil: nobody's state is needed
	notes   []string        // of Open, beside those of the events
	started time.Time

	lastPass time.Time
	interval pollInterval
	drainer  *ringDrainer // nil: only this thread reads the rings

	// samples drops those that are not recorded. late counts those that were
	// held, and written late.
	samples   filter.SampleFilter
	late      tally
	plan      *filter.Plan // of samples.Filter
	filterErr error        // why the kernel did not take the filter
	sources   sources
	// unfinished: something was written since the last round was finished.
	unfinished bool

	// Of a recording with Segments: what is asked for; where this file began; files that have
	// ended and are to be closed.
	cutting atomic.Bool
	heldUp  int
	segment segment
	ended   []*ended
	// lastBegun is when the last pass began, settled the one before: what happened until then
	// is known. In nanoseconds of the recording's clock.
	lastBegun, settled uint64
	untold             uint64
	cgroupsLeft        int
}

// Open opens the events that the options ask for and their rings. Nothing is
// enabled and no command runs yet. The errors of package perfevent come
// through, with their hints.
func Open(o Options) (_ *Recorder, err error) {
	runtime.LockOSThread()
	r := &Recorder{opts: o, tid: sys.Gettid(), locked: true}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.poll, err = sys.NewPoller(); err != nil {
		return nil, err
	}
	if o.PMUs == nil {
		r.opts.PMUs = perfevent.NewPMUs(nil)
		r.files = append(r.files, r.opts.PMUs)
	}
	if o.Command != nil {
		if r.child, err = newWorkload(o.Command); err != nil {
			return nil, err
		}
	}
	r.openSource()
	if err := r.openBPF(); err != nil {
		return nil, err
	}
	if r.set, err = r.prepare(); err != nil {
		return nil, err
	}
	if err := r.sources.open(r.set, o.Sources); err != nil {
		return nil, err
	}
	if err := r.set.open(); err != nil {
		return nil, err
	}
	r.filterNotes()
	if r.rings, r.sizes, err = mapRings(r.set, &r.opts); err != nil {
		return nil, err
	}
	r.interval = newPollInterval(r.sizes.sideband)
	for i, ring := range r.rings {
		if err := r.watch(ring, i); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// prepare turns the target into subjects and CPUs.
func (r *Recorder) prepare() (*eventSet, error) {
	o := &r.opts
	s := &eventSet{opts: o, groups: cloneGroups(o.Groups), filter: &r.samples}
	if err := s.chooseCPUs(); err != nil {
		return nil, err
	}
	if len(s.groups) == 0 && len(o.Sources) == 0 {
		g, err := perfevent.Parse("cycles", o.PMUs)
		if err != nil {
			return nil, err
		}
		s.groups = g
	}
	everyone := []subject{{pid: perfevent.Any}}
	switch t := &o.Target; {
	case len(t.Containers) > 0:
		s.sampled, s.observed = everyone, everyone
		if err := r.newFilter(); err != nil {
			return nil, err
		}
	case len(t.Cgroups) > 0:
		s.observed = everyone
		for _, dir := range t.Cgroups {
			fd, err := sys.Open(dir, os.O_RDONLY|sys.ODirectory)
			if err != nil {
				return nil, fmt.Errorf("open cgroup: %w", err)
			}
			r.files = append(r.files, fd)
			s.sampled = append(s.sampled, subject{pid: perfevent.Any, cgroup: fd})
		}
	case t.tasks():
		tids, err := r.threads()
		if err != nil {
			return nil, err
		}
		for _, tid := range tids {
			s.sampled = append(s.sampled, subject{pid: tid})
		}
		s.observed, s.inherit = s.sampled, true
		r.samples.Tasks = filter.NewTaskSet(tids)
	case r.child != nil && !t.All:
		// This thread stands for the command, which inherits its events.
		s.sampled = []subject{{pid: 0}}
		s.observed, s.inherit, s.onExec = s.sampled, true, true
		r.samples.Tasks = filter.NewTaskSet(nil)
	default:
		s.sampled, s.observed = everyone, everyone
	}
	return s, nil
}

// cloneGroups copies what opening may change.
func cloneGroups(groups []perfevent.Group) []perfevent.Group {
	var list []perfevent.Group
	for _, g := range groups {
		g.Events = append([]perfevent.EventSpec(nil), g.Events...)
		list = append(list, g)
	}
	return list
}

// threads are the threads that the target names.
func (r *Recorder) threads() ([]int, error) {
	t := &r.opts.Target
	tids := append([]int(nil), t.TIDs...)
	for _, tid := range t.TIDs {
		if _, err := r.fs.Proc(tid).Stat(); err != nil {
			return nil, noTask("thread", tid, err)
		}
	}
	for _, pid := range t.PIDs {
		list, err := r.fs.Proc(pid).Tasks()
		if err != nil {
			return nil, noTask("process", pid, err)
		}
		tids = append(tids, list...)
	}
	// Named twice, as by -p and -t, a thread is still recorded once.
	slices.Sort(tids)
	return slices.Compact(tids), nil
}

func noTask(what string, id int, err error) error {
	if procfs.Gone(err) {
		err = perfevent.ErrNoTask
	}
	return hint.Wrap(fmt.Errorf("%s %d: %w", what, id, err), "choose one that runs (ps -e)")
}

// Notes are what was decided for the user and should be announced, such as an
// event that replaces another.
func (r *Recorder) Notes() []string { return slices.Concat(r.notes, r.set.notes) }

// EventNames are what is sampled, as it is called in the recording.
func (r *Recorder) EventNames() (names []string) {
	for _, ev := range r.set.list {
		if ev != r.set.sideband {
			names = append(names, ev.Name)
		}
	}
	return names
}

// Close releases everything; a command that still runs is killed. Closing
// twice does nothing.
func (r *Recorder) Close() error {
	if r.tid == 0 {
		return nil
	}
	r.tid = 0
	defer r.unlock()
	var errs []error
	if r.child != nil {
		errs = append(errs, r.child.close())
	}
	r.drainer.close()
	closeRings(r.rings)
	r.session.close(r.opts.Resolver)
	if r.set != nil {
		r.set.close()
	}
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	if r.poll != nil {
		errs = append(errs, r.poll.Close())
	}
	return errors.Join(errs...)
}

// unlock lets the goroutine go from its thread, once.
func (r *Recorder) unlock() {
	if r.locked {
		r.locked = false
		runtime.UnlockOSThread()
	}
}

// Run records into out until ctx ends, the command exits or all recorded
// tasks have ended. What was recorded is complete and readable also if the
// error is not nil. Run can be called once.
func (r *Recorder) Run(ctx context.Context, out Output) (*Result, error) {
	if r.tid == 0 || r.tid != sys.Gettid() || r.out != nil {
		return nil, fmt.Errorf("run a recording: %w: it is closed, has run or belongs to another goroutine",
			os.ErrInvalid)
	}
	if err := r.begin(out); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { r.poll.Wake() })
	defer stop()
	r.binaries.Start()
	r.names.start()
	r.bpf.start()
	err := r.record(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // the recording ended during the snapshot
	}
	r.result.Duration, r.result.TimeUp = time.Since(r.started), r.timeUp()
	ended := r.end()
	r.binaries.Wait()
	watched := r.bpf.wait()
	table := r.names.wait()
	if err == nil {
		err = cmp.Or(ended, watched)
	}
	if e := r.endFilter(); err == nil {
		err = e
	}
	if e := r.closeEnded(true); err == nil {
		err = e
	}
	r.sumUp(table)
	if e := r.finish(table, r.sampleTime()); err == nil {
		err = e
	}
	return &r.result, err
}

// record is the time from the first enabled event to the last.
func (r *Recorder) record(ctx context.Context) error {
	for _, ev := range r.set.observer {
		if err := ev.Enable(); err != nil {
			return fmt.Errorf("enable sideband: %w", err)
		}
	}
	// The rings of sideband fill up from here on, while the snapshot is taken, too.
	leave := r.setRealtime()
	if leave != nil {
		defer leave()
	}
	if err := r.writeStatus(ctx); err != nil {
		return err
	}
	r.noteForeign() // one that is gone in the end may have dropped all there was
	r.started = time.Now()
	if err := cmp.Or(r.sources.start(), r.set.enable()); err != nil {
		return err
	}
	if r.child != nil {
		if err := r.startChild(); err != nil {
			return err
		}
	}
	if !r.set.onExec && leave == nil {
		// Where the thread is parked with its goroutine, each wake-up
		// costs another thread's as well.
		r.unlock()
	}
	return r.loop(ctx)
}

// end stops the events, empties the rings, and lets the command go.
func (r *Recorder) end() error {
	disabled := r.set.disable()
	r.noteForeign()
	r.sources.wait()
	passed := cmp.Or(r.pass(), r.countLost())
	if r.child != nil {
		r.result.Child = r.child.finish()
	}
	if passed != nil {
		return passed
	}
	return disabled
}

// begin starts the file.
func (r *Recorder) begin(out Output) error {
	r.started = time.Now()
	r.lastPass = r.started
	r.scan = newScanner(r.set)
	if r.opts.TrimStacks {
		r.trim = newTrimmer(r.set)
	}
	o := &r.opts
	r.cmdLine, r.version, r.compress = o.CmdLine, o.Version, o.Compress
	r.groups, r.pmus, r.announced = r.set.groups, o.PMUs, r.Notes()
	r.events, r.sideband, r.points = r.set.list, r.set.sideband, r.sources.points
	if o.Segments != nil {
		r.status = proctable.NewStatus(r.sideband.IDs[0])
	}
	err := r.start(out, o.Resolver, o.Definitions, &binaries.Options{
		Store: o.Store, MaxBinary: o.MaxBinary, MaxBinaries: o.MaxBinaries, Blind: r.blind(),
	})
	r.side = sidebandReader{table: r.table, mappings: r.mappings, namespaced: r.names.namespaced,
		filter: r.samples.Filter}
	if f := r.samples.Filter; f != nil {
		r.names.view = r.view
		deferred := binaries.NewDeferred(r.binaries, f.Wanted)
		r.mappings.Deferred, r.samples.OnKeep = deferred, deferred.Release
		r.table.Subscribe(f)
		r.table.Subscribe(deferred)
	}
	if r.samples.Tasks != nil {
		r.table.Subscribe(r.samples.Tasks)
	}
	return err
}

// blind reports that the kernel does not tell this user of namespaces.
func (r *Recorder) blind() bool { return !r.set.sideband.Attr.Flags.Has(perf.AttrNamespaces) }
