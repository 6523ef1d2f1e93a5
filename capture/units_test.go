// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func TestKernelText(t *testing.T) {
	const text = "0000000000000000 A fixed_percpu_data\n" +
		"ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000030 t secondary\n" +
		"ffffffff82209988 T _etext\nffffffff83000000 D data\n"
	for _, tt := range []struct {
		name, text string
		size       uint64
		want       textRange
	}{
		{"size known", text, 0x1209988, textRange{"_text", 0xffffffff81000000, 0xffffffff82209988}},
		{"read to the end of text", text, 0, textRange{"_text", 0xffffffff81000000, 0xffffffff82209988}},
		{"only _stext", "ffff800080010000 T _stext\nffff800081000000 T _etext\n", 0, textRange{"_stext", 0xffff800080010000, 0xffff800081000000}},
		{"hidden", "0000000000000000 T _text\n0000000000000000 T _etext\n", 0, textRange{}},
		{"no end", "ffffffff81000000 T _text\n", 0, textRange{}},
		{"empty", "", 5, textRange{}},
		{"garbage", "x\n\nffff\nffffffff81000000\n", 5, textRange{}},
	} {
		got, err := parseKernelText(strings.NewReader(tt.text), tt.size)
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}

func FuzzKernelText(f *testing.F) {
	f.Add("ffffffff81000000 T _text\nffffffff82209988 T _etext\n", uint64(0))
	f.Add("ffffffff81000000 T _stext\n", uint64(7))
	f.Fuzz(func(t *testing.T, text string, size uint64) {
		got, err := parseKernelText(strings.NewReader(text), size)
		if err != nil && got != (textRange{}) {
			t.Errorf("%+v and %v", got, err)
		}
		if got.start != 0 && (got.end <= got.start || got.symbol == "") {
			t.Errorf("%+v", got)
		}
	})
}

func TestCodeSize(t *testing.T) {
	name := filepath.Join(t.TempDir(), "iomem")
	for text, want := range map[string]uint64{
		"00100000-bffdbfff : System RAM\n  01000000-02209987 : Kernel code\n  02400000-02e09fff : Kernel rodata\n": 0x1209988,
		"00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n":                                      0,
		"": 0,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := codeSize(name); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}

// TestNoteOmitted: what has no room in a stream is told, once.
func TestNoteOmitted(t *testing.T) {
	large := &perfdata.Features{BPFProgInfo: make([]byte, 1<<17)}
	w, err := perfdata.NewPipeWriter(io.Discard, []*perf.Event{sidebandEvent()}, &perfdata.WriterOptions{Features: large})
	if err != nil {
		t.Fatal(err)
	}
	large.BPFProgInfo[0]++ // it has changed since
	if err := w.Close(large); err != nil {
		t.Fatal(err)
	}
	r := &Recorder{out: w}
	r.noteOmitted()
	if n := r.result.Notes; len(n) != 1 || !strings.Contains(n[0], "BPF_PROG_INFO") {
		t.Errorf("notes are %q, want one about BPF_PROG_INFO", n)
	}
}

func TestChooseRings(t *testing.T) {
	clock := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWCPUClock, Flags: perf.AttrFreq, SampleCount: 4000}
	fast := clock
	fast.SampleCount = 20000
	dwarf := clock
	dwarf.SampleType = perf.SampleStackUser
	trace := perf.Attr{Type: perf.TypeTracepoint, SampleCount: 1}
	dummy := sidebandAttr(false)
	for _, tt := range []struct {
		name string
		o    Options
		attr perf.Attr
		cpus int
		want int
	}{
		{"clock", Options{}, clock, 2, smallRing},
		{"fast", Options{}, fast, 2, largeRing},
		{"dwarf", Options{}, dwarf, 2, largeRing},
		{"tracepoint", Options{}, trace, 2, largeRing},
		{"many cpus", Options{}, trace, 256, 2 << 20},
		{"very many cpus", Options{}, trace, 4096, smallRing},
		{"as told", Options{RingSize: 8192}, trace, 2, 8192},
		{"sideband alone", Options{}, dummy, 2, smallRing},
	} {
		got := chooseRings(&tt.o, []*perf.Event{perf.NewEvent(tt.attr, "e"), perf.NewEvent(dummy, "dummy")}, tt.cpus)
		if got.samples != tt.want || got.sideband != sidebandRing {
			t.Errorf("%s: %+v, want %d", tt.name, got, tt.want)
		}
	}
}

