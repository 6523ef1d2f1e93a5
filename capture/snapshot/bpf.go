// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/bpf/tasks"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// BPF is the Source that goes through the kernel's own lists. It needs
// CAP_BPF and CAP_PERFMON; package tasks says what else.
type BPF struct {
	fs    procfs.FS
	progs *tasks.Programs
	ids   *binaries.IDReader
	files []fileID          // by the id of the file
	comms map[string]string // interned
	nsDev uint64
}

var _ Source = (*BPF)(nil)

// NewBPF loads the iterators, which takes tens of milliseconds. The caller
// closes the source. The errors are those of tasks.Load.
func NewBPF(fsys procfs.FS) (*BPF, error) {
	progs, err := tasks.Load()
	if err != nil {
		return nil, err
	}
	return &BPF{
		fs: fsys, progs: progs, ids: binaries.NewIDReader(nil),
		comms: make(map[string]string), nsDev: nsDevice(fsys),
	}, nil
}

// Close implements Source.
func (b *BPF) Close() error {
	if b.progs == nil {
		return nil
	}
	b.ids.Close()
	err := b.progs.Close()
	b.progs = nil
	return err
}

// Take implements Source. It can be called again, unless it fails.
func (b *BPF) Take(ctx context.Context, scope Scope, sink Sink) (Stats, error) {
	p := &pass{b: b, ctx: ctx, emitter: emitter{sink: sink}, nsSets: make(map[int32]int32)}
	p.stats.Method = ByBPF
	if err := p.choose(scope); err != nil {
		return p.stats, err
	}
	if scope.All {
		now, err := sys.ClockMonotonic.Now()
		if err != nil {
			return p.stats, err
		}
		if err := p.idle(uint64(now)); err != nil {
			return p.stats, err
		}
	}
	if err := b.progs.Tasks(p.task, p.pause); err != nil {
		return p.stats, err
	}
	err := b.progs.Mappings(ctx, patience, p.mapping, p.pause)
	if errors.Is(err, tasks.ErrHeldUp) {
		err = p.mappingsOneByOne()
	}
	if err != nil {
		return p.stats, err
	}
	return p.stats, p.initial()
}

// patience is how long the iterator of mappings may take for what it gives at
// once, which is a millisecond as a rule.
const patience = 300 * time.Millisecond

// mappingsOneByOne reads the mappings of the processes that the iterator did not
// come to, or not to the end of, because one of them holds its own locked.
func (p *pass) mappingsOneByOne() error {
	var r mapReader
	r.init(&Proc{FS: p.b.fs, Access: p.b.ids.Access()})
	defer r.close()
	for pid := range p.reported.from(int32(p.last)) {
		if err := p.pause(); err != nil {
			return err
		}
		now, err := sys.ClockMonotonic.Now()
		if err != nil {
			return err
		}
		mnt := p.sets[p.nsSets[pid]][perf.NSMnt].Ino
		err = r.each(p.b.fs.Proc(int(pid)), mnt,
			func(m *perf.Mmap2) error { return p.sendMapping(m, pid, uint64(now)) })
		switch {
		case p.sinkErr != nil:
			return p.sinkErr
		case errors.Is(err, procroot.ErrTimeout):
			p.stats.HeldUp = append(p.stats.HeldUp, pid)
		case err == nil || procfs.Gone(err):
		case errors.Is(err, fs.ErrPermission):
			p.stats.Denied++
		default:
			p.stats.Unreadable++
		}
	}
	p.stats.TimedOut += r.timedOut
	return nil
}

// initial reports the first process where the kernel keeps it out of the
// iterators' sight, as that of some virtual machines does: as far as /proc
// shows it.
func (p *pass) initial() error {
	if !p.all && !p.pids[1] || p.sawInit {
		return nil
	}
	proc := Proc{FS: p.b.fs, Clock: sys.ClockMonotonic, Access: p.b.ids.Access()}
	found, err := proc.Take(p.ctx, Scope{PIDs: []int{1}}, p.sink)
	p.stats.Processes += found.Processes
	p.stats.Threads += found.Threads
	p.stats.Mappings += found.Mappings
	p.stats.Gone += found.Gone
	p.stats.Denied += found.Denied
	p.stats.Unreadable += found.Unreadable
	p.stats.Reused += found.Reused
	p.stats.TimedOut += found.TimedOut
	return err
}

// pass is one way through all tasks and mappings.
type pass struct {
	emitter
	b   *BPF
	ctx context.Context

	all     bool
	pids    map[int32]bool
	cgroups map[uint64]bool
	// reported are the processes that have records. spaces says which of sets are the
	// namespaces of each, if not the first: threads have the same, mostly.
	reported pidSet
	nsSets   map[int32]int32
	sets     []nsLinks
	// floor is when the records told last may have been written: what is
	// read later is not older.
	floor   uint64
	sawInit bool // the iterator showed process 1
	t       Task
	last    uint32 // process of the mapping before
	want    bool   // of that process
	rec     perf.Mmap2
}

