// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// taken is a snapshot sorted by kind of record.
type taken struct {
	stats Stats
	forks map[int32]perf.Fork // by tid
	comms map[int32]string
	ns    map[int32][]perf.NSLink
	maps  map[int32][]perf.Mmap2 // by pid
	times []uint64
}

func take(t testing.TB, p Source, scope Scope) *taken {
	t.Helper()
	return takeWanted(t, p, scope, nil)
}

func takeWanted(t testing.TB, p Source, scope Scope, want func(*Task) bool) *taken {
	t.Helper()
	got := &taken{
		forks: map[int32]perf.Fork{}, comms: map[int32]string{},
		ns: map[int32][]perf.NSLink{}, maps: map[int32][]perf.Mmap2{},
	}
	stats, err := p.Take(context.Background(), scope, Sink{Want: want, Record: func(rec perf.Record) error {
		if perf.MiscOf(rec)&perf.MiscStatusOnly == 0 {
			t.Errorf("%v is no status record", rec.RecordType())
		}
		got.times = append(got.times, perf.SampleIDOf(rec).Time)
		switch rec := rec.(type) {
		case *perf.Fork:
			got.forks[rec.TID] = *rec
		case *perf.Comm:
			got.comms[rec.TID] = rec.Comm
		case *perf.Namespaces:
			got.ns[rec.TID] = append([]perf.NSLink(nil), rec.Links...)
		case *perf.Mmap2:
			got.maps[rec.PID] = append(got.maps[rec.PID], *rec)
		default:
			t.Errorf("unexpected record %T", rec)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	got.stats = stats
	return got
}

// discard takes everything.
var discard = Sink{Record: func(perf.Record) error { return nil }}

func monotonic() *Proc { return &Proc{Clock: sys.ClockMonotonic} }

func TestTakeEqualsProc(t *testing.T) {
	self := os.Getpid()
	for name, p := range map[string]*Proc{
		"query": monotonic(),
		"text":  {Clock: sys.ClockMonotonic, TextMaps: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := take(t, p, Scope{PIDs: []int{self}})
			if f := got.forks[int32(self)]; int(f.PPID) != os.Getppid() || f.Misc&perf.MiscForkExec == 0 {
				t.Errorf("FORK is %+v, want parent %d and MiscForkExec", f, os.Getppid())
			}
			want, err := procfs.FS{}.Self().Comm()
			if err != nil || got.comms[int32(self)] != want {
				t.Errorf("COMM %q, want %q (%v)", got.comms[int32(self)], want, err)
			}
			mnt, err := procfs.FS{}.Self().Namespace("mnt")
			if err != nil || got.ns[int32(self)][perf.NSMnt].Ino != mnt {
				t.Errorf("mnt namespace %v, want %d (%v)", got.ns[int32(self)], mnt, err)
			}
			checkMaps(t, got.maps[int32(self)])
			if got.stats.Processes != 1 || got.stats.Mappings != len(got.maps[int32(self)]) {
				t.Errorf("stats %+v", got.stats)
			}
		})
	}
}

// checkMaps compares with the text of /proc/self/maps.
func checkMaps(t *testing.T, got []perf.Mmap2) {
	t.Helper()
	i := 0
	err := procfs.FS{}.Self().Maps(procfs.NewMapsScanner(), func(m *procfs.Mapping) error {
		if m.Prot&procfs.ProtExec == 0 || m.Path == "[vsyscall]" {
			return nil
		}
		if i == len(got) {
			t.Fatalf("mapping %x-%x %s is missing", m.Start, m.End, m.Path)
		}
		g := got[i]
		i++
		if g.Addr != m.Start || g.Len != m.End-m.Start || g.PgOff != m.Offset || g.Filename != m.Path ||
			g.Prot != uint32(m.Prot) {
			t.Errorf("got %+v, want %+v", g, *m)
		}
		if g.Ino != m.Inode {
			t.Errorf("%s: inode %d, want %d", m.Path, g.Ino, m.Inode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if i != len(got) {
		t.Errorf("%d mappings too many: %+v", len(got)-i, got[i:])
	}
}

// buildIDOf is the build-id of a file.
func buildIDOf(t *testing.T, path string) buildid.ID {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(f, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTakeReadsTheBuildIDOfWhatIsMapped(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := testutil.SpinProgram(t, "spin_here")
	want := buildIDOf(t, prog)
	cmd := startProgram(t, prog)
	// The file is another one by now: its path must not be trusted.
	if err := os.Remove(prog); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prog, []byte("no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, text := range []bool{false, true} {
		p := monotonic()
		p.TextMaps = text
		got := take(t, p, Scope{PIDs: []int{cmd.Process.Pid}})
		found := false
		for _, m := range got.maps[int32(cmd.Process.Pid)] {
			if m.Filename == prog+" (deleted)" {
				found = true
				if m.Misc&perf.MiscMmapBuildID == 0 && text && os.Getuid() != 0 {
					continue // map_files is for root
				}
				if !bytes.Equal(m.BuildID, want.Bytes()) {
					t.Errorf("text=%v: build-id %x, want %v", text, m.BuildID, want)
				}
			}
		}
		if !found {
			t.Errorf("text=%v: no mapping of %s (deleted)", text, prog)
		}
	}
}

// startProgram starts a SpinProgram and waits until it runs.
func startProgram(t *testing.T, prog string, args ...string) *exec.Cmd {
	t.Helper()
	return startCmd(t, exec.Command(prog, args...))
}

func startCmd(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	testutil.StartReady(t, cmd)
	t.Cleanup(func() { cmd.Process.Kill() }) // not all read their input
	return cmd
}

func TestTakeThreads(t *testing.T) {
	tid := make(chan int)
	done := make(chan struct{})
	defer close(done)
	for range 2 { // one of them may have the leader's thread
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid <- syscall.Gettid()
			<-done
		}()
	}
	id := int32(<-tid)
	if other := int32(<-tid); id == int32(os.Getpid()) {
		id = other
	}
	got := take(t, monotonic(), Scope{PIDs: []int{os.Getpid()}})
	f, ok := got.forks[id]
	if !ok || f.PID != int32(os.Getpid()) || f.PPID != f.PID {
		t.Fatalf("FORK of thread %d: %+v (found %v)", id, f, ok)
	}
	if got.comms[id] == "" || got.stats.Threads == 0 {
		t.Errorf("comm %q, stats %+v", got.comms[id], got.stats)
	}
	if got.ns[id] != nil {
		t.Errorf("namespaces of a thread that has its leader's: %v", got.ns[id])
	}
}

func TestTakeAll(t *testing.T) {
	before, err := sys.ClockMonotonic.Now()
	if err != nil {
		t.Fatal(err)
	}
	got := take(t, monotonic(), Scope{All: true})
	if got.comms[0] != "swapper" {
		t.Errorf("idle task is called %q", got.comms[0])
	}
	if _, ok := got.forks[1]; !ok {
		t.Error("process 1 is missing")
	}
	if _, ok := got.forks[int32(os.Getpid())]; !ok {
		t.Error("this process is missing")
	}
	last := uint64(before)
	for _, at := range got.times {
		if at < last {
			t.Fatalf("time goes back from %d to %d", last, at)
		}
		last = at
	}
}

func TestTakeOfNobody(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	got := take(t, monotonic(), Scope{PIDs: []int{cmd.Process.Pid}})
	if got.stats.Gone != 1 || got.stats.Processes != 0 || len(got.forks) != 0 {
		t.Errorf("a process that has gone: %+v", got.stats)
	}
}

func TestTakeStopsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := monotonic().Take(ctx, Scope{PIDs: []int{os.Getpid()}}, discard)
	if err == nil {
		t.Error("no error from a cancelled snapshot")
	}
}

func BenchmarkTakeAll(b *testing.B) {
	processes := 0
	for b.Loop() {
		stats, err := monotonic().Take(context.Background(), Scope{All: true}, discard)
		if err != nil {
			b.Fatal(err)
		}
		processes += stats.Processes
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(processes), "us/process")
}

func FuzzParseLink(f *testing.F) {
	f.Add([]byte("mnt:[4026531841]"))
	f.Add([]byte("mnt:[]"))
	f.Add([]byte("[1]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		ino, err := parseLink(b)
		if err != nil {
			if ino != 0 {
				t.Errorf("%q gives %d and %v", b, ino, err)
			}
			return
		}
		kind, _, _ := bytes.Cut(b, []byte(":["))
		again, err := parseLink(fmt.Appendf(nil, "%s:[%d]", kind, ino))
		if err != nil || again != ino {
			t.Errorf("%q gives %d, written again %d, %v", b, ino, again, err)
		}
	})
}
