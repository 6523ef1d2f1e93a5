// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// log writes down the events that it is told of.
type log struct{ list []string }

func (l *log) Observe(ev *Event) {
	l.list = append(l.list, fmt.Sprintf("%d %d/%d at %d", ev.Kind, ev.PID, ev.TID, ev.Time))
}

// raw encodes a record as a ring has it.
func raw(t testing.TB, rec perf.Record) perf.Raw {
	t.Helper()
	ev := perf.NewEvent(perf.Attr{SampleType: perf.RawSampleType, Flags: perf.AttrSampleIDAll}, "dummy", 7)
	b, err := perf.Append(nil, rec, perf.NativeOrder, ev)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Records of a ring and decoded ones give the same events.
func TestRecordAndDecoded(t *testing.T) {
	exec := &perf.Comm{PID: 3, TID: 4, Comm: "x"}
	exec.Misc, exec.SampleID.Time = perf.MiscCommExec, 9
	name := &perf.Comm{PID: 3, TID: 4, Comm: "y"}
	ns := &perf.Namespaces{PID: 3, TID: 4, Links: make([]perf.NSLink, perf.NSCgroup+1)}
	ns.SampleID.Time = 8
	records := []perf.Record{
		&perf.Fork{Task: perf.Task{PID: 3, TID: 4, PPID: 1, PTID: 2, Time: 5}}, ns, exec, name,
		&perf.Cgroup{ID: 6, Path: "/x"}, &perf.Exit{Task: perf.Task{PID: 3, TID: 4, Time: 10}}, &perf.Mmap2{PID: 3, Filename: "/x"},
	}
	var fromRing, decoded log
	a, b := New(procfs.FS{}, 0), New(procfs.FS{}, 0)
	a.Subscribe(&fromRing)
	b.Subscribe(&decoded)
	for _, rec := range records {
		a.Record(raw(t, rec))
		b.Decoded(rec)
	}
	want := []string{"1 3/4 at 5", "4 3/4 at 8", "3 3/4 at 9", "5 0/0 at 0", "2 3/4 at 10"}
	if !slices.Equal(fromRing.list, want) || !slices.Equal(decoded.list, want) {
		t.Errorf("from a ring %q, decoded %q, want %q", fromRing.list, decoded.list, want)
	}
	a.Unsubscribe(&fromRing)
	a.Record(raw(t, exec))
	if len(fromRing.list) != len(want) {
		t.Error("an event after Unsubscribe")
	}
	for _, short := range []perf.RecordType{perf.RecordFork, perf.RecordExit, perf.RecordComm, perf.RecordNamespaces, perf.RecordCgroup} {
		a.Record(perf.Header{Type: short, Misc: perf.MiscCommExec, Size: perf.HeaderSize}.Append(nil, perf.NativeOrder))
	}
}

// A process is where the kernel says, which Learn takes from the rings.
func TestLearn(t *testing.T) {
	tab := New(procfs.FS{}, 0)
	l := tab.Learn()
	links := make([]perf.NSLink, perf.NSCgroup+1)
	links[perf.NSMnt].Ino = 77
	l.Record(raw(t, &perf.Namespaces{PID: 1 << 30, TID: 1 << 30, Links: links}))
	l.Record(raw(t, &perf.Fork{Task: perf.Task{PID: 1<<30 + 1, TID: 1<<30 + 1, PPID: 1 << 30, PTID: 1 << 30}}))
	l.Record(raw(t, &perf.Namespaces{PID: 1<<30 + 1, TID: 1<<30 + 1, Links: links}))
	l.Record(raw(t, &perf.Namespaces{PID: 5, TID: 6, Links: links})) // a thread
	want := MountNS{Ino: 77}
	if tab.MountNS(1<<30) != want || tab.MountNS(1<<30+1) != want || tab.MountNS(5) != (MountNS{}) || tab.NewMountNS != 1 {
		t.Errorf("%+v, %+v, %+v, %d new", tab.MountNS(1<<30), tab.MountNS(1<<30+1), tab.MountNS(5), tab.NewMountNS)
	}
	if n := len(slices.Collect(tab.Members(want))); n != 2 {
		t.Errorf("%d members", n)
	}
}

// A process is forgotten two rounds after the end of its first thread, unless
// another goes on.
func TestProcessOutlivesItsFirstThread(t *testing.T) {
	root := t.TempDir()
	for pid, state := range map[int]string{1: "Z 1", 2: "Z 2", 3: "S 1"} {
		var st string
		var threads int
		fmt.Sscan(state, &st, &threads)
		dir := filepath.Join(root, "proc", fmt.Sprint(pid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d (x) %s 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 %d 0 5 0 0\n", pid, st, threads)
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tab := New(procfs.New(root), 0)
	for pid := range int32(5) {
		tab.setMountNS(change{pid: pid, ino: 9})
		tab.Decoded(&perf.Exit{Task: perf.Task{PID: pid, TID: pid}})
	}
	tab.Round()
	if len(tab.mounts) != 5 {
		t.Errorf("%d are left in the round of their end", len(tab.mounts))
	}
	tab.Round()
	for pid, want := range map[int32]bool{0: false, 1: false, 2: true, 3: true, 4: false} {
		if _, ok := tab.mounts[pid]; ok != want {
			t.Errorf("process %d is known: %v", pid, ok)
		}
	}
}

// However many processes there are, only so many are remembered, and the others
// are counted.
func TestBounds(t *testing.T) {
	tab := New(procfs.FS{}, 0)
	for pid := range int32(MaxProcesses + 2) {
		tab.setMountNS(change{pid: pid, ino: 1})
	}
	tab.setMountNS(change{pid: 5, ino: 3})
	if len(tab.mounts) != MaxProcesses || tab.Untracked != 2 || tab.MountNS(5) != (MountNS{Ino: 3}) {
		t.Errorf("%d processes, %d untracked, %+v", len(tab.mounts), tab.Untracked, tab.MountNS(5))
	}
	for tid := range int32(maxThreads + 2) {
		tab.setThread(tid, thread{})
	}
	if len(tab.threads) > maxThreads {
		t.Errorf("%d threads", len(tab.threads))
	}
}
