// SPDX-License-Identifier: Apache-2.0

//go:build linux

package bpfprog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

const (
	// ringSize is the memory for records of one CPU, in bytes: each has 56.
	ringSize = 64 << 10
	// linkPause is how long a new program has to be attached, before it is
	// asked where it is.
	linkPause = 200 * time.Millisecond
	// restPause is for how long a Watcher sleeps, however much is loaded, as
	// long as all is copied in the kernel. Waking up takes more than reading what a
	// load has left.
	restPause = 100 * time.Millisecond
)

// WatchOptions say how to watch. The zero value is good.
type WatchOptions struct {
	FS    procfs.FS
	Table *ProgramTable // where to put what was found; nil is a new one
	// Load and Unload are called in Run's goroutine for each record of the
	// kernel, when the ProgramTable has the program, with its details if they could be
	// read. They may be nil.
	Load, Unload func(id uint32)
	// NoEvent and NoCopy switch a route off: that of the records, and that of
	// the BPF program, which takes some 40 ms to load.
	NoEvent, NoCopy bool
}

// A Watcher reads the details of programs as they are loaded.
type Watcher struct {
	opts       WatchOptions
	table      *ProgramTable
	events     []*perfevent.Event
	rings      []*perfevent.Ring
	poll       *sys.Poller
	ready      []sys.Ready
	reader     Reader
	tasks      *taskReader
	bootOffset uint64
	links      time.Time // when to look at them again; zero: not
	batch      []event
	copier     *copier // nil: that route is off or refused
	// refused is why there is no copier, although it was asked for.
	refused error
	// late are loads that are known of neither route yet.
	late []lateLoad
	// uncopied: what was read last was not all copied.
	uncopied bool
	resting  bool // records do not wake it
}

// event is a BPF_EVENT.
type event struct {
	kind     uint16
	id       uint32
	tag      [8]byte
	pid, tid int32
	time     uint64
}

// OpenWatcher opens a Watcher of the whole machine, disabled. Errors:
// perfevent.ErrPermission without CAP_PERFMON, CAP_SYS_ADMIN or
// kernel.perf_event_paranoid below 1; perfevent.ErrUnsupported before Linux 5.1.
func OpenWatcher(o WatchOptions) (_ *Watcher, err error) {
	w := &Watcher{opts: o, table: o.Table, tasks: newTaskReader(o.FS)}
	if w.table == nil {
		w.table = NewProgramTable()
	}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if !o.NoCopy {
		// Before any event is open: it takes long.
		w.copier, w.refused = newCopier()
	}
	if w.poll, err = sys.NewPoller(); err != nil {
		return nil, err
	}
	w.poll.Blocking() // it wakes at once, and seldom: see rest
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	for i, cpu := range cpus {
		if err := w.open(i, cpu); err != nil {
			return nil, fmt.Errorf("watch BPF programs: %w", err)
		}
	}
	if w.copier != nil {
		if err := w.poll.Add(w.copier.full, len(cpus)); err != nil {
			return nil, fmt.Errorf("watch BPF programs: %w", err)
		}
	}
	return w, nil
}

// attr is the event that carries nothing but BPF_EVENT records. They do not
// count as events, so that a watermark has to wake the reader.
func attr() perf.Attr {
	return perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWDummy, SampleCount: 1,
		SampleType: perf.SampleTID | perf.SampleTime,
		Flags: perf.AttrDisabled | perf.AttrExcludeKernel | perf.AttrExcludeHV | perf.AttrSampleIDAll |
			perf.AttrBPFEvent | perf.AttrWatermark | perf.AttrUseClockID,
		Wakeup: 1, ClockID: int32(sys.ClockMonotonic),
	}
}

func (w *Watcher) open(i, cpu int) error {
	a := attr()
	ev, err := perfevent.Open(&a, perfevent.Target{PID: perfevent.Any, CPU: cpu, Flags: perfevent.Exact}, nil)
	if err != nil {
		return err
	}
	w.events = append(w.events, ev)
	ring, err := perfevent.NewRing(ev, perfevent.RingPages(ringSize))
	if err != nil {
		return err
	}
	w.rings = append(w.rings, ring)
	return w.poll.AddSuspendable(ev.FD(), i)
}