// Rings become smaller until they are permitted, those of samples only without
// an order for their size.
func TestShrinkRings(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		s := ringSizes{samples: largeRing, sideband: sidebandRing}
		tries := 1
		for s.shrink(ordered) {
			if tries++; tries > 20 || s.samples < smallestRing || s.sideband < smallestRing {
				t.Fatalf("ordered=%v: %+v after %d tries", ordered, s, tries)
			}
		}
		if ordered != (s.samples == largeRing) || s.sideband > smallestRing {
			t.Errorf("ordered=%v: the last try is %+v", ordered, s)
		}
	}
}

func TestSampleAttr(t *testing.T) {
	attr := func(o Options, spec string) perf.Attr {
		g := groups(t, spec)
		return o.sampleAttr(&g[0], &g[0].Events[0], true, false, false)
	}
	for _, tt := range []struct {
		name  string
		o     Options
		spec  string
		count uint64
		freq  bool
	}{
		{"default", Options{}, "cpu-clock", DefaultFrequency, true},
		{"slow kernel", Options{MaxFrequency: 1000}, "cpu-clock", 1000, true},
		{"-F", Options{Frequency: 99}, "cpu-clock", 99, true},
		{"-c", Options{Period: 5}, "cpu-clock", 5, false},
		{"term", Options{Frequency: 99}, "cpu-clock/period=7/", 7, false},
		{"breakpoint", Options{}, "mem:0x1000:w", 1, false},
	} {
		a := attr(tt.o, tt.spec)
		if a.SampleCount != tt.count || (a.Flags&perf.AttrFreq != 0) != tt.freq {
			t.Errorf("%s: count %d, flags %x", tt.name, a.SampleCount, a.Flags)
		}
		if a.SampleType&baseSample != baseSample || a.Flags&perf.AttrDisabled == 0 {
			t.Errorf("%s: sample type %x, flags %x", tt.name, a.SampleType, a.Flags)
		}
	}
	a := attr(Options{CallGraph: DWARF, StackSize: 1001}, "cpu-clock")
	if a.SampleStackUser != 1008 || a.SampleRegsUser == 0 || a.Flags&perf.AttrExcludeCallchainUser == 0 {
		t.Errorf("dwarf: %+v", a)
	}
}

func TestCommandErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"no-such-command-at-all": 127, filepath.Join(dir, "none"): 127, plain: 126, dir: 126} {
		_, err := newWorkload(&Command{Args: []string{name}})
		var ce *CommandError
		if !errors.As(err, &ce) || ce.ExitCode() != want || hint.Of(err) == "" {
			t.Errorf("%s: %v (hint %q), want exit status %d", name, err, hint.Of(err), want)
		}
	}
	if _, err := newWorkload(&Command{}); err == nil {
		t.Error("no error for no command")
	}
}

func TestOpenErrors(t *testing.T) {
	testutil.CheckLeaks(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		o    Options
		want error
	}{
		"cpu":     {Options{Target: Target{CPUs: []int{1 << 14}}}, perfevent.ErrNoCPU},
		"process": {Options{Target: Target{PIDs: []int{ended.Process.Pid}}}, perfevent.ErrNoTask},
		"thread":  {Options{Target: Target{TIDs: []int{ended.Process.Pid}}}, perfevent.ErrNoTask},
		"cgroup":  {Options{Target: Target{Cgroups: []string{t.TempDir() + "/none"}}}, os.ErrNotExist},
	} {
		r, err := Open(tt.o)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
		if err == nil {
			r.Close()
		}
	}
}

