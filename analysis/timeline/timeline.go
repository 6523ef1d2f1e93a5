// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/perf"
)

// Grace is how long an exited task is remembered, in nanoseconds.
const Grace = 1_000_000_000

// Process is a thread group.
type Process struct {
	PID int32
	// Namespaces are those of the process's first thread, which mappings go
	// by, indexed by perf.NSNet and so on; nil if not known.
	Namespaces []perf.NSLink
	// Serial changes when Namespaces do, or what threads have for theirs.
	Serial uint32

	first   []perf.NSLink // what was told first: of threads that have no own
	forked  uint64        // when, 0 if that was before the recording
	image   uint32        // which program it runs: another one after an exec
	lives   [kinds]*Life
	in      [kinds]uint64 // what lives are of
	counted bool          // among the processes of lives
	maps    *Maps
	threads int     // alive or in their Grace
	alive   *Thread // the last of those that have not exited
	gone    bool    // its pid belongs to nobody, or to another process
}

// Maps are the mappings of the process now. They are valid until the next
// record is applied.
func (p *Process) Maps() *Maps { return p.maps }

// Namespace is the inode number of the process's namespace with the index
// ns, 0 if not known.
func (p *Process) Namespace(ns int) uint64 {
	if ns < len(p.Namespaces) {
		return p.Namespaces[ns].Ino
	}
	return 0
}

// Thread is one task.
type Thread struct {
	TID     int32
	Process *Process
	// Comm is the name of the task; ":TID" if no record has it.
	Comm string
	// Serial changes when Comm, Process or namespaces do, and is never used
	// twice.
	Serial uint32

	own    []perf.NSLink // nil: those of the process
	named  bool          // Comm was told, of it or of who made it
	exited bool
	// before and after are its neighbours among those of its process that have not
	// exited.
	before, after *Thread
	// exitTime is when it exited last.
	exitTime uint64
}

// Namespaces are those that the thread is in now, indexed by perf.NSNet and so
// on; nil if not known. A thread may be in others than its process's first.
func (th *Thread) Namespaces() []perf.NSLink {
	if th.own != nil {
		return th.own
	}
	return th.Process.first
}

// Timeline is the state of a machine at one moment of a recording. It is not
// safe for use by several goroutines.
type Timeline struct {
	// Kernel holds the kernel's image and its modules.
	Kernel Maps
	// Ksyms are the symbols that the kernel added while it ran: BPF
	// programs and trampolines.
	Ksyms symbol.KernelSyms
	// Uncopied counts processes that did not get their parent's mappings,
	// because the recording has too many.
	Uncopied int

	processes map[int32]*Process
	threads   map[int32]*Thread
	recent    [256]*Thread        // by the low bits of tid; all are in threads
	lives     map[namespace]*Life // the last of each
	files     map[File]*File
	apart     map[string]bool // build-ids that several files have
	hostMnt   uint64          // the host's mount namespace, 0 if not known
	byIndex   []*File
	cgroups   map[uint64]string
	now       uint64 // the time of the record
	copied    int    // mappings in copies that are alive
	exits     []exit // in the order of time
	mapsID    uint32
	serial    uint32
	ksymID    uint32
	parts     map[int32][]uint64 // of BPF programs whose BPF_EVENT is to come, by task
}

type exit struct {
	time   uint64
	thread *Thread
}

// New makes an empty timeline.
func New() *Timeline {
	t := &Timeline{
		processes: make(map[int32]*Process),
		threads:   make(map[int32]*Thread),
		files:     make(map[File]*File),
		lives:     make(map[namespace]*Life),
		cgroups:   make(map[uint64]string),
	}
	idle := t.thread(0, 0)
	idle.Comm, idle.named = "swapper", true
	return t
}

// Thread is the task tid of process pid; one that no record announced is made.
func (t *Timeline) Thread(pid, tid int32) *Thread {
	slot := &t.recent[uint8(tid)]
	if th := *slot; th != nil && th.TID == tid && th.Process.PID == pid && !th.Process.gone {
		return th
	}
	*slot = t.find(pid, tid)
	return *slot
}

func (t *Timeline) find(pid, tid int32) *Thread {
	if th := t.threads[tid]; th != nil && th.Process.PID == pid && !th.Process.gone {
		return th
	}
	return t.thread(pid, tid)
}

// thread makes the task, in place of one that had its tid.
func (t *Timeline) thread(pid, tid int32) *Thread {
	t.remove(t.threads[tid])
	p := t.processes[pid]
	if p == nil {
		p = &Process{PID: pid, maps: t.newMaps(), image: t.nextSerial()}
		t.processes[pid] = p
	}
	p.threads++
	th := &Thread{TID: tid, Process: p, Serial: t.nextSerial(), Comm: unnamed(tid)}
	t.threads[tid] = th
	p.enter(th)
	return th
}

