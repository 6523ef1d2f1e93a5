// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// Status is what the status records of a file have to say that begins in the middle of a
// recording: who runs, under which name, in which namespaces, with what mapped. It is made
// from the records that were written so far, so that nothing has to be looked at again.
// It is for one goroutine.
type Status struct {
	id        uint64
	threads   map[int32]*task
	processes map[int32]*process
	cgroups   map[uint64]perf.Raw
	kernel    []perf.Raw          // mappings of the kernel and its modules
	symbols   map[uint64]perf.Raw // KSYMBOL, by address
	programs  map[uint32]perf.Raw // BPF_EVENT, by id
	exits     []exit              // in order of time
	recent    []timed             // records that Advance has not come to
	room      []byte              // of recent
	copied    int                 // mappings in lists that began as copies
	// Untold counts the mappings that are left out for want of room.
	Untold uint64
}

type task struct {
	pid, tid, parent int32
	comm, ns         perf.Raw // nil: not known
	exited           uint64   // when; 0: it runs
}

type process struct {
	maps    *mappings
	threads int
}

// mappings are those of a process, in order of address, and of its children until one of
// them changes.
type mappings struct {
	list   []mapping
	shared int // by so many others
	copied int
}

type mapping struct {
	start, end uint64
	rec        perf.Raw
}

type timed struct {
	time     uint64
	from, to int // in room
}

type exit struct {
	time uint64
	tid  int32
}

const (
	// statusGrace is how long after its exit a thread may have samples, in nanoseconds.
	statusGrace = 1_000_000_000
	// maxStatusCopies bounds the mappings in lists that were copied after a fork.
	maxStatusCopies = 4 << 20
)

// NewStatus knows of nothing yet. id is that of the sideband's event, for the records that
// are made.
func NewStatus(id uint64) *Status {
	return &Status{id: id, threads: make(map[int32]*task), processes: make(map[int32]*process),
		cgroups: make(map[uint64]perf.Raw), symbols: make(map[uint64]perf.Raw), programs: make(map[uint32]perf.Raw)}
}

// Add takes a record of the sideband, or a status record, which it copies; others are passed
// over. A nil Status takes none.
func (s *Status) Add(raw perf.Raw) {
	if s == nil {
		return
	}
	switch raw.Type() {
	case perf.RecordFork, perf.RecordExit, perf.RecordComm, perf.RecordNamespaces, perf.RecordMmap, perf.RecordMmap2,
		perf.RecordCgroup, perf.RecordKsymbol, perf.RecordBPFEvent:
	default:
		return
	}
	from := len(s.room)
	s.room = append(s.room, raw...)
	s.recent = append(s.recent, timed{raw.TrailerTime(), from, len(s.room)})
}

// Advance applies the records up to a time before which none comes any more.
func (s *Status) Advance(until uint64) {
	if s == nil || len(s.recent) == 0 {
		return
	}
	slices.SortStableFunc(s.recent, func(a, b timed) int { return cmp.Compare(a.time, b.time) })
	n := 0
	for n < len(s.recent) && s.recent[n].time <= until {
		r := &s.recent[n]
		s.bury(r.time)
		s.apply(s.room[r.from:r.to], r.time)
		n++
	}
	if n == 0 {
		return
	}
	// What is left moves to the front, in the order of where it lies.
	left := s.recent[n:]
	slices.SortFunc(left, func(a, b timed) int { return cmp.Compare(a.from, b.from) })
	at := 0
	for i := range left {
		r := left[i]
		size := copy(s.room[at:], s.room[r.from:r.to])
		s.recent[i] = timed{r.time, at, at + size}
		at += size
	}
	s.recent, s.room = s.recent[:len(left)], s.room[:at]
}