// Table is where the programs are.
func (w *Watcher) Table() *ProgramTable { return w.table }

// Refused is why programs that live microseconds may be missed: the route of the
// BPF program is not open. It is nil if that works, or was not asked for.
func (w *Watcher) Refused() error { return w.refused }

// Start begins to watch: what is loaded from now on will be seen by Run. slept is
// how far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, in ns.
func (w *Watcher) Start(bootOffset uint64) error {
	w.bootOffset = bootOffset
	// Copies first, so that there is one of all that records tell of.
	if w.copier != nil {
		if err := w.copier.start(); err != nil {
			w.refused = err
			err = w.copier.close()
			w.copier = nil
			if err != nil {
				return err
			}
		}
	}
	for _, ev := range w.events {
		if err := ev.Enable(); err != nil {
			return fmt.Errorf("watch BPF programs: %w", err)
		}
	}
	return nil
}

// ReadAll puts the programs into the ProgramTable that are loaded already. One after
// Start misses none. It may be called again, and while Run runs. fs.ErrPermission
// without CAP_SYS_ADMIN.
func (w *Watcher) ReadAll() error {
	err := new(Reader).List(w.table.unknown, func(id uint32, d *Details, err error) error {
		if err != nil {
			w.table.setMissed(id, reason(err))
			return nil
		}
		w.table.setDetails(d, perfdata.BPFRouteStatus, w.bootOffset)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list BPF programs: %w", err)
	}
	w.readLinks()
	return nil
}

// Run watches until ctx ends; what was loaded by then is in the ProgramTable.
func (w *Watcher) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.poll.Wake() })
	defer stop()
	for {
		last := ctx.Err() != nil
		some, err := w.drain()
		if err != nil {
			return err
		}
		w.settle(last)
		if last {
			w.copier.report(w.table)
			w.readLinks()
			return nil
		}
		if woke, err := w.rest(some && !w.uncopied); err != nil {
			return err
		} else if woke {
			continue // what came before does not wake it
		}
		w.ready, err = w.poll.Wait(w.pause(), w.ready)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("watch BPF programs: %w", err)
		}
	}
}

// rest has records of loads not wake the Watcher, or wake it again. Meanwhile it
// looks for them after restPause, and when much was copied. woke: it was resting.
func (w *Watcher) rest(on bool) (woke bool, err error) {
	if w.copier == nil || on == w.resting {
		return false, nil
	}
	if err := w.poll.Suspend(on); err != nil {
		return false, fmt.Errorf("watch BPF programs: %w", err)
	}
	w.resting = on
	return !on, nil
}

// pause is how long to sleep if nothing comes.
func (w *Watcher) pause() time.Duration {
	switch d := w.linksPause(); {
	case len(w.late) > 0:
		return latePause
	case w.resting:
		return min(d, restPause)
	default:
		return d
	}
}

// linksPause is how long until links are to be read. It reads them if it is time.
func (w *Watcher) linksPause() time.Duration {
	if w.links.IsZero() {
		return time.Hour
	}
	left := time.Until(w.links)
	if left <= 0 {
		w.links = time.Time{}
		w.readLinks()
		return time.Hour
	}
	return left
}

// Close ends watching. Closing twice does nothing.
func (w *Watcher) Close() error {
	var errs []error
	for _, r := range w.rings {
		errs = append(errs, r.Close())
	}
	for _, ev := range w.events {
		errs = append(errs, ev.Close())
	}
	w.rings, w.events = nil, nil
	errs = append(errs, w.copier.close())
	w.copier = nil
	if w.poll != nil {
		errs = append(errs, w.poll.Close())
	}
	return errors.Join(errs...)
}