// enter adds a thread to those that have not exited.
func (p *Process) enter(th *Thread) {
	if th.before = p.alive; th.before != nil {
		th.before.after = th
	}
	p.alive = th
	p.enterLives()
}

// leave is for one that has exited.
func (p *Process) leave(th *Thread) {
	if th.after != nil {
		th.after.before = th.before
	} else if p.alive == th {
		p.alive = th.before
	}
	if th.before != nil {
		th.before.after = th.after
	}
	th.before, th.after = nil, nil
	if p.alive == nil {
		p.leaveLives()
	}
}

func unnamed(tid int32) string { return fmt.Sprintf(":%d", tid) }

func (t *Timeline) nextSerial() uint32 {
	t.serial++
	return t.serial
}

func (t *Timeline) newMaps() *Maps {
	t.mapsID++
	return &Maps{id: t.mapsID}
}

// Process is the process with that pid as far as it is known, nil if it is not.
func (t *Timeline) Process(pid int32) *Process { return t.processes[pid] }

// Cgroup is the path of the cgroup with that id, if a record has it.
func (t *Timeline) Cgroup(id uint64) (string, bool) {
	path, ok := t.cgroups[id]
	return path, ok
}

// Files are all files that were mapped so far, by Index. The slice is the
// timeline's own.
func (t *Timeline) Files() []*File { return t.byIndex }

// KernelID changes when an address may have got another kernel symbol.
func (t *Timeline) KernelID() uint32 { return t.ksymID }

// Apply takes the next record, which happened at the given time (0 if it has
// none). Records that tell nothing about tasks or symbols are ignored.
func (t *Timeline) Apply(rec perf.Record, time uint64) {
	t.bury(time)
	t.now = time
	status := perf.MiscOf(rec)&perf.MiscStatusOnly != 0
	switch r := rec.(type) {
	case *perf.Fork:
		t.fork(r, status, time)
	case *perf.Exit:
		t.exit(r, time)
	case *perf.Comm:
		t.comm(r, time)
	case *perf.Mmap:
		t.mmap(r)
	case *perf.Mmap2:
		t.mmap2(r)
	case *perf.Namespaces:
		t.namespaces(r, status)
	case *perf.Cgroup:
		t.cgroups[r.ID] = r.Path
	case *perf.Ksymbol:
		t.ksymbol(r)
	case *perf.BPFEvent:
		t.bpfEvent(r)
	}
}

// namespaces takes those of a thread for the process's if it is the first one:
// mappings are looked up by process.
func (t *Timeline) namespaces(r *perf.Namespaces, status bool) {
	th := t.Thread(r.PID, r.TID)
	p := th.Process
	if r.PID == r.TID || p.first == nil {
		t.live(p, r.Links, status)
	}
	if p.first == nil {
		p.first = r.Links
		p.Serial = t.nextSerial()
	}
	if (r.PID == r.TID || p.Namespaces == nil) && !isDescribed(p.Namespaces, r.Links) {
		p.Namespaces = r.Links
		p.Serial = t.nextSerial()
	}
	if !isDescribed(th.Namespaces(), r.Links) {
		th.own = r.Links
		th.Serial = t.nextSerial()
	}
}

// isDescribed reports whether what is known says the same as a record does. The
// device is left out: all namespaces are on one.
func isDescribed(known, links []perf.NSLink) bool {
	return known != nil && len(known) >= len(links) &&
		slices.EqualFunc(known[:len(links)], links, func(a, b perf.NSLink) bool { return a.Ino == b.Ino })
}

func (t *Timeline) fork(r *perf.Fork, status bool, time uint64) {
	if old := t.threads[r.TID]; old != nil && old.Process.PID == r.PID && status {
		return
	}
	parent := t.threads[r.PTID]
	if parent == nil || parent.Process.PID != r.PPID {
		parent = t.threads[r.PPID]
	}
	if r.PID != r.PPID && !status {
		// A new process; one that had its pid is gone.
		t.forget(t.processes[r.PID])
	}
	th := t.thread(r.PID, r.TID)
	if parent == nil || parent == th {
		return
	}
	if parent.named {
		th.Comm, th.named = parent.Comm, true
	}
	if th.Process == parent.Process {
		th.own = parent.own
	}
	if r.PID != r.PPID && r.Misc&perf.MiscForkExec == 0 && !status {
		t.share(th.Process, parent.Process)
		ns := parent.Namespaces()
		th.Process.Namespaces, th.Process.first, th.Process.Serial = ns, ns, t.nextSerial()
		th.Process.inheritLives(parent.Process, time)
	}
}

