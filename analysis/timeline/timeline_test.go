// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// log applies records one nanosecond apart, starting at 1.
type log struct {
	*Timeline
	now uint64
}

func newLog() *log { return &log{Timeline: New()} }

func (l *log) do(recs ...perf.Record) {
	for _, r := range recs {
		l.now++
		l.Apply(r, l.now)
	}
}

func misc(m perf.Misc) perf.Trailer { return perf.Trailer{RecordMisc: perf.RecordMisc{Misc: m}} }

func fork(pid, ppid, tid, ptid int32) *perf.Fork {
	return &perf.Fork{Task: perf.Task{PID: pid, PPID: ppid, TID: tid, PTID: ptid}}
}

func exitOf(pid, tid int32) *perf.Exit { return &perf.Exit{Task: perf.Task{PID: pid, TID: tid}} }

func mmap(pid int32, addr, size uint64, path string) *perf.Mmap2 {
	return &perf.Mmap2{PID: pid, TID: pid, Addr: addr, Len: size, Prot: protExec, Filename: path, Ino: 1}
}

func comm(pid, tid int32, name string) *perf.Comm { return &perf.Comm{PID: pid, TID: tid, Comm: name} }

func exec(pid int32, name string) *perf.Comm {
	return &perf.Comm{Trailer: misc(perf.MiscCommExec), PID: pid, TID: pid, Comm: name}
}

// at is the path mapped at addr of pid, "" for nothing.
func (l *log) at(pid int32, addr uint64) string {
	if m := l.Thread(pid, pid).Process.Maps().Find(addr); m != nil {
		return m.File.Path
	}
	return ""
}

func (l *log) want(t *testing.T, pid int32, addr uint64, path string) {
	t.Helper()
	if got := l.at(pid, addr); got != path {
		t.Errorf("pid %d at %#x: %q, want %q", pid, addr, got, path)
	}
}

func TestForkInherits(t *testing.T) {
	l := newLog()
	l.do(comm(1, 1, "sh"), mmap(1, 0x1000, 0x1000, "/bin/sh"))
	l.do(&perf.Namespaces{PID: 1, TID: 1, Links: make([]perf.NSLink, 7)})
	l.do(fork(2, 1, 2, 1))
	if th := l.Thread(2, 2); th.Comm != "sh" || len(th.Process.Namespaces) != 7 {
		t.Errorf("child is %+v", th)
	}
	l.want(t, 2, 0x1800, "/bin/sh")

	// What either does afterwards is its own.
	l.do(mmap(2, 0x5000, 0x1000, "/lib/child"), mmap(1, 0x5000, 0x1000, "/lib/parent"))
	l.want(t, 2, 0x5000, "/lib/child")
	l.want(t, 1, 0x5000, "/lib/parent")
	if l.Thread(1, 1).Process.Maps().ID() == l.Thread(2, 2).Process.Maps().ID() {
		t.Error("different mappings, one id")
	}
}

// TestForkOfANamelessTask: the child is not called after its parent's number.
func TestForkOfANamelessTask(t *testing.T) {
	l := newLog()
	l.do(mmap(1, 0x1000, 0x1000, "/a"), fork(2, 1, 2, 1), fork(3, 2, 3, 2))
	if got := l.Thread(3, 3).Comm; got != ":3" {
		t.Errorf("called %q, want :3", got)
	}
	l.do(comm(3, 3, "c"), fork(4, 3, 4, 3))
	if got := l.Thread(4, 4).Comm; got != "c" {
		t.Errorf("called %q, want c", got)
	}
}

func TestThreadsShareTheirProcess(t *testing.T) {
	l := newLog()
	l.do(comm(1, 1, "app"), fork(1, 1, 5, 1), comm(1, 5, "worker"), mmap(1, 0x1000, 0x1000, "/app"))
	th := l.Thread(1, 5)
	if th.Comm != "worker" || th.Process != l.Thread(1, 1).Process {
		t.Errorf("thread is %+v", th)
	}
	if l.Thread(1, 1).Comm != "app" {
		t.Error("the leader has the name of its thread")
	}
}

func TestExecStartsAnew(t *testing.T) {
	l := newLog()
	l.do(mmap(1, 0x1000, 0x1000, "/bin/sh"), fork(2, 1, 2, 1))
	before := l.Thread(2, 2).Process.Maps().ID()
	l.do(exec(2, "ls"))
	l.want(t, 2, 0x1000, "")
	l.want(t, 1, 0x1000, "/bin/sh")
	l.do(mmap(2, 0x2000, 0x1000, "/bin/ls"))
	l.want(t, 2, 0x2000, "/bin/ls")
	if l.Thread(2, 2).Process.Maps().ID() == before {
		t.Error("id unchanged by exec")
	}
	// A plain new name changes no mapping.
	l.do(comm(2, 2, "renamed"))
	l.want(t, 2, 0x2000, "/bin/ls")
}