// Recent yields the records that Advance has not come to, for a file that begins before them.
func (s *Status) Recent(write func(perf.Raw) error) error {
	for _, r := range s.recent {
		if err := write(s.room[r.from:r.to]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Status) apply(raw perf.Raw, time uint64) {
	status := raw.Misc()&perf.MiscStatusOnly != 0
	switch raw.Type() {
	case perf.RecordFork:
		if t, ok := raw.Task(); ok {
			s.fork(&t, status)
		}
	case perf.RecordExit:
		t, ok := raw.Task()
		if th := s.threads[t.TID]; ok && th != nil && th.pid == t.PID && th.exited == 0 {
			s.exit(th, time)
		}
	case perf.RecordComm:
		if pid, tid, ok := raw.Comm(); ok {
			s.comm(raw, pid, tid, time)
		}
	case perf.RecordNamespaces:
		if n, ok := raw.Namespaces(); ok {
			s.thread(n.PID, n.TID).ns = slices.Clone(raw)
		}
	case perf.RecordMmap, perf.RecordMmap2:
		s.mmap(raw, status)
	case perf.RecordCgroup:
		if id, _, ok := raw.Cgroup(); ok {
			s.cgroups[id] = slices.Clone(raw)
		}
	case perf.RecordKsymbol:
		switch addr, gone, ok := raw.Ksymbol(); {
		case ok && gone:
			delete(s.symbols, addr)
		case ok:
			s.symbols[addr] = slices.Clone(raw)
		}
	case perf.RecordBPFEvent:
		switch kind, id, _, ok := raw.BPFEvent(); {
		case ok && kind == perf.BPFEventProgUnload:
			delete(s.programs, id)
		case ok && kind == perf.BPFEventProgLoad:
			s.programs[id] = slices.Clone(raw)
		}
	}
}

// thread is a thread, which is made if it is not known.
func (s *Status) thread(pid, tid int32) *task {
	th := s.threads[tid]
	if th != nil && th.pid == pid {
		return th
	}
	s.remove(th)
	p := s.processes[pid]
	if p == nil {
		p = &process{maps: new(mappings)}
		s.processes[pid] = p
	}
	p.threads++
	th = &task{pid: pid, tid: tid}
	s.threads[tid] = th
	return th
}

// remove forgets a thread, and its process with the last one.
func (s *Status) remove(th *task) {
	if th == nil || s.threads[th.tid] != th {
		return
	}
	delete(s.threads, th.tid)
	p := s.processes[th.pid]
	if p.threads--; p.threads == 0 {
		s.release(p.maps)
		delete(s.processes, th.pid)
	}
}

func (s *Status) fork(t *perf.Task, status bool) {
	if old := s.threads[t.TID]; old != nil && old.pid == t.PID && status {
		return
	}
	parent := s.threads[t.PTID]
	if parent == nil || parent.pid != t.PPID {
		parent = s.threads[t.PPID]
	}
	if t.PID != t.PPID && !status && s.processes[t.PID] != nil {
		// A new process; one that had its number is gone.
		for _, th := range s.threadsOf(t.PID) {
			s.remove(th)
		}
	}
	th := s.thread(t.PID, t.TID)
	th.parent, th.exited = t.PPID, 0
	if parent == nil || parent == th {
		return
	}
	th.comm, th.ns = parent.comm, parent.ns
	if t.PID != t.PPID && !status {
		p, from := s.processes[t.PID], s.processes[parent.pid]
		s.release(p.maps)
		from.maps.shared++
		p.maps = from.maps
	}
}

// threadsOf are the threads of a process.
func (s *Status) threadsOf(pid int32) (list []*task) {
	for _, th := range s.threads {
		if th.pid == pid {
			list = append(list, th)
		}
	}
	return list
}

func (s *Status) exit(th *task, time uint64) {
	th.exited = time
	s.exits = append(s.exits, exit{time, th.tid})
}

// bury forgets the threads that exited long before now.
func (s *Status) bury(now uint64) {
	n := 0
	for n < len(s.exits) && s.exits[n].time+statusGrace < now {
		if th := s.threads[s.exits[n].tid]; th != nil && th.exited == s.exits[n].time {
			s.remove(th)
		}
		n++
	}
	s.exits = slices.Delete(s.exits, 0, n)
}

func (s *Status) comm(raw perf.Raw, pid, tid int32, time uint64) {
	th := s.thread(pid, tid)
	th.comm = slices.Clone(raw)
	if raw.Misc()&perf.MiscCommExec == 0 {
		return
	}
	// A new program: nothing of the old one is mapped, and the other threads are gone. One
	// that was not the first goes on with the first one's number.
	th.exited = 0
	p := s.processes[pid]
	s.release(p.maps)
	p.maps = new(mappings)
	if p.threads > 1 {
		for _, other := range s.threadsOf(pid) {
			if other != th && other.exited == 0 {
				s.exit(other, time)
			}
		}
	}
}

func (s *Status) mmap(raw perf.Raw, status bool) {
	pid, addr, size, _, ok := raw.Mapping()
	switch {
	case !ok || size == 0 || addr+size < addr:
		return
	case pid == -1 || raw.Misc().CPUMode() == perf.MiscKernel:
		s.kernel = append(s.kernel, slices.Clone(raw))
		return
	}
	s.thread(pid, pid)
	m := s.own(s.processes[pid])
	if m == nil {
		s.Untold++
		return
	}
	one := mapping{addr, addr + size, slices.Clone(raw)}
	if status {
		m.fill(one)
	} else {
		m.list = append(m.cut(one.start, one.end), one)
		slices.SortFunc(m.list, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	}
}

// release takes a process away from its mappings.
func (s *Status) release(m *mappings) {
	if m.shared > 0 {
		m.shared--
		return
	}
	s.copied -= m.copied
	m.copied = 0
}

// own gives a process mappings that no other has, nil if there are too many such copies.
func (s *Status) own(p *process) *mappings {
	if p.maps.shared == 0 {
		return p.maps
	}
	n := len(p.maps.list)
	if s.copied+n > maxStatusCopies {
		return nil
	}
	s.copied += n
	p.maps.shared--
	p.maps = &mappings{list: slices.Clone(p.maps.list), copied: n}
	return p.maps
}

// cut returns the list without what lies between two addresses.
func (m *mappings) cut(start, end uint64) []mapping {
	first, _ := slices.BinarySearchFunc(m.list, start, func(o mapping, at uint64) int {
		return cmp.Compare(o.end, at+1)
	})
	last := first
	var rest []mapping
	for last < len(m.list) && m.list[last].start < end {
		o := m.list[last]
		if o.start < start {
			rest = append(rest, mapping{o.start, start, o.rec})
		}
		if o.end > end {
			rest = append(rest, mapping{end, o.end, o.rec})
		}
		last++
	}
	return slices.Replace(m.list, first, last, rest...)
}

// fill adds a mapping where there is none.
func (m *mappings) fill(one mapping) {
	list := m.list
	for _, o := range m.list {
		if o.end <= one.start || o.start >= one.end {
			continue
		}
		if o.start > one.start {
			list = append(slices.Clip(list), mapping{one.start, o.start, one.rec})
		}
		one.start = o.end
		if one.start >= one.end {
			break
		}
	}
	if one.start < one.end {
		list = append(slices.Clip(list), one)
	}
	slices.SortFunc(list, func(a, b mapping) int { return cmp.Compare(a.start, b.start) })
	m.list = list
}

// KeepCgroups forgets the cgroups that are not among some.
func (s *Status) KeepCgroups(there map[uint64]bool) {
	maps.DeleteFunc(s.cgroups, func(id uint64, _ perf.Raw) bool { return !there[id] })
}

// Cgroups is how many cgroups are known.
func (s *Status) Cgroups() int { return len(s.cgroups) }

// Records yields what is known, as status records of a time. They are used again.
func (s *Status) Records(time uint64, write func(perf.Raw) error) error {
	e := &statusWriter{id: s.id, time: time, write: write}
	for _, raw := range s.kernel {
		e.record(raw, -1, -1)
	}
	for _, addr := range slices.Sorted(maps.Keys(s.symbols)) {
		e.record(s.symbols[addr], 0, 0)
	}
	for _, id := range slices.Sorted(maps.Keys(s.programs)) {
		e.record(s.programs[id], 0, 0)
	}
	for _, id := range slices.Sorted(maps.Keys(s.cgroups)) {
		e.record(s.cgroups[id], 0, 0)
	}
	list := slices.SortedFunc(maps.Values(s.threads), func(a, b *task) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.order(), b.order()))
	})
	for i, th := range list {
		e.thread(th)
		if i+1 == len(list) || list[i+1].pid != th.pid {
			for _, m := range s.processes[th.pid].maps.list {
				e.mapping(&m, th.pid)
			}
		}
	}
	return e.err
}