// drain handles what is in the rings, and tells whether there was something.
// Programs are opened before anything is read: each may be gone in a moment.
func (w *Watcher) drain() (some bool, err error) {
	w.uncopied = false
	for {
		w.batch = w.batch[:0]
		for _, r := range w.rings {
			if err := w.take(r); err != nil {
				return some, err
			}
		}
		if len(w.batch) == 0 {
			return some, nil
		}
		some = true
		slices.SortStableFunc(w.batch, func(a, b event) int { return cmp.Compare(a.time, b.time) })
		w.handle(w.batch)
	}
}

func (w *Watcher) take(r *perfevent.Ring) error {
	a, b := r.Peek()
	var scratch []byte
	for raw, err := range perfevent.Records(a, b, &scratch) {
		if err != nil {
			return fmt.Errorf("watch BPF programs: %w", err)
		}
		switch raw := perf.Raw(raw); raw.Type() {
		case perf.RecordBPFEvent:
			kind, id, tag, ok := raw.BPFEvent()
			pid, tid, time, whole := raw.BPFEventTrailer()
			if ok && whole {
				w.batch = append(w.batch, event{kind: kind, id: id, tag: tag, pid: pid, tid: tid, time: time})
			}
		case perf.RecordLost:
			n, _ := raw.Lost()
			w.table.lost(n)
		}
	}
	r.Consume(len(a) + len(b))
	return nil
}

// handle handles records in the order of time.
func (w *Watcher) handle(list []event) {
	open := make(map[uint32]*sys.FD)
	why := make(map[uint32]error)
	for _, e := range list {
		if e.kind == BPFUnload {
			why[e.id] = fs.ErrNotExist
		}
	}
	for _, e := range list {
		if e.kind == BPFLoad && why[e.id] == nil && !w.opts.NoEvent {
			open[e.id], why[e.id] = sys.BPFOpen(sys.BPFProg, e.id)
		}
	}
	w.copier.read()
	for _, e := range list {
		switch e.kind {
		case BPFLoad:
			if w.load(&e, open[e.id], why[e.id]) {
				call(w.opts.Load, e.id)
			}
			open[e.id] = nil // closed
		case BPFUnload:
			w.settleOne(e.id)
			w.table.unloaded(e.id, e.tag, e.time)
			call(w.opts.Unload, e.id)
		}
	}
}

func call(fn func(uint32), id uint32) {
	if fn != nil {
		fn(id)
	}
}

// load handles the load of a program, and closes fd, which is nil with err. It is
// false if the program is not known of yet.
func (w *Watcher) load(e *event, fd *sys.FD, err error) bool {
	defer fd.Close()
	if w.links.IsZero() {
		w.links = time.Now().Add(linkPause)
	}
	loader := &perfdata.BPFLoader{PID: e.pid, TID: e.tid}
	copied := w.copier.take(e.id)
	w.uncopied = w.uncopied || copied == nil
	if copied == nil || !copied.setLoader(loader) {
		w.tasks.read(loader)
	}
	if !w.table.added(e.id, e.tag, e.time, loader) {
		return true
	}
	var d *Details
	if fd != nil && (copied == nil || copied.Incomplete) {
		d, err = w.reader.ReadFD(fd)
	}
	switch {
	case d != nil:
		w.table.setDetails(d, perfdata.BPFRouteEvent, w.bootOffset)
	case copied != nil:
		w.table.setDetails(copied.details(), perfdata.BPFRouteKernel, w.bootOffset)
	case w.copier != nil:
		w.late = append(w.late, lateLoad{id: e.id, loader: loader, since: time.Now(), err: err})
		return false
	default:
		w.table.setMissed(e.id, reason(err))
	}
	return true
}

// reason is why there are no details, for people.
func reason(err error) string {
	switch {
	case err == nil:
		return "it was not copied"
	case errors.Is(err, fs.ErrNotExist):
		return "it was gone before it could be read"
	case errors.Is(err, fs.ErrPermission):
		return "not permitted to read it (CAP_SYS_ADMIN)"
	}
	return err.Error()
}

// readLinks puts down where the programs of the ProgramTable are attached.
func (w *Watcher) readLinks() {
	if at, err := Links(w.tasks.tree); err == nil {
		w.table.attach(at)
	}
}