// share gives child the mappings of parent.
func (t *Timeline) share(child, parent *Process) {
	if child == parent {
		return
	}
	t.release(child.maps)
	parent.maps.shared++
	child.maps = parent.maps
}

// release takes one process away from its mappings.
func (t *Timeline) release(m *Maps) {
	if m.shared > 0 {
		m.shared--
		return
	}
	t.copied -= m.copied
	m.copied = 0
}

// own gives p mappings that only p has.
//
// Copies are bounded: a process with many mappings, and many children that each
// change one, would fill any memory. Beyond the bound a child starts empty.
func (t *Timeline) own(p *Process) *Maps {
	if p.maps.shared > 0 {
		p.maps.shared--
		list := p.maps.list
		p.maps = t.newMaps()
		if t.copied += len(list); t.copied <= maxCopied {
			p.maps.list = slices.Clone(list)
			p.maps.copied = len(list)
		} else {
			t.copied -= len(list)
			t.Uncopied++
		}
	}
	return p.maps
}

// maxCopied bounds the copied mappings that are alive, to about 512 MiB.
const maxCopied = 16 << 20

func (t *Timeline) exit(r *perf.Exit, time uint64) {
	if th := t.threads[r.TID]; th != nil && !th.exited && th.Process.PID == r.PID {
		t.ended(th, time)
	}
}

func (t *Timeline) ended(th *Thread, time uint64) {
	th.Process.leave(th)
	th.exited, th.exitTime = true, time
	t.exits = append(t.exits, exit{time, th})
}

// bury removes the tasks whose Grace is over at the given time.
func (t *Timeline) bury(now uint64) {
	n := 0
	for n < len(t.exits) && t.exits[n].time+Grace < now {
		if th := t.exits[n].thread; th.exited && th.exitTime == t.exits[n].time {
			t.remove(th)
		}
		n++
	}
	if n > 0 {
		t.exits = slices.Delete(t.exits, 0, n)
	}
}

// remove takes a thread away, and its process with the last one.
func (t *Timeline) remove(th *Thread) {
	if th == nil || t.threads[th.TID] != th {
		return
	}
	delete(t.threads, th.TID)
	t.recent[uint8(th.TID)] = nil
	p := th.Process
	p.leave(th)
	if p.threads--; p.threads == 0 && t.processes[p.PID] == p {
		t.forget(p)
	}
}

// forget takes a process away. Threads of it that are left keep it to
// themselves.
func (t *Timeline) forget(p *Process) {
	if p == nil {
		return
	}
	t.release(p.maps)
	p.leaveLives()
	p.gone = true
	delete(t.processes, p.PID)
	if th := t.threads[p.PID]; th != nil && th.Process == p {
		delete(t.threads, p.PID)
		t.recent[uint8(p.PID)] = nil
	}
}

func (t *Timeline) comm(r *perf.Comm, time uint64) {
	th := t.Thread(r.PID, r.TID)
	th.named = true
	if th.Comm != r.Comm {
		th.Comm = r.Comm
		th.Serial = t.nextSerial()
	}
	if r.Misc&perf.MiscCommExec != 0 {
		// A new program: nothing of the old one is mapped any more.
		t.release(th.Process.maps)
		th.Process.maps = t.newMaps()
		th.Process.image = t.nextSerial()
		// If the task had exited, that was the first thread of its process: this is
		// another one, which goes on with its number (de_thread in fs/exec.c).
		if th.exited {
			th.exited = false
			th.Process.enter(th)
		}
		t.alone(th, time)
	}
}

// alone: what executes a program is alone in its process. If it was not the first
// thread, the number that it had is free again, without an EXIT record.
func (t *Timeline) alone(th *Thread, time uint64) {
	for other := th.Process.alive; other != nil; {
		next := other.before
		if other != th {
			t.ended(other, time)
		}
		other = next
	}
}

func (t *Timeline) mmap(r *perf.Mmap) {
	if r.Misc&perf.MiscMmapData != 0 {
		return
	}
	f := File{Path: mapName(r.Filename, r.PID, r.Addr)}
	m := Mapping{Start: r.Addr, End: r.Addr + r.Len, PgOff: r.PgOff}
	if perf.HoldsCode(r.Filename) {
		m.PgOff = m.Start // what is generated is known by its address
	}
	t.mapped(r.PID, r.TID, r.Misc, f, m)
}

// protExec is PROT_EXEC of sys/mman.h.
const protExec = 4