// order puts the first thread of a process in front of the others.
func (th *task) order() int64 {
	if th.tid == th.pid {
		return -1
	}
	return int64(th.tid)
}

// statusWriter writes status records.
type statusWriter struct {
	id    uint64
	time  uint64
	write func(perf.Raw) error
	room  perf.Raw
	err   error
}

// prepare copies a record, to be changed.
func (e *statusWriter) prepare(raw perf.Raw, pid, tid int32) perf.Raw {
	e.room = append(e.room[:0], raw...)
	e.room.SetMisc(e.room.Misc() | perf.MiscStatusOnly)
	e.room.SetTrailer(pid, tid, e.time)
	return e.room
}

func (e *statusWriter) send(raw perf.Raw) {
	if e.err == nil {
		e.err = e.write(raw)
	}
}

func (e *statusWriter) record(raw perf.Raw, pid, tid int32) { e.send(e.prepare(raw, pid, tid)) }

func (e *statusWriter) mapping(m *mapping, pid int32) {
	raw := e.prepare(m.rec, pid, pid)
	_, addr, _, pgoff, _ := raw.Mapping() // it was looked at when it came
	raw.SetThread(pid, pid)
	raw.SetMapping(m.start, m.end-m.start, pgoff+m.start-addr)
	e.send(raw)
}

// thread writes FORK, NAMESPACES and COMM.
func (e *statusWriter) thread(th *task) {
	rec := &perf.Fork{Task: perf.Task{PID: th.pid, TID: th.tid, PPID: th.parent, PTID: th.parent, Time: e.time}}
	if th.tid != th.pid {
		rec.PPID, rec.PTID = th.pid, th.pid
	}
	// The bit keeps readers from inheriting the parent's mappings.
	rec.Misc = perf.MiscForkExec | perf.MiscStatusOnly
	rec.SampleID = perf.SampleIDInfo{PID: th.pid, TID: th.tid, Time: e.time, ID: e.id}
	raw, err := perf.Append(e.room[:0], rec, perf.NativeOrder, rawLayout)
	if e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return
	}
	e.room = raw
	e.send(raw)
	for _, one := range []perf.Raw{th.ns, th.comm} {
		if one == nil {
			continue
		}
		raw := e.prepare(one, th.pid, th.tid)
		raw.SetThread(th.pid, th.tid)
		if raw.Type() == perf.RecordComm {
			raw.SetMisc(perf.MiscStatusOnly) // no program is executed
		}
		e.send(raw)
	}
}

// rawLayout is an event whose records have a sample_id of perf.RawTrailerSize.
var rawLayout = perf.NewEvent(perf.Attr{SampleType: perf.RawSampleType, Flags: perf.AttrSampleIDAll}, "", 0)