// choose prepares what inScope asks.
func (p *pass) choose(s Scope) error {
	p.all = s.All
	p.pids, p.cgroups = make(map[int32]bool), make(map[uint64]bool)
	for _, pid := range s.PIDs {
		p.pids[int32(pid)] = true
	}
	for _, dir := range s.Cgroups {
		typ, err := sys.FSTypeOf(dir)
		if err == nil && typ == sys.Cgroup2FS {
			err = eachCgroup(dir, func(path string) error {
				if id, err := sys.CgroupID(path); err == nil { // else it is gone
					p.cgroups[id] = true
				}
				return nil
			})
		} else if err == nil {
			// The iterator tells the cgroup of the v2 hierarchy only.
			err = eachProc(dir, func(pid int) { p.pids[int32(pid)] = true })
		}
		if err != nil {
			return fmt.Errorf("list tasks of cgroup: %w", err)
		}
	}
	return nil
}

func (p *pass) inScope(t *tasks.Task) bool {
	return p.all || p.pids[int32(t.PID)] || len(p.cgroups) > 0 && p.cgroups[t.Cgroup]
}

// pause lets the sink do what it has to do between two reads.
func (p *pass) pause() error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.sink.Pause == nil {
		return nil
	}
	if err := p.sink.Pause(); err != nil {
		return err
	}
	now, err := sys.ClockMonotonic.Now()
	p.floor = uint64(now)
	return err
}

// task writes the records of one thread.
func (p *pass) task(r *tasks.Task) error {
	p.sawInit = p.sawInit || r.TID == 1
	if r.PID == 0 || r.TID == 0 || !p.inScope(r) {
		return nil
	}
	t := &p.t
	*t = Task{
		PID: int32(r.PID), TID: int32(r.TID), PPID: int32(r.PPID), Kernel: r.KernelThread(), Zombie: r.Zombie,
		Start: r.Start, Cgroup: r.Cgroup, TimeNS: uint64(r.Namespaces[tasks.NSTime]), Comm: p.b.comm(r),
	}
	for i := range t.Namespaces {
		if ino := r.Namespaces[i]; ino != 0 {
			t.Namespaces[i] = perf.NSLink{Dev: p.b.nsDev, Ino: uint64(ino)}
		}
	}
	if p.sink.Want != nil && !p.sink.Want(t) {
		return nil
	}
	now := max(r.Now, p.floor)
	if err := p.sendFork(t, now); err != nil {
		return err
	}
	first := t.PID == t.TID || !p.reported.has(t.PID)
	if first {
		p.reported.add(t.PID)
		p.setNamespaces(t)
	}
	if t.PID == t.TID {
		p.stats.Processes++
	} else {
		p.stats.Threads++
	}
	if first || p.sets[p.nsSets[t.PID]] != t.Namespaces {
		if err := p.sendNamespaces(t, now); err != nil {
			return err
		}
	}
	return p.sendComm(t, now)
}

// nsLinks are the namespaces of a task, as a NAMESPACES record has them.
type nsLinks = [numLinks]perf.NSLink

// setNamespaces takes note of the namespaces of a process: those of the first one or
// of a neighbour, mostly.
func (p *pass) setNamespaces(t *Task) {
	at := len(p.sets)
	if at > 0 && p.sets[0] == t.Namespaces {
		at = 0
	}
	for i := max(1, len(p.sets)-nearSets); at > 0 && i < len(p.sets); i++ {
		if p.sets[i] == t.Namespaces {
			at = i
			break
		}
	}
	if at == len(p.sets) {
		p.sets = append(p.sets, t.Namespaces)
	}
	if at > 0 {
		p.nsSets[t.PID] = int32(at)
	} else {
		delete(p.nsSets, t.PID)
	}
}

// from are those of the set that are not below a process, in their order.
func (s pidSet) from(first int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for word := max(int(first), 0) / 64; word < len(s); word++ {
			for bit := range 64 {
				pid := int32(word*64 + bit)
				if s[word]&(1<<bit) != 0 && pid >= first && !yield(pid) {
					return
				}
			}
		}
	}
}

// nearSets is how many sets are looked at beside the first. What is further back
// is kept again.
const nearSets = 8

// pidSet is a set of processes.
type pidSet []uint64

// maxPID is PID_MAX_LIMIT of linux/threads.h.
const maxPID = 1 << 22

func (s *pidSet) add(pid int32) {
	if pid < 0 || pid > maxPID {
		return
	}
	for int(pid)/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[pid/64] |= 1 << (pid % 64)
}

func (s pidSet) has(pid int32) bool {
	return pid >= 0 && int(pid)/64 < len(s) && s[pid/64]&(1<<(pid%64)) != 0
}