func (t *Timeline) mmap2(r *perf.Mmap2) {
	if r.Misc&perf.MiscMmapData != 0 && r.Prot&protExec == 0 {
		return
	}
	f := fileOf(r)
	m := Mapping{Start: r.Addr, End: r.Addr + r.Len, PgOff: r.PgOff}
	if perf.HoldsCode(r.Filename) {
		m.PgOff = m.Start
	}
	t.mapped(r.PID, r.TID, r.Misc, f, m)
}

// mapName is the name of a mapping. The symbols of generated code are in the
// file that perf defined for it. A vdso below 4 GiB is another than the one that
// 64-bit programs have.
func mapName(name string, pid int32, start uint64) string {
	switch {
	case perf.HoldsCode(name):
		return fmt.Sprintf("/tmp/perf-%d.map", pid)
	case name == "[vdso]" && start < 1<<32:
		return "[vdso32]"
	}
	return name
}

// IsPerfMap reports whether the path of a mapping is that of a perf map, which
// stands for memory with generated code.
func IsPerfMap(name string) bool {
	return strings.HasPrefix(name, "/tmp/perf-") && strings.HasSuffix(name, ".map")
}

func (t *Timeline) mapped(pid, tid int32, misc perf.Misc, f File, m Mapping) {
	if m.End <= m.Start {
		return
	}
	if pid == -1 || misc.CPUMode() == perf.MiscKernel {
		f.Kernel = true
		m.File = t.file(f, nil)
		t.Kernel.insert(m)
		t.ksymID++
		return
	}
	p := t.Thread(pid, tid).Process
	f.First, f.Status = t.now, misc&perf.MiscStatusOnly != 0
	m.File = t.file(f, p)
	maps := t.own(p)
	if misc&perf.MiscStatusOnly != 0 {
		maps.insertMissing(m)
		return
	}
	if maps.insert(m) {
		t.mapsID++
		maps.id = t.mapsID
	}
}

// ApartByNamespace makes files with this build-id different files in different
// mount namespaces: several have it. It counts for mappings to come.
func (t *Timeline) ApartByNamespace(id []byte) {
	if len(id) == 0 {
		return
	}
	if t.apart == nil {
		t.apart = make(map[string]bool)
	}
	t.apart[string(id)] = true
}

// SetHost says which mount namespace is the host's. From then on files with a
// build-id are files of their own in each other one: a build-id is what a container
// says, and must not answer for the host, nor for another container.
func (t *Timeline) SetHost(mnt uint64) { t.hostMnt = mnt }

// isForeign reports whether a process is in a mount namespace other than the host's.
func (t *Timeline) isForeign(p *Process) bool {
	mnt := p.Namespace(perf.NSMnt)
	return t.hostMnt != 0 && mnt != 0 && mnt != t.hostMnt
}

// Known is the File that a mapping of p shows, by the record of it, MMAP or MMAP2,
// also if it is one of data; nil if there was no mapping of code of it. p may be
// of another timeline of the same recording.
func (t *Timeline) Known(rec perf.Record, p *Process) *File {
	switch r := rec.(type) {
	case *perf.Mmap:
		return t.files[t.fileKey(File{Path: mapName(r.Filename, r.PID, r.Addr)}, p)]
	case *perf.Mmap2:
		return t.files[t.fileKey(fileOf(r), p)]
	}
	return nil
}

// fileOf is the file of a record.
func fileOf(r *perf.Mmap2) File {
	return File{Path: mapName(r.Filename, r.PID, r.Addr), BuildID: string(r.BuildID), Maj: r.Maj, Min: r.Min,
		Ino: r.Ino, InoGen: r.InoGen}
}

// fileKey is what tells f, which p maps, from other files.
func (t *Timeline) fileKey(f File, p *Process) File {
	f.First, f.Status = 0, false
	if p != nil && IsPerfMap(f.Path) {
		f.InoGen = uint64(p.image) // the number, and the file, may be another process's later
	}
	if f.BuildID != "" {
		f.Maj, f.Min, f.Ino, f.InoGen = 0, 0, 0, 0
	}
	if p != nil && (f.BuildID == "" || t.apart[f.BuildID] || t.isForeign(p)) {
		// Without a content id a path means nothing outside its mount
		// namespace.
		f.MountNS = p.Namespace(perf.NSMnt)
	}
	return f
}

// file is the one File that equals f, which p maps.
func (t *Timeline) file(f File, p *Process) *File {
	key := t.fileKey(f, p)
	if known := t.files[key]; known != nil {
		return known
	}
	known := &f
	known.Index = len(t.byIndex)
	if p != nil {
		known.PID, known.MountNS = p.PID, p.Namespace(perf.NSMnt)
	}
	t.files[key] = known
	t.byIndex = append(t.byIndex, known)
	return known
}
