// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Proc is the Source that reads /proc.
type Proc struct {
	FS procfs.FS
	// Clock is the clock of the recording; its zero value is CLOCK_REALTIME,
	// which no recording uses.
	Clock sys.Clock
	// TextMaps reads maps as text also where the kernel has PROCMAP_QUERY.
	TextMaps bool
}

var _ Source = (*Proc)(nil)

// Take implements Source.
func (p *Proc) Take(ctx context.Context, scope Scope, sink Sink) (Stats, error) {
	w := newWalk(p, sink)
	defer w.close()
	pids := scope.PIDs
	if scope.All {
		var err error
		if pids, err = p.FS.PIDs(); err != nil {
			return Stats{}, fmt.Errorf("list processes: %w", err)
		}
		if err := w.idle(); err != nil {
			return Stats{}, err
		}
	}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return w.stats, err
		}
		if err := w.process(pid); err != nil {
			return w.stats, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	w.stats.Method = w.maps.method()
	return w.stats, nil
}

// walk is the state of one snapshot. The records are used again.
type walk struct {
	p    *Proc
	sink Sink

	sinkErr error // of the sink, which ends the walk
	stats   Stats
	maps    mapReader
	now     uint64

	fork  perf.Fork
	comm  perf.Comm
	ns    perf.Namespaces
	links [numLinks]perf.NSLink
	nsDev uint64
	// denied: something of the current process could not be read.
	denied bool
}

func newWalk(p *Proc, sink Sink) *walk {
	w := &walk{p: p, nsDev: nsDevice(p.FS)}
	w.sink = func(rec perf.Record) error {
		w.sinkErr = sink(rec)
		return w.sinkErr
	}
	w.maps.init(p)
	return w
}

func (w *walk) close() { w.maps.close() }

// idle tells of the task that runs when nothing else does.
func (w *walk) idle() error {
	if err := w.tick(); err != nil {
		return err
	}
	return w.sendComm(0, 0, "swapper")
}

// tick takes the time for the records to come.
func (w *walk) tick() error {
	now, err := w.p.Clock.Now()
	w.now = uint64(now)
	return err
}

// process tells of a process and its threads. One that has gone is no error.
func (w *walk) process(pid int) error {
	if err := w.tick(); err != nil {
		return err
	}
	w.denied = false
	proc := w.p.FS.Proc(pid)
	st, err := proc.Stat()
	if err == nil {
		err = w.leader(proc, &st)
	}
	if err == nil && st.NumThreads > 1 {
		err = w.threads(proc)
	}
	switch {
	case err == nil:
		w.stats.Processes++
	case w.sinkErr != nil:
		return w.sinkErr
	case procfs.Gone(err):
		w.stats.Gone++
	case errors.Is(err, fs.ErrPermission):
		w.denied = true
	default:
		// A process can make itself unreadable, with a path longer than
		// the kernel gives for one; that is no reason to see no other.
		w.stats.Unreadable++
	}
	if w.denied {
		w.stats.Denied++
	}
	return nil
}

func (w *walk) leader(proc procfs.Proc, st *procfs.Stat) error {
	pid := proc.PID()
	if err := w.sendFork(pid, pid, st.PPID, st.PPID); err != nil {
		return err
	}
	known, err := w.readLinks(proc)
	if err != nil {
		return err
	}
	if known {
		if err := w.sendNamespaces(pid, pid); err != nil {
			return err
		}
	}
	if err := w.sendComm(pid, pid, st.Comm); err != nil {
		return err
	}
	if st.KernelThread() {
		return nil
	}
	mnt := w.links[perf.NSMnt].Ino
	if !known {
		mnt = 0
	}
	return w.mappings(proc, st, mnt)
}

// mappings tells of the mappings of a process. A leader that has exited before
// its threads has none: then a thread's are the process's.
func (w *walk) mappings(proc procfs.Proc, st *procfs.Stat, mnt uint64) error {
	from := []int{proc.PID()}
	if st.State == 'Z' && st.NumThreads > 1 {
		tids, err := proc.Tasks()
		if err != nil {
			return err
		}
		from = slices.DeleteFunc(tids, func(tid int) bool { return tid == proc.PID() })
	}
	pid := proc.PID()
	for _, tid := range from {
		err := w.maps.each(w.p.FS.Proc(tid), mnt, func(m *perf.Mmap2) error {
			m.PID, m.TID = int32(pid), int32(pid)
			setTrailer(&m.Trailer, m.Misc, pid, pid, w.now)
			w.stats.Mappings++
			return w.sink(m)
		})
		switch {
		case errors.Is(err, fs.ErrPermission):
			w.denied = true
			return nil
		case err == nil || !procfs.Gone(err):
			return err
		}
	}
	return nil
}

// threads tells of the threads beside the leader. Namespaces are told only
// where they differ from the leader's, which the thread has by its FORK.
func (w *walk) threads(proc procfs.Proc) error {
	leader := w.links
	tids, err := proc.Tasks()
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if tid == proc.PID() {
			continue
		}
		if err := w.thread(proc, tid, &leader); err != nil && !procfs.Gone(err) {
			return err
		}
	}
	return nil
}

func (w *walk) thread(proc procfs.Proc, tid int, leader *[numLinks]perf.NSLink) error {
	if err := w.tick(); err != nil {
		return err
	}
	pid, task := proc.PID(), proc.Task(tid)
	comm, err := task.Comm()
	if err != nil {
		return err
	}
	known, err := w.readLinks(task)
	if err != nil {
		return err
	}
	w.stats.Threads++
	if err := w.sendFork(pid, tid, pid, pid); err != nil {
		return err
	}
	if known && w.links != *leader {
		if err := w.sendNamespaces(pid, tid); err != nil {
			return err
		}
	}
	return w.sendComm(pid, tid, comm)
}

func (w *walk) sendFork(pid, tid, ppid, ptid int) error {
	setTrailer(&w.fork.Trailer, perf.MiscForkExec, pid, tid, w.now)
	w.fork.Task = perf.Task{PID: int32(pid), TID: int32(tid), PPID: int32(ppid), PTID: int32(ptid), Time: w.now}
	return w.sink(&w.fork)
}

func (w *walk) sendComm(pid, tid int, comm string) error {
	setTrailer(&w.comm.Trailer, 0, pid, tid, w.now)
	w.comm.PID, w.comm.TID, w.comm.Comm = int32(pid), int32(tid), comm
	return w.sink(&w.comm)
}

func (w *walk) sendNamespaces(pid, tid int) error {
	setTrailer(&w.ns.Trailer, 0, pid, tid, w.now)
	w.ns.PID, w.ns.TID, w.ns.Links = int32(pid), int32(tid), w.links[:]
	return w.sink(&w.ns)
}