func TestSerialFollowsWhatALabelShows(t *testing.T) {
	l := newLog()
	seen := map[uint32]bool{}
	note := func(what string) {
		t.Helper()
		s := l.Thread(1, 1).Serial
		if seen[s] {
			t.Errorf("%s: serial %d again", what, s)
		}
		seen[s] = true
	}
	note("new")
	l.do(comm(1, 1, "a"))
	note("comm")
	before := l.Thread(1, 1).Process.Serial
	l.do(&perf.Namespaces{PID: 1, TID: 1, Links: []perf.NSLink{{Dev: 1, Ino: 2}}})
	if l.Thread(1, 1).Process.Serial == before {
		t.Error("the process's serial is unchanged by namespaces")
	}
	l.do(fork(1, 9, 1, 9))
	note("reused pid")
	s := l.Thread(1, 1).Serial
	l.do(mmap(1, 0x1000, 0x1000, "/x"))
	if l.Thread(1, 1).Serial != s {
		t.Error("serial changed by a mapping")
	}
}

// TestNamespacesAreTheLeaders: a thread may be in others; the process is where
// its first thread is.
func TestNamespacesAreTheLeaders(t *testing.T) {
	l := newLog()
	ns := func(tid int32, ino uint64) *perf.Namespaces {
		links := make([]perf.NSLink, perf.NSMnt+1)
		links[perf.NSMnt].Ino = ino
		return &perf.Namespaces{PID: 1, TID: tid, Links: links}
	}
	mnt := func() uint64 { return l.Thread(1, 1).Process.Namespace(perf.NSMnt) }
	l.do(fork(1, 1, 5, 1), ns(5, 222))
	if mnt() != 222 {
		t.Errorf("%d: a thread is better than nothing", mnt())
	}
	l.do(ns(1, 111), ns(5, 222))
	if mnt() != 111 {
		t.Errorf("mount namespace %d", mnt())
	}
}

func TestMapsIDKeepsWhatWasFound(t *testing.T) {
	l := newLog()
	l.do(mmap(1, 0x1000, 0x1000, "/a"))
	id := l.Thread(1, 1).Process.Maps().ID()
	l.do(mmap(1, 0x5000, 0x1000, "/b"))
	if l.Thread(1, 1).Process.Maps().ID() != id {
		t.Error("id changed by a mapping where nothing was")
	}
	l.do(mmap(1, 0x1000, 0x1000, "/c"))
	if l.Thread(1, 1).Process.Maps().ID() == id {
		t.Error("id unchanged by a mapping over another")
	}
}

func TestPidReuse(t *testing.T) {
	l := newLog()
	l.do(fork(7, 1, 7, 1), comm(7, 7, "old"), mmap(7, 0x1000, 0x1000, "/old"), fork(7, 7, 8, 7))
	// EXIT was lost; the pid comes again.
	l.do(mmap(1, 0x9000, 0x1000, "/init"), fork(7, 1, 7, 1))
	l.want(t, 7, 0x1000, "")
	l.want(t, 7, 0x9000, "/init")
	if th := l.Thread(7, 8); th.Process != l.Thread(7, 7).Process {
		t.Error("a thread of the old process lives on in it")
	}
}

func TestExitHasGrace(t *testing.T) {
	l := newLog()
	l.do(fork(2, 1, 2, 1), comm(2, 2, "short"), mmap(2, 0x1000, 0x1000, "/short"), exitOf(2, 2))
	l.want(t, 2, 0x1000, "/short")
	l.now += Grace + 1
	l.do(comm(1, 1, "later"))
	l.want(t, 2, 0x1000, "")
	if got := l.Thread(2, 2).Comm; got != ":2" {
		t.Errorf("name of the dead: %q", got)
	}
	if n := len(l.exits); n != 0 {
		t.Errorf("%d exits remembered", n)
	}
}