// Close without Run, Close twice, Run after Close.
// A thread that is named twice is recorded once.
func TestThreadsOnce(t *testing.T) {
	self := os.Getpid()
	r := &Recorder{opts: Options{Target: Target{PIDs: []int{self, self}, TIDs: []int{self}}}}
	tids, err := r.threads()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, tid := range tids {
		if tid == self {
			n++
		}
	}
	if n != 1 {
		t.Errorf("thread %d is there %d times in %v", self, n, tids)
	}
}

// KillCommand and CommandRuns are harmless without a command.
func TestKillNothing(t *testing.T) {
	for _, r := range []*Recorder{{}, {child: new(workload)}} {
		r.KillCommand()
		if r.CommandRuns() {
			t.Errorf("%+v runs", r)
		}
	}
}

func TestCloseEarly(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents)
	testutil.CheckLeaks(t)
	r, err := Open(Options{Groups: groups(t, "cpu-clock")})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(context.Background(), Output{Pipe: new(strings.Builder)}); err == nil {
		t.Error("no error from Run after Close")
	}
}

// What could not be kept has a reason.
func TestKeeperReasons(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	prog := testutil.SpinProgram(t, "kept_or_not")
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	self := int32(os.Getpid())
	id := []byte("0123456789abcdef0123")
	k := newCollector(&Options{Store: t.TempDir(), MaxBinary: 100}, procfs.FS{})
	defer k.close()
	w := newSidebandWalker(nil, procfs.FS{}, nil, k)
	defer w.buildIDs.close()
	k.hostMnt = 1 // so that everything is a container's
	k.start()
	offer := func(pid int32, path string, id []byte) {
		w.status(&perf.Mmap2{
			Trailer: perf.Trailer{RecordMisc: perf.RecordMisc{Misc: perf.MiscMmapBuildID}},
			PID:     pid, Addr: 1 << 20, Len: 4096, Filename: path, BuildID: id,
		})
	}
	offer(int32(ended.Process.Pid), "/gone", id)
	offer(self, "/dev/null", id)
	offer(self, prog, id)
	offer(self, "//anon", id)
	w.status(&perf.Mmap2{PID: self, Filename: prog, Ino: 5})
	offer(self, "[vdso]", id)
	offer(self, "/no/such/file", id)
	k.wait()
	sum, list := k.result()
	want := map[string]int{errGone.Error(): 2, sys.ErrNotRegular.Error(): 1, errTooLarge.Error(): 1, errOnFUSE.Error(): 1}
	for reason, n := range want {
		if sum.Missing[reason] != n {
			t.Errorf("%d are missing because %q, want %d: %v", sum.Missing[reason], reason, n, sum.Missing)
		}
	}
	if sum.Kept != 0 || len(list) != 4 {
		t.Errorf("%+v, %d files", sum, len(list))
	}
	// A process that still lives gets another chance.
	if b := k.known[keyOf(&perf.Mmap2{Filename: "/gone", BuildID: id}, mountNS{})]; b == nil || b.err != errGone {
		t.Fatalf("%+v", b)
	}
	offer(self, "/gone", id)
	if len(k.waiting) != 1 {
		t.Errorf("%d wait, want the file that was missed before", len(k.waiting))
	}
}

