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
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Proc is the Source that reads /proc. It needs no privilege for the tasks of
// the own user.
type Proc struct {
	FS procfs.FS
	// Clock is the clock of the recording; its zero value is CLOCK_REALTIME,
	// which no recording uses.
	Clock sys.Clock
	// TextMaps reads maps as text also where the kernel has PROCMAP_QUERY.
	TextMaps bool
	// Access bounds access to files; nil: a new one for each Take.
	Access *procroot.Access
}

var _ Source = (*Proc)(nil)

// Close implements Source. There is nothing to release.
func (p *Proc) Close() error { return nil }

// Take implements Source.
func (p *Proc) Take(ctx context.Context, scope Scope, sink Sink) (Stats, error) {
	w, err := newWalk(p, sink)
	if err != nil {
		return Stats{}, err
	}
	defer w.close()
	pids, err := scope.pids()
	if err != nil {
		return Stats{}, err
	}
	if scope.All {
		if pids, err = p.FS.PIDs(); err != nil {
			return Stats{}, fmt.Errorf("list processes: %w", err)
		}
		if err := w.tick(); err != nil {
			return Stats{}, err
		}
		if err := w.idle(w.now); err != nil {
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
	w.stats.Method, w.stats.TimedOut = w.maps.method(), w.maps.timedOut
	return w.stats, nil
}

// walk is the state of one snapshot.
type walk struct {
	emitter
	p       *Proc
	maps    mapReader
	cgroups cgroupIDs
	nsDev   uint64
	now     uint64 // CLOCK_MONOTONIC, before what is read now

	leader, task Task // of the current process
	// denied: something of the current process could not be read.
	denied bool
}

func newWalk(p *Proc, sink Sink) (*walk, error) {
	w := &walk{emitter: emitter{sink: sink}, p: p, nsDev: nsDevice(p.FS)}
	if sink.Want != nil {
		if err := w.cgroups.init(p.FS); err != nil {
			return nil, err
		}
	}
	w.maps.init(p)
	return w, nil
}

func (w *walk) close() { w.maps.close() }

// tick takes the time for the records to come.
func (w *walk) tick() error {
	now, err := w.p.Clock.Now()
	w.now = uint64(now)
	return err
}

// maxReused is how often a process is read again because its number went to
// another one meanwhile.
const maxReused = 3

// process writes the records of a process and its threads. One that has gone is no error.
// The files of /proc are opened one after the other, by a number: that they
// were all of one process, its start time tells.
func (w *walk) process(pid int) error {
	w.denied = false
	proc := w.p.FS.Proc(pid)
	var err error
	for try := 0; ; try++ {
		var before, after procfs.Stat
		if before, err = w.once(proc); err != nil {
			break
		}
		after, err = proc.Stat()
		if err != nil || after.StartTime == before.StartTime {
			err = nil // it may have ended since, which is another matter
			break
		}
		w.stats.Reused++
		if try == maxReused {
			break
		}
	}
	switch {
	case err == nil:
		w.stats.Processes++
	case w.sinkErr != nil:
		return w.sinkErr
	case errors.Is(err, errUnwanted):
		return w.sink.pause()
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
	return w.sink.pause()
}

// errUnwanted: the sink does not want the process.
var errUnwanted = errors.New("process is not wanted")

func (w *walk) once(proc procfs.Proc) (procfs.Stat, error) {
	if err := w.tick(); err != nil {
		return procfs.Stat{}, err
	}
	st, err := proc.Stat()
	if err != nil {
		return st, err
	}
	if err := w.first(proc, &st); err != nil {
		return st, err
	}
	if st.NumThreads > 1 {
		err = w.threads(proc)
	}
	return st, err
}

// read fills t from the files of a thread in /proc.
func (w *walk) read(t *Task, proc procfs.Proc, st *procfs.Stat) error {
	*t = Task{
		PID: t.PID, TID: int32(proc.PID()), PPID: int32(st.PPID), Comm: st.Comm,
		Kernel: st.KernelThread(), Zombie: st.State == 'Z', Start: st.Start(),
	}
	if err := w.readLinks(proc, t); err != nil {
		return err
	}
	if w.sink.Want == nil {
		return nil
	}
	t.Cgroup = w.cgroups.of(proc)
	if !w.sink.Want(t) {
		return errUnwanted
	}
	return nil
}

// first writes the records of a process's first thread and of its mappings.
func (w *walk) first(proc procfs.Proc, st *procfs.Stat) error {
	t := &w.leader
	t.PID = int32(proc.PID())
	if err := w.read(t, proc, st); err != nil {
		return err
	}
	if err := w.report(t, true); err != nil {
		return err
	}
	if t.Kernel {
		return nil
	}
	return w.mappings(proc, st)
}

// report writes the records of a thread. Its namespaces may be known already.
func (w *walk) report(t *Task, namespaces bool) error {
	if err := w.sendFork(t, w.now); err != nil {
		return err
	}
	if namespaces {
		if err := w.sendNamespaces(t, w.now); err != nil {
			return err
		}
	}
	return w.sendComm(t, w.now)
}

// mappings writes the records of the mappings of a process. A leader that has exited before
// its threads has none: then a thread's are the process's.
func (w *walk) mappings(proc procfs.Proc, st *procfs.Stat) error {
	from := []int{proc.PID()}
	if st.State == 'Z' && st.NumThreads > 1 {
		tids, err := proc.Tasks()
		if err != nil {
			return err
		}
		from = slices.DeleteFunc(tids, func(tid int) bool { return tid == proc.PID() })
	}
	pid, mnt := int32(proc.PID()), w.leader.Namespaces[perf.NSMnt].Ino
	for _, tid := range from {
		err := w.maps.each(w.p.FS.Proc(tid), mnt, func(m *perf.Mmap2) error {
			return w.sendMapping(m, pid, w.now)
		})
		switch {
		case errors.Is(err, fs.ErrPermission):
			w.denied = true
			return nil
		case errors.Is(err, procroot.ErrTimeout):
			w.stats.HeldUp = append(w.stats.HeldUp, pid)
			return nil
		case err == nil || !procfs.Gone(err):
			return err
		}
	}
	return nil
}

// threads writes the records of the threads beside the leader. Namespaces are written only
// where they differ from the leader's, which the thread has by its FORK.
func (w *walk) threads(proc procfs.Proc) error {
	tids, err := proc.Tasks()
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if tid == proc.PID() {
			continue
		}
		err := w.thread(proc, tid)
		if err != nil && !errors.Is(err, errUnwanted) && (w.sinkErr != nil || !procfs.Gone(err)) {
			return err
		}
	}
	return nil
}

func (w *walk) thread(proc procfs.Proc, tid int) error {
	if err := w.tick(); err != nil {
		return err
	}
	task := proc.Task(tid)
	comm, err := task.Comm()
	if err != nil {
		return err
	}
	st := procfs.Stat{Comm: comm, PPID: int(w.leader.PPID), State: 'S'}
	if w.sink.Want != nil {
		if st, err = task.Stat(); err != nil {
			return err
		}
	}
	t := &w.task
	t.PID = w.leader.PID
	if err := w.read(t, task, &st); err != nil {
		return err
	}
	w.stats.Threads++
	return w.report(t, t.Namespaces != w.leader.Namespaces)
}