// A thread that executes a program goes on with the number of the first one, and
// its own ends without an EXIT.
func TestNumberOfAThreadThatExecuted(t *testing.T) {
	l := newLog()
	l.do(comm(1, 1, "old"), fork(1, 1, 2, 1), fork(1, 1, 3, 1), fork(1, 1, 4, 1), exitOf(1, 3), exitOf(1, 1), exec(1, "new"), mmap(1, 0x1000, 0x1000, "/new"))
	if l.threads[4] == nil {
		t.Error("no Grace for what comes late")
	}
	l.now += Grace + 1
	l.do(comm(9, 9, "other"))
	for _, tid := range []int32{2, 3, 4} {
		if l.threads[tid] != nil {
			t.Errorf("%d is remembered", tid)
		}
	}
	if p := l.Process(1); p == nil || p.threads != 1 || p.alive != l.threads[1] || p.alive.before != nil {
		t.Errorf("the process is %+v", p)
	}
	l.want(t, 1, 0x1000, "/new")
	// It ends as others do.
	l.do(exitOf(1, 1))
	l.now += Grace + 1
	l.do(comm(9, 9, "other"))
	if l.Process(1) != nil {
		t.Error("the process is remembered after its end")
	}
}

// TestExitGraceOfAReusedPid: the end of the old one's Grace must not take the
// new one away.
func TestExitGraceOfAReusedPid(t *testing.T) {
	l := newLog()
	l.do(fork(2, 1, 2, 1), exitOf(2, 2), fork(2, 1, 2, 1), comm(2, 2, "new"))
	l.now += Grace + 1
	l.do(comm(1, 1, "later"))
	if got := l.Thread(2, 2).Comm; got != "new" {
		t.Errorf("pid 2 is %q", got)
	}
}

// TestExecByAThread: another thread than the first executes a program and goes on
// with the number of the first, whose end the kernel has told.
func TestExecByAThread(t *testing.T) {
	l := newLog()
	l.do(fork(2, 1, 2, 1), comm(2, 2, "shim"), fork(2, 2, 3, 2), exitOf(2, 2), exec(2, "server"), mmap(2, 0x1000, 0x1000, "/server"))
	l.now += Grace + 1
	l.do(comm(1, 1, "later"))
	if th := l.Thread(2, 2); th.Comm != "server" {
		t.Errorf("the task that goes on is called %q", th.Comm)
	}
	l.want(t, 2, 0x1000, "/server")
	if n := len(l.exits); n != 0 {
		t.Errorf("%d exits remembered", n)
	}
	// Its own end has a Grace of its own.
	l.do(exitOf(2, 2), comm(1, 1, "much later"))
	l.want(t, 2, 0x1000, "/server")
	l.now += Grace + 1
	l.do(comm(1, 1, "at last"))
	if got := l.Thread(2, 2).Comm; got != ":2" {
		t.Errorf("name of the dead: %q", got)
	}
}

func TestStatusRecordsTakeNothingAway(t *testing.T) {
	l := newLog()
	status := misc(perf.MiscStatusOnly)
	l.do(fork(2, 1, 2, 1), exec(2, "now"), mmap(2, 0x1000, 0x1000, "/now"))
	stale := mmap(2, 0x0800, 0x2000, "/stale")
	stale.Trailer = status
	f := fork(2, 1, 2, 1)
	f.Trailer = status
	l.do(f, stale)
	l.want(t, 2, 0x0800, "/stale")
	l.want(t, 2, 0x1000, "/now")
	l.want(t, 2, 0x2000, "/stale")
	if got := l.Thread(2, 2).Comm; got != "now" {
		t.Errorf("name %q", got)
	}
}

func TestStatusForkOfAnUnknownTask(t *testing.T) {
	l := newLog()
	f := fork(5, 1, 6, 1)
	f.Trailer = misc(perf.MiscStatusOnly)
	l.do(f, comm(5, 6, "pool"))
	if th := l.Thread(5, 6); th.Comm != "pool" || th.Process.PID != 5 {
		t.Errorf("%+v", th)
	}
}

