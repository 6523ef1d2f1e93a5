// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"slices"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

const (
	// MaxProcesses bounds the processes whose mount namespace is remembered.
	MaxProcesses = 1 << 20
	// MaxOutlived bounds the processes that are looked up in /proc each round,
	// because their first thread has exited and others may go on.
	MaxOutlived = 256
	// maxThreads bounds the threads that have exited or executed lately.
	maxThreads = 1 << 20
)

// Table is the process table. It is for one goroutine.
type Table struct {
	fs        procfs.FS
	hostMnt   uint64
	observers []Observer
	event     Event // scratch

	// mounts has the mount namespace of each process that lives or ended lately.
	mounts map[int32]MountNS
	// ended are the processes whose first thread exited in this round, older
	// those of the round before.
	ended, older []int32

	// threads are those that exited or executed a program lately.
	threads             map[int32]thread
	exited, olderExited []int32

	states                          map[uint64]*mountNSState // by inode number
	firstGeneration, lastGeneration uint32

	// NewMountNS counts the mount namespaces that were not known before.
	NewMountNS int
	// Untracked counts the processes that there was no room for. Unchecked are
	// those that may have outlived their first thread, and were forgotten.
	Untracked, Unchecked uint64
}

// thread is what is known of a thread beside its namespaces.
type thread struct {
	exited   bool
	executed uint64 // when it executed a program last
}

// New returns an empty table. hostMnt is the inode number of the host's mount
// namespace, whose number is never reused; 0: not known.
func New(fsys procfs.FS, hostMnt uint64) *Table {
	return &Table{
		fs: fsys, hostMnt: hostMnt, mounts: make(map[int32]MountNS),
		threads: make(map[int32]thread), states: make(map[uint64]*mountNSState),
	}
}

// Subscribe adds an observer.
func (t *Table) Subscribe(o Observer) { t.observers = append(t.observers, o) }

// Unsubscribe removes an observer.
func (t *Table) Unsubscribe(o Observer) {
	t.observers = slices.DeleteFunc(t.observers, func(have Observer) bool { return have == o })
}

func (t *Table) send(ev *Event) {
	for _, o := range t.observers {
		o.Observe(ev)
	}
}

// Record takes a record of a ring and tells the observers. Records of other types
// are passed over. Learn must have seen the records of all rings before.
func (t *Table) Record(raw perf.Raw) {
	ev := &t.event
	*ev = Event{}
	switch raw.Type() {
	case perf.RecordFork, perf.RecordExit:
		task, ok := raw.Task()
		if !ok {
			return
		}
		ev.Kind = Fork
		if raw.Type() == perf.RecordExit {
			ev.Kind = Exit
		}
		ev.PID, ev.TID, ev.PPID, ev.PTID, ev.Time = task.PID, task.TID, task.PPID, task.PTID, task.Time
	case perf.RecordComm:
		var ok bool
		if ev.PID, ev.TID, ok = raw.Comm(); !ok || raw.Misc()&perf.MiscCommExec == 0 {
			return
		}
		ev.Kind, ev.Time = Exec, raw.TrailerTime()
	case perf.RecordNamespaces:
		n, ok := raw.Namespaces()
		if !ok {
			return
		}
		ev.Kind, ev.PID, ev.TID, ev.Time = Namespaces, n.PID, n.TID, raw.TrailerTime()
		for i := range ev.NS {
			ev.NS[i] = n.Inode(i)
		}
	case perf.RecordCgroup:
		id, path, ok := raw.Cgroup()
		if !ok {
			return
		}
		ev.Kind, ev.CgroupID, ev.CgroupPath = Cgroup, id, string(path)
	default:
		return
	}
	t.apply(ev)
}

// Decoded takes a record that is no ring's: the status record of a snapshot.
func (t *Table) Decoded(rec perf.Record) {
	ev := &t.event
	*ev = Event{Status: perf.MiscOf(rec)&perf.MiscStatusOnly != 0, Time: perf.SampleIDOf(rec).Time}
	switch rec := rec.(type) {
	case *perf.Fork:
		ev.Kind, ev.PID, ev.TID, ev.PPID, ev.PTID, ev.Time = Fork, rec.PID, rec.TID, rec.PPID, rec.PTID, rec.Time
	case *perf.Exit:
		ev.Kind, ev.PID, ev.TID, ev.PPID, ev.PTID, ev.Time = Exit, rec.PID, rec.TID, rec.PPID, rec.PTID, rec.Time
	case *perf.Comm:
		if rec.Misc&perf.MiscCommExec == 0 {
			return
		}
		ev.Kind, ev.PID, ev.TID = Exec, rec.PID, rec.TID
	case *perf.Namespaces:
		ev.Kind, ev.PID, ev.TID = Namespaces, rec.PID, rec.TID
		for i := range min(len(rec.Links), NumNS) {
			ev.NS[i] = rec.Links[i].Ino
		}
		if rec.PID == rec.TID && len(rec.Links) > perf.NSMnt {
			t.setMountNS(change{pid: rec.PID, ino: ev.NS[perf.NSMnt], live: !ev.Status})
		}
	case *perf.Cgroup:
		ev.Kind, ev.CgroupID, ev.CgroupPath = Cgroup, rec.ID, rec.Path
	default:
		return
	}
	t.apply(ev)
}

// apply updates threads and tells the observers.
func (t *Table) apply(ev *Event) {
	switch ev.Kind {
	case Fork, Namespaces:
		if th, ok := t.threads[ev.TID]; ok && th.exited {
			th.exited = false // the number was given again
			t.threads[ev.TID] = th
		}
	case Exec:
		th := t.threads[ev.TID]
		th.exited, th.executed = false, max(th.executed, ev.Time)
		t.setThread(ev.TID, th)
	case Exit:
		if ev.PID == ev.TID {
			t.ended = append(t.ended, ev.PID)
		}
		if th := t.threads[ev.TID]; ev.Time >= th.executed {
			th.exited = true
			t.setThread(ev.TID, th)
			t.exited = append(t.exited, ev.TID)
		}
	}
	t.send(ev)
}

func (t *Table) setThread(tid int32, th thread) {
	if len(t.threads) >= maxThreads {
		clear(t.threads)
	}
	t.threads[tid] = th
}

// Exited reports whether a thread has exited, by the records that were read. One
// that goes on as the first thread of its process, after it executed a program,
// has not.
func (t *Table) Exited(tid int32) bool { return t.threads[tid].exited }

// Round ends a round: it forgets what had exited before the last one.
func (t *Table) Round() {
	ev := &t.event
	for _, tid := range t.olderExited {
		if t.threads[tid].exited {
			delete(t.threads, tid)
			*ev = Event{Kind: ThreadForgot, TID: tid}
			t.send(ev)
		}
	}
	t.exited, t.olderExited = t.olderExited[:0], t.exited
	outlived := 0
	for _, pid := range t.older {
		if outlived < MaxOutlived && t.runs(pid) {
			t.ended = append(t.ended, pid)
			outlived++
			continue
		}
		if _, known := t.mounts[pid]; known && outlived == MaxOutlived {
			t.Unchecked++
		}
		delete(t.mounts, pid)
		*ev = Event{Kind: ProcessForgot, PID: pid}
		t.send(ev)
	}
	t.ended, t.older = t.older[:0], t.ended
}

// runs reports whether a process has a thread that has not exited.
func (t *Table) runs(pid int32) bool {
	st, err := t.fs.Proc(int(pid)).Stat()
	return err == nil && (st.State != 'Z' || st.NumThreads > 1)
}
