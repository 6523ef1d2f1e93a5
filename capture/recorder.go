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
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/capture/snapshot"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Recorder is an open recording. It belongs to the goroutine that called
// Open, which is locked to its thread until Close, or until Run loops where no
// command is recorded: a recorded command inherits its events from there.
type Recorder struct {
	opts  Options
	fs    procfs.FS
	set   *eventSet
	rings []*ring
	sizes ringSizes
	tid   int
	// locked: the goroutine is locked to the thread tid.
	locked bool
	child  *workload   // nil: no command
	files  []io.Closer // what else is open

	out           *perfdata.Writer
	preallocation preallocation
	// described is what the file says of the machine; nil: it could not be
	// found out.
	described    *perfdata.Features
	poll         *sys.Poller
	ready        []sys.Ready
	scan         scanner
	trim         *trimmer // nil: samples are written as they are
	side         sidebandWalker
	names        *names
	namesPending bool // the file has no names of containers yet
	binaries     *collector
	bpf          *bpfWatch       // nil: not watched
	source       snapshot.Source // nil: nobody's state is needed
	snapshot     snapshotStats
	notes        []string // of Open, beside those of the events
	clock        perfdata.ClockData
	bootOffset   uint64 // ns that CLOCK_BOOTTIME is ahead of clock
	started      time.Time
	lastPass     time.Time
	interval     pollInterval
	drainer      *ringDrainer // nil: only this thread reads the rings
	result       Result

	// samples leaves out samples that are not recorded. unfinished: something was
	// written since the last round was finished.
	samples    sampleFilter
	unfinished bool
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
	if len(s.groups) == 0 {
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
		r.samples.tasks = newTaskSet(tids)
	case r.child != nil && !t.All:
		// This thread stands for the command, which inherits its events.
		s.sampled = []subject{{pid: 0}}
		s.observed, s.inherit, s.onExec = s.sampled, true, true
		r.samples.tasks = newTaskSet(nil)
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
	r.unbegin()
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

// unbegin releases what begin has made.
func (r *Recorder) unbegin() {
	if r.side.buildIDs != nil {
		r.side.buildIDs.close()
	}
	r.binaries.close()
	if r.opts.Resolver != nil {
		r.opts.Resolver.Among(nil)
	}
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
		return nil, fmt.Errorf("run a recording: %w: it is closed, has run or belongs to another goroutine", os.ErrInvalid)
	}
	if err := r.begin(out); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { r.poll.Wake() })
	defer stop()
	r.binaries.start()
	r.names.start()
	r.bpf.start()
	err := r.record(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // the recording ended during the snapshot
	}
	r.result.Duration, r.result.TimeUp = time.Since(r.started), r.timeUp()
	ended := r.end()
	r.binaries.wait()
	watched := r.bpf.wait()
	table := r.names.wait()
	if err == nil {
		err = cmp.Or(ended, watched)
	}
	if e := r.endFilter(); err == nil {
		err = e
	}
	if e := r.finish(table); err == nil {
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
	calm := r.setRealtime()
	if calm != nil {
		defer calm()
	}
	if err := r.writeStatus(ctx); err != nil {
		return err
	}
	r.started = time.Now()
	if err := r.set.enable(); err != nil {
		return err
	}
	if r.child != nil {
		if err := r.startChild(); err != nil {
			return err
		}
	}
	if !r.set.onExec && calm == nil {
		// Where the thread is parked with its goroutine, each wake-up
		// costs another thread's as well.
		r.unlock()
	}
	return r.loop(ctx)
}

// end stops the events, empties the rings, and lets the command go.
func (r *Recorder) end() error {
	disabled := r.set.disable()
	passed := r.pass()
	r.countLost()
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
	if err := r.readClocks(); err != nil {
		return err
	}
	r.started = time.Now()
	r.lastPass = r.started
	r.scan = newScanner(r.set)
	if r.opts.TrimStacks {
		r.trim = newTrimmer(r.set)
	}
	r.names = newNames(r.opts.Resolver, r.opts.Definitions, r.bootOffset)
	if r.samples.filter != nil {
		r.names.view = r.view
	}
	r.binaries = newCollector(&r.opts, r.fs)
	r.binaries.blind = !r.set.sideband.Attr.Flags.Has(perf.AttrNamespaces)
	r.side = newSidebandWalker(r.set.ring, r.fs, r.names, r.binaries)
	r.side.filter, r.side.tasks = r.samples.filter, r.samples.tasks
	if r.samples.filter != nil {
		r.samples.deferred = newDeferredBinaries(r.samples.filter, r.binaries)
		r.side.deferred = r.samples.deferred
	}
	if err := r.bpf.begin(r.bootOffset); err != nil {
		return err
	}
	o := &perfdata.WriterOptions{Compress: r.opts.Compress}
	f, err := r.features()
	if err == nil {
		r.bpf.features(f)
		r.described, o.Features = f, f
	}
	if out.Pipe != nil {
		if err != nil {
			return err
		}
		r.out, err = perfdata.NewPipeWriter(out.Pipe, r.set.list, o)
	} else {
		info, e := out.File.Stat()
		brief := e == nil && info.Mode().IsRegular()
		if brief {
			r.preallocation = newPreallocation(out.File)
		}
		r.out, err = perfdata.NewWriter(vectorFile{sys.VectorFile{File: out.File, Brief: brief}}, r.set.list, o)
	}
	return writeError(err)
}

// vectorFile is a VectorFile in the form that perfdata looks for.
type vectorFile struct{ sys.VectorFile }

func (f vectorFile) Writev(b [][]byte) (int, error) {
	n, err := f.VectorFile.Writev(b)
	return int(n), err
}