func TestFilesAreContents(t *testing.T) {
	l := newLog()
	withID := func(pid int32, addr uint64, id string) *perf.Mmap2 {
		m := mmap(pid, addr, 0x1000, "/app/server")
		m.Misc |= perf.MiscMmapBuildID
		m.BuildID = []byte(id)
		return m
	}
	l.do(withID(1, 0x1000, "aaaa"), withID(2, 0x1000, "bbbb"), withID(3, 0x1000, "aaaa"))
	file := func(pid int32) *File { return l.Thread(pid, pid).Process.Maps().Find(0x1000).File }
	if file(1) == file(2) || file(1) != file(3) {
		t.Error("files are not told apart by their build-id")
	}
	// Without an id, the same path in another mount namespace is another file.
	ns := func(pid int32, ino uint64) *perf.Namespaces {
		links := make([]perf.NSLink, perf.NSMnt+1)
		links[perf.NSMnt].Ino = ino
		return &perf.Namespaces{PID: pid, TID: pid, Links: links}
	}
	l.do(ns(4, 100), ns(5, 200), mmap(4, 0x1000, 0x1000, "/app/server"), mmap(5, 0x1000, 0x1000, "/app/server"))
	if file(4) == file(5) || file(4).MountNS != 100 || file(5).PID != 5 {
		t.Errorf("%+v and %+v", file(4), file(5))
	}
	for i, f := range l.Files() {
		if f.Index != i {
			t.Errorf("file %d has index %d", i, f.Index)
		}
	}
}

func TestDataMappingsAreIgnored(t *testing.T) {
	l := newLog()
	m := mmap(1, 0x1000, 0x1000, "/data")
	m.Misc, m.Prot = perf.MiscMmapData, 1
	l.do(m, &perf.Mmap{Trailer: misc(perf.MiscMmapData), PID: 1, TID: 1, Addr: 0x1000, Len: 0x1000, Filename: "/data"})
	l.want(t, 1, 0x1000, "")
}

func TestHostileRanges(t *testing.T) {
	l := newLog()
	l.do(mmap(1, ^uint64(0)-10, 0x1000, "/wraps"), mmap(1, 0x1000, 0, "/empty"))
	l.want(t, 1, ^uint64(0)-5, "")
	l.want(t, 1, 0x1000, "")
}

func TestGeneratedCode(t *testing.T) {
	l := newLog()
	l.do(mmap(77, 0x1000, 0x1000, "//anon"))
	l.want(t, 77, 0x1000, "/tmp/perf-77.map")
}

// TestVDSOs tells the vdso of 32-bit programs from that of others.
func TestVDSOs(t *testing.T) {
	l := newLog()
	l.do(mmap(77, 0xf7f00000, 0x1000, "[vdso]"), mmap(78, 0x7fff00000000, 0x1000, "[vdso]"))
	l.want(t, 77, 0xf7f00000, "[vdso32]")
	l.want(t, 78, 0x7fff00000000, "[vdso]")
}

func TestKernelSymbols(t *testing.T) {
	l := newLog()
	id := l.KernelID()
	l.do(&perf.Ksymbol{Addr: 0xffff0000, Len: 64, KsymType: perf.KsymbolBPF, Name: "bpf_prog_1_f"})
	if s, ok := l.Ksyms.Lookup(0xffff0010); !ok || s.Name != "bpf_prog_1_f" || l.KernelID() == id {
		t.Errorf("%+v %v, id %d", s, ok, l.KernelID())
	}
	id = l.KernelID()
	l.do(&perf.Ksymbol{Addr: 0xffff0000, Len: 64, Flags: perf.KsymbolUnregister, Name: "bpf_prog_1_f"})
	if s, ok := l.Ksyms.Lookup(0xffff0010); ok || l.KernelID() == id {
		t.Errorf("%+v after unload", s)
	}
	l.do(&perf.Mmap{Trailer: misc(perf.MiscKernel), PID: -1, Addr: 0xffff800000000000, Len: 1 << 20, Filename: "[kernel.kallsyms]_text"})
	if m := l.Kernel.Find(0xffff800000000001); m == nil || !m.File.Kernel {
		t.Errorf("kernel mapping %+v", m)
	}
}

func TestCgroups(t *testing.T) {
	l := newLog()
	l.do(&perf.Cgroup{ID: 3, Path: "/a"})
	if p, ok := l.Cgroup(3); p != "/a" || !ok {
		t.Errorf("%q %v", p, ok)
	}
	if _, ok := l.Cgroup(4); ok {
		t.Error("unknown cgroup has a path")
	}
}

func TestSwapper(t *testing.T) {
	if got := New().Thread(0, 0).Comm; got != "swapper" {
		t.Errorf("pid 0 is %q", got)
	}
}