// However long nothing happened, a new container is asked about soon.
func TestNamesPause(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		took, ago time.Duration
		urgent    bool
		want      time.Duration
	}{
		{ms, ms, false, minRefresh - ms},
		{ms, time.Hour, false, settleTime},
		{100 * ms, 100 * ms, false, 1900 * ms},
		{100 * ms, 100 * ms, true, 150 * ms},
		{100 * ms, time.Second, false, time.Second},
		{time.Second, time.Second, true, time.Second},
		{time.Second, time.Minute, false, settleTime},
	} {
		if got := pauseFor(tt.took, tt.ago, tt.urgent); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestNamesWithoutResolver(t *testing.T) {
	n := newNames(nil, nil, 0)
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	n.addCgroup(42, "/docker/"+id)
	// Before it is started: count does not wait for who looks for names.
	if got := n.count(map[uint64]uint64{42: 1, 43: 1}); got != 1 {
		t.Errorf("%d containers, want 1", got)
	}
	if _, ok, err := n.late(); ok || err != nil {
		t.Errorf("there is an answer before the question (%v)", err)
	}
	n.start()
	<-n.asked
	var section []byte
	for ok, err := false, error(nil); !ok; { // it may be asked again right now
		if section, ok, err = n.late(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Contains(section, []byte(id)) {
		t.Errorf("the answer does not know %s:\n%s", id, section)
	}
	table := n.wait()
	if c := table.ByCgroup(42); c == nil || c.ID != id || c.Kind != container.KindContainer {
		t.Errorf("container of cgroup 42 is %+v", c)
	}
}

// What a long recording could fill memory with is bounded, and what was left
// out is told.
func TestBounds(t *testing.T) {
	k := newCollector(&Options{}, procfs.FS{})
	defer k.close()
	for i := range maxFiles {
		k.known[binaryKey{id: strconv.Itoa(i)}] = &binary{}
	}
	known := binaryKey{id: "7"}
	if k.enqueue(&known, mappedAt{}) == nil || k.enqueue(&binaryKey{id: "new"}, mappedAt{}) != nil || len(k.known) != maxFiles {
		t.Errorf("%d files are known", len(k.known))
	}
	if sum, _ := k.result(); sum.Missing[errTooManyFiles.Error()] != 1 {
		t.Errorf("missing: %v, want one that was too many", sum.Missing)
	}

	n := newNames(nil, nil, 0)
	for i := range uint64(maxQueue + 2) {
		n.addCgroup(i+1, "/x")
	}
	if len(n.queue) != maxQueue {
		t.Errorf("%d cgroups wait", len(n.queue))
	}
	n.take()
	if !n.table.Full || len(n.queue) != 0 {
		t.Errorf("full is %v, %d wait", n.table.Full, len(n.queue))
	}

	w := newSidebandWalker(nil, procfs.FS{}, nil, nil)
	defer w.buildIDs.close()
	for pid := range int32(maxProcesses + 2) {
		w.namespaces(nsChange{pid: pid, mnt: 1, pidNS: 2})
	}
	w.namespaces(nsChange{pid: 5, mnt: 3, pidNS: 4})
	if len(w.mounts) != maxProcesses || w.untracked != 2 || w.mounts[5] != (mountNS{ino: 3}) {
		t.Errorf("%d processes, %d forgotten, %d", len(w.mounts), w.untracked, w.mounts[5].ino)
	}

	accounts := make(map[uint64]uint64)
	for id := range uint64(maxCounted + 2) {
		addCount(accounts, id, 1)
	}
	if len(accounts) != maxCounted || accounts[0] != 3 || accounts[1] != 1 {
		t.Errorf("%d accounts, %d in none's", len(accounts), accounts[0])
	}
}

// A file that grows while it is copied is copied as it was looked at: the limits
// were asked about that.
func TestKeeperGrowingFile(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := testutil.CompileC(t, "int main(void) { return 0; }\n")
	k := newCollector(&Options{Store: t.TempDir()}, procfs.FS{})
	defer k.close()
	file, err := os.OpenFile(prog, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	id, err := buildid.FromFile(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	left := k.left.Load()
	f := outcome{id: id}
	if err := k.copy(&f, file, info, &binaryKey{id: string(id.Bytes()), FileKey: binaries.FileKey{Path: prog}}); err != nil {
		t.Fatal(err)
	}
	kept, size, err := k.store.Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if size != info.Size() || left-k.left.Load() != size {
		t.Errorf("%d bytes were kept and %d counted of a file that had %d", size, left-k.left.Load(), info.Size())
	}
}