// Copies of mappings that are alive are bounded: beyond that a child begins
// without those of its parent, and is counted.
func TestCopiedMappingsAreBounded(t *testing.T) {
	l := newLog()
	l.do(mmap(1, 0x1000, 0x1000, "/a"), mmap(1, 0x3000, 0x1000, "/b"), mmap(1, 0x5000, 0x1000, "/c"))
	const mine = 0x9000
	child := func(pid int32) {
		l.do(fork(pid, 1, pid, 1), mmap(pid, mine, 0x1000, "/child"))
	}
	l.copied = maxCopied - 4 // others have as many
	child(2)
	l.want(t, 2, 0x1000, "/a")
	child(3)
	l.want(t, 3, 0x1000, "")
	l.want(t, 3, mine, "/child")
	l.want(t, 1, 0x1000, "/a")
	if l.Uncopied != 1 || l.copied != maxCopied-1 {
		t.Errorf("%d were not copied, %d were, want 1 and %d", l.Uncopied, l.copied, maxCopied-1)
	}
	// The end of a child makes room for another's.
	l.do(exitOf(2, 2))
	l.now += Grace
	l.do(comm(1, 1, "parent"), comm(1, 1, "parent"))
	if l.copied != maxCopied-4 {
		t.Fatalf("%d copied after the end of a child, want %d", l.copied, maxCopied-4)
	}
	child(4)
	l.want(t, 4, 0x1000, "/a")
	if l.Uncopied != 1 {
		t.Errorf("%d were not copied, want 1", l.Uncopied)
	}
}

func inPIDNS(pid int32, ino uint64) *perf.Namespaces {
	links := make([]perf.NSLink, 7)
	links[perf.NSPID].Ino = ino
	return &perf.Namespaces{PID: pid, TID: pid, Links: links}
}

// TestLives: a pid namespace whose last process has ended is another one when
// its number comes again.
func TestLives(t *testing.T) {
	const host, ns = 100, 200
	l := newLog()
	status := inPIDNS(1, host)
	status.Misc = perf.MiscStatusOnly
	l.do(comm(1, 1, "init"), status)
	life := func(pid int32) Life {
		t.Helper()
		p := l.Process(pid)
		if p == nil || p.Life(perf.NSPID) == nil {
			t.Fatalf("pid %d has no life", pid)
		}
		return *p.Life(perf.NSPID)
	}
	check := func(pid int32, number int, born uint64) {
		t.Helper()
		if got := life(pid); got.Number != number || got.Born != born {
			t.Errorf("pid %d: life %d, born %d, want %d, %d", pid, got.Number, got.Born, number, born)
		}
	}
	check(1, 1, 0)
	l.do(fork(10, 1, 10, 1), inPIDNS(10, ns))
	born := l.now - 1 // of the fork
	check(10, 1, born)
	l.do(fork(11, 10, 11, 10), inPIDNS(11, ns), fork(11, 11, 12, 11)) // a child, and a thread of it
	check(11, 1, born)
	l.do(exitOf(10, 10), exitOf(11, 11)) // the thread still runs
	l.do(fork(13, 1, 13, 1), inPIDNS(13, ns))
	check(13, 1, born) // came in from outside, as runc exec does
	l.do(exitOf(13, 13), exitOf(11, 12))
	check(11, 1, born) // it is remembered for its late samples
	l.do(fork(20, 1, 20, 1), inPIDNS(20, ns))
	check(20, 2, l.now-1)
	check(11, 1, born)
	check(1, 1, 0)
	// Its number is another process's, without an EXIT record.
	l.do(fork(20, 1, 20, 1), inPIDNS(20, ns))
	check(20, 3, l.now-1)
	// An exec by a thread that is not the first ends the others.
	l.do(fork(20, 20, 21, 20), exitOf(20, 20), exec(20, "x"), exitOf(20, 20))
	l.do(fork(30, 1, 30, 1), inPIDNS(30, ns))
	check(30, 4, l.now-1)
	if l.Process(99) != nil || l.Thread(50, 50).Process.Life(perf.NSPID) != nil {
		t.Error("a process of which nothing tells has a life")
	}
}

// TestCodeOfImages: the generated code of a process is not that of the program it ran
// before an exec, nor of the process that has its number later.
func TestCodeOfImages(t *testing.T) {
	l := newLog()
	file := func() *File {
		t.Helper()
		l.do(mmap(7, 0x1000, 0x1000, "//anon"))
		m := l.Thread(7, 7).Process.Maps().Find(0x1000)
		if m == nil || m.File.Path != "/tmp/perf-7.map" || m.File.First != l.now {
			t.Fatalf("%+v", m)
		}
		return m.File
	}
	l.do(comm(7, 7, "node"))
	first := file()
	l.do(exec(7, "java"))
	second := file()
	l.do(fork(7, 1, 7, 1))
	if third := file(); first == second || second == third || first == third {
		t.Error("two programs have one perf map")
	}
}
