// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// memFile is a perf.data file in memory.
type memFile struct{ b []byte }

func (f *memFile) Write(p []byte) (int, error) {
	f.b = append(f.b, p...)
	return len(p), nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(f.b) {
		f.b = append(f.b, make([]byte, need-len(f.b))...)
	}
	return copy(f.b[off:], p), nil
}

// recording makes a perf.data file record by record.
type recording struct {
	t   *testing.T
	ev  *perf.Event
	f   *memFile
	w   *perfdata.Writer
	now uint64
}

func newRecording(t *testing.T, st perf.SampleType) *recording {
	t.Helper()
	attr := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleCount: 1000,
		SampleType: st | perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleCPU,
		Flags:      perf.AttrSampleIDAll | perf.AttrBuildID,
	}
	r := &recording{t: t, ev: perf.NewEvent(attr, "cpu-clock", 7), f: new(memFile), now: 1000}
	var err error
	if r.w, err = perfdata.NewWriter(r.f, []*perf.Event{r.ev}, nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// add appends records one microsecond apart.
func (r *recording) add(recs ...perf.Record) {
	r.t.Helper()
	for _, rec := range recs {
		r.now += 1000
		if s, ok := rec.(*perf.Sample); ok {
			s.ID, s.Time = 7, r.now
		} else if sid := perf.SampleIDOf(rec); sid != nil {
			sid.ID, sid.Time = 7, r.now
		}
		if err := r.w.WriteRecord(rec, r.ev); err != nil {
			r.t.Fatal(err)
		}
	}
}

// open finishes the file and starts a session over it.
func (r *recording) open(f *perfdata.Features, o *Options) *Session {
	r.t.Helper()
	if err := r.w.Close(f); err != nil {
		r.t.Fatal(err)
	}
	rd, err := perfdata.NewReader(bytes.NewReader(r.f.b), int64(len(r.f.b)), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return NewSession(rd, o)
}

func comm(pid int32, name string) *perf.Comm { return &perf.Comm{PID: pid, TID: pid, Comm: name} }

func sample(pid int32, ip uint64, chain ...uint64) *perf.Sample {
	return &perf.Sample{RecordMisc: perf.RecordMisc{Misc: perf.MiscUser}, PID: pid, TID: pid, IP: ip, Callchain: chain}
}

// rows are the samples of p as "labels: frame;frame count".
func rows(p *profile.Profile, label func(*profile.Labels) string) map[string]uint64 {
	out := make(map[string]uint64)
	for s := range p.Samples() {
		var frames []string
		for _, id := range p.Stack(s.Stack) {
			f := p.Frame(id)
			frames = append(frames, f.Name+"@"+f.DSO)
		}
		out[label(p.Labels(s.Labels))+": "+strings.Join(frames, ";")] += s.Count
	}
	return out
}

func byComm(l *profile.Labels) string { return l.Comm }

// openFiles is an opener of files by build-id.
type openFiles map[string]string

func (o openFiles) Open(ref symbol.Ref) (symbol.File, int64, error) {
	path, ok := o[ref.BuildID.String()]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	return f, st.Size(), err
}

// program is a compiled program with one function to look for.
type program struct {
	path         string
	id           buildid.ID
	vaddr, pgoff uint64 // of the function, and of its file offset
}

func compile(t *testing.T, fn string) program {
	t.Helper()
	p := program{path: testutil.CompileC(t, "__attribute__((noinline)) int "+fn+"(int x) { return x * 3 + 1; }\nint main(int c, char **v) { return "+fn+"(c); }\n")}
	f, err := elf.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == fn {
			p.vaddr = s.Value
		}
	}
	for _, seg := range f.Progs {
		if seg.Type == elf.PT_LOAD && seg.Flags&elf.PF_X != 0 {
			p.pgoff = p.vaddr - seg.Vaddr + seg.Off
		}
	}
	raw, err := os.Open(p.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	st, _ := raw.Stat()
	if p.id, err = buildid.FromFile(raw, st.Size()); err != nil {
		t.Fatal(err)
	}
	return p
}

func mapped(pid int32, addr uint64, path string, id buildid.ID) *perf.Mmap2 {
	m := &perf.Mmap2{PID: pid, TID: pid, Addr: addr, Len: 1 << 20, Prot: 5, Filename: path}
	if !id.IsZero() {
		m.Misc, m.BuildID = perf.MiscUser|perf.MiscMmapBuildID, id.Bytes()
	}
	return m
}

// TestSamePathOtherProgram is the pain gantry exists for: one path, two
// contents, each with its own functions.
func TestSamePathOtherProgram(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	alpha, beta := compile(t, "alpha_hot"), compile(t, "beta_hot")
	r := newRecording(t, 0)
	const base = 0x7f0000000000
	r.add(comm(1, "a"), mapped(1, base, "/app/server", alpha.id), comm(2, "b"), mapped(2, base, "/app/server", beta.id))
	r.add(sample(1, base+alpha.pgoff), sample(2, base+beta.pgoff), sample(2, base+beta.pgoff+1))
	s := r.open(nil, &Options{Binaries: []symbol.Opener{openFiles{alpha.id.String(): alpha.path, beta.id.String(): beta.path}}})
	p, err := s.Collect(CollectOptions{Fields: profile.FieldComm, Symbols: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"a: alpha_hot@server": 1, "b: beta_hot@server": 2}
	if diff := cmp.Diff(want, rows(p, byComm)); diff != "" {
		t.Error(diff)
	}
	if w := s.Warnings(); len(w) > 0 || len(s.Unresolved()) > 0 {
		t.Errorf("warnings %q, unresolved %v", w, s.Unresolved())
	}
}

func TestUnresolvedIsReportedAndKept(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := compile(t, "hot")
	r := newRecording(t, 0)
	r.add(comm(1, "a"), mapped(1, 0x10000, "/gone", prog.id), sample(1, 0x10000+prog.pgoff), sample(1, 0x9999999))
	s := r.open(nil, &Options{Binaries: []symbol.Opener{openFiles{}}})
	p, err := s.Collect(CollectOptions{Symbols: true, Addresses: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []profile.Frame
	for i := range p.NumFrames() {
		got = append(got, p.Frame(profile.FrameID(i)))
	}
	want := []profile.Frame{
		{DSO: "gone", Path: "/gone", BuildID: prog.id.String(), Addr: prog.pgoff, MapLimit: 1 << 20},
		{Addr: 0x9999999},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if f := s.Unresolved(); len(f) != 1 || f[0].Reason != symbol.NotFound {
		t.Errorf("unresolved: %v", f)
	}
}

func TestAddressesForPprof(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	prog := compile(t, "hot")
	r := newRecording(t, 0)
	r.add(mapped(1, 0x10000, "/p", prog.id), sample(1, 0x10000+prog.pgoff), sample(1, 0x10000+prog.pgoff+2))
	s := r.open(nil, &Options{Binaries: []symbol.Opener{openFiles{prog.id.String(): prog.path}}})
	p, err := s.Collect(CollectOptions{Symbols: true, Addresses: true})
	if err != nil {
		t.Fatal(err)
	}
	if p.NumFrames() != 2 {
		t.Fatalf("%d frames", p.NumFrames())
	}
	f := p.Frame(1)
	if f.Name != "hot" || f.Addr != prog.vaddr+2 || f.Addr < f.MapStart || f.Addr >= f.MapLimit {
		t.Errorf("%+v, want address %#x", f, prog.vaddr+2)
	}
}

// kallsymsText is a kernel at 0xffffffff81000000.
const kallsymsText = `ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81001000 T do_idle
ffffffff81002000 T schedule
ffffffff81f00000 T _etext
`

func kallsyms(Kernel) (*symbol.Kallsyms, error) {
	return symbol.ReadKallsyms(strings.NewReader(kallsymsText))
}

func kernelMap(text uint64) *perf.Mmap {
	m := &perf.Mmap{PID: -1, Addr: text, Len: 16 << 20, PgOff: text, Filename: "[kernel.kallsyms]_text"}
	m.Misc = perf.MiscKernel
	return m
}

func TestCallchainContexts(t *testing.T) {
	r := newRecording(t, perf.SampleCallchain)
	r.add(kernelMap(0xffffffff81000000), comm(1, "a"))
	s := sample(1, 0xffffffff81001004, perf.ContextKernel, 0xffffffff81001004, 0xffffffff81002004, perf.ContextUser, 0x4000)
	s.Misc = perf.MiscKernel
	r.add(s)
	ses := r.open(nil, &Options{Kallsyms: kallsyms})
	p, err := ses.Collect(CollectOptions{Fields: profile.FieldComm, Symbols: true, Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{"a: do_idle@[kernel.kallsyms];schedule@[kernel.kallsyms];@": 1}
	if diff := cmp.Diff(want, rows(p, byComm)); diff != "" {
		t.Error(diff)
	}
}

// TestChainOfMarksOnly: the stack is in a dump, or could not be walked.
func TestChainOfMarksOnly(t *testing.T) {
	r := newRecording(t, perf.SampleCallchain)
	s := sample(1, 0xffffffff81001004, perf.ContextKernel, perf.ContextUser)
	s.Misc = perf.MiscKernel
	r.add(kernelMap(0xffffffff81000000), s)
	p, err := r.open(nil, &Options{Kallsyms: kallsyms}).Collect(CollectOptions{Symbols: true, Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{": do_idle@[kernel.kallsyms]": 1}
	if diff := cmp.Diff(want, rows(p, byComm)); diff != "" {
		t.Error(diff)
	}
}

// TestCallersAreLookedUpInTheirCall: schedule calls something that never
// returns, as its last instruction.
func TestCallersAreLookedUpInTheirCall(t *testing.T) {
	r := newRecording(t, perf.SampleCallchain)
	s := sample(1, 0xffffffff81001000, perf.ContextKernel, 0xffffffff81001000, 0xffffffff81002000)
	s.Misc = perf.MiscKernel
	r.add(kernelMap(0xffffffff81000000), s)
	p, err := r.open(nil, &Options{Kallsyms: kallsyms}).Collect(CollectOptions{Symbols: true, Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{": do_idle@[kernel.kallsyms];do_idle@[kernel.kallsyms]": 1}
	if diff := cmp.Diff(want, rows(p, byComm)); diff != "" {
		t.Error(diff)
	}
}

// TestKernelMoved: the recording is of another boot, where the kernel lay
// elsewhere.
func TestKernelMoved(t *testing.T) {
	r := newRecording(t, 0)
	raw := []byte("twenty bytes of sha1")
	m := kernelMap(0xffffffff91000000)
	m2 := &perf.Mmap2{PID: -1, Addr: m.Addr, Len: m.Len, PgOff: m.PgOff, Filename: m.Filename, BuildID: raw}
	m2.Misc = perf.MiscKernel | perf.MiscMmapBuildID
	r.add(m2)
	s := sample(1, 0xffffffff91002010)
	s.Misc = perf.MiscKernel
	r.add(s)
	var asked Kernel
	ses := r.open(&perfdata.Features{OSRelease: "6.18", Arch: "x86_64"}, &Options{Kallsyms: func(k Kernel) (*symbol.Kallsyms, error) {
		asked = k
		return kallsyms(k)
	}})
	it, err := ses.Next()
	for err == nil && it.Sample == nil {
		it, err = ses.Next()
	}
	if err != nil {
		t.Fatal(err)
	}
	loc := ses.Locate(it.Thread, it.Sample.IP, true)
	if loc.Name != "schedule" || loc.Offset != 0x10 || loc.DSO != "[kernel.kallsyms]" {
		t.Errorf("%+v", loc)
	}
	id, err := buildid.New(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := Kernel{BuildID: id, Release: "6.18", Arch: "x86_64", Reference: symbol.Reference{Name: "_text", Addr: 0xffffffff91000000}}
	if asked.Addrs != nil || asked.BuildID != want.BuildID || asked.Release != want.Release || asked.Arch != want.Arch || asked.Reference != want.Reference {
		t.Errorf("asked for %+v", asked)
	}
}

func TestKernelWithoutNames(t *testing.T) {
	r := newRecording(t, 0)
	r.add(kernelMap(0xffffffff81000000))
	s := sample(1, 0xffffffff81002010)
	s.Misc = perf.MiscKernel
	r.add(s)
	ses := r.open(nil, &Options{Kallsyms: func(Kernel) (*symbol.Kallsyms, error) { return nil, errors.New("hidden") }})
	p, err := ses.Collect(CollectOptions{Symbols: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := p.Frame(0); f.DSO != "[kernel.kallsyms]" || f.Name != "" || !f.Kernel {
		t.Errorf("%+v", f)
	}
	if w := ses.Warnings(); len(w) != 1 || !strings.Contains(w[0], "hidden") {
		t.Errorf("warnings %q", w)
	}
}

func TestBPFSymbols(t *testing.T) {
	r := newRecording(t, 0)
	bpf := &perf.Ksymbol{Addr: 0xffffffffc0001000, Len: 64, KsymType: perf.KsymbolBPF, Name: "bpf_prog_123_f"}
	gone := *bpf
	gone.Flags = perf.KsymbolUnregister
	in := func() *perf.Sample {
		s := sample(1, 0xffffffffc0001010)
		s.Misc = perf.MiscKernel
		return s
	}
	r.add(in(), bpf, in(), &gone, in())
	p, err := r.open(nil, nil).Collect(CollectOptions{Symbols: true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{": @": 2, ": bpf_prog_123_f@bpf_prog_123_f": 1}
	if diff := cmp.Diff(want, rows(p, byComm)); diff != "" {
		t.Error(diff)
	}
}

// TestForeignDumpsAreReported: dumped stacks of an architecture that cannot be
// unwound.
func TestForeignDumpsAreReported(t *testing.T) {
	for _, stacks := range []bool{true, false} {
		r := newRecording(t, perf.SampleTID|perf.SampleCallchain|perf.SampleRegsUser|perf.SampleStackUser)
		sm := sample(1, 0x1000)
		sm.RegsUser.ABI = 2
		r.add(sm)
		s := r.open(&perfdata.Features{Arch: "s390x"}, nil)
		if _, err := s.Collect(CollectOptions{Symbols: true, Stacks: stacks}); err != nil {
			t.Fatal(err)
		}
		if w := s.Warnings(); (len(w) == 1 && strings.Contains(w[0], "s390x")) != stacks {
			t.Errorf("stacks %v: warnings %q", stacks, w)
		}
	}
}

// TestLost: a loss that both kinds of record tell is counted once.
func TestLost(t *testing.T) {
	for _, c := range []struct {
		name string
		recs []perf.Record
		want uint64
	}{
		{"none", nil, 0},
		{"ring", []perf.Record{&perf.Lost{ID: 7, N: 3}, &perf.Lost{ID: 7, N: 4}}, 7},
		{"count", []perf.Record{&perf.LostSamples{N: 9}}, 9},
		{"both", []perf.Record{&perf.Lost{ID: 7, N: 3}, &perf.LostSamples{N: 9}}, 9},
		{"both, fewer", []perf.Record{&perf.Lost{ID: 7, N: 30}, &perf.LostSamples{N: 9}}, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecording(t, 0)
			r.add(sample(1, 0x1000))
			r.add(c.recs...)
			p, err := r.open(nil, nil).Collect(CollectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := p.TotalLost("cpu-clock"); got != c.want {
				t.Errorf("lost %d, want %d", got, c.want)
			}
		})
	}
}

func TestPeriods(t *testing.T) {
	r := newRecording(t, 0)
	r.add(sample(1, 0x1000), sample(1, 0x1000))
	p, err := r.open(nil, nil).Collect(CollectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := p.Events[0]; e.Samples != 2 || e.Value != 2000 || e.Unit != "nanoseconds" || e.Name != "cpu-clock" {
		t.Errorf("%+v", e)
	}
}

// TestDamagedSample: one record that lies about its lengths is counted, the
// others are there.
func TestDamagedSample(t *testing.T) {
	r := newRecording(t, perf.SampleCallchain)
	r.add(sample(1, 0x1000, 0x1000), sample(1, 0x2000, 0x2000), sample(1, 0x3000, 0x3000))
	if err := r.w.Close(nil); err != nil {
		t.Fatal(err)
	}
	chain := make([]byte, 16)
	perf.LittleEndian.PutUint64(chain, 1)
	perf.LittleEndian.PutUint64(chain[8:], 0x2000)
	at := bytes.Index(r.f.b, chain)
	if at < 0 {
		t.Fatal("no call chain in the file")
	}
	perf.LittleEndian.PutUint64(r.f.b[at:], 1<<40)
	rd, err := perfdata.NewReader(bytes.NewReader(r.f.b), int64(len(r.f.b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSession(rd, nil)
	p, err := s.Collect(CollectOptions{Symbols: true, Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Events[0].Samples; n != 2 {
		t.Errorf("%d samples", n)
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "1 records could not be decoded") || !strings.Contains(w[0], "offset") {
		t.Errorf("warnings %q", w)
	}
}

func TestNextGivesEverythingInOrder(t *testing.T) {
	r := newRecording(t, 0)
	r.add(comm(1, "a"), sample(1, 0x1000), &perf.Exit{Task: perf.Task{PID: 1, TID: 1}})
	s := r.open(nil, nil)
	var got []string
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, it.Type.String())
		if it.Sample != nil && it.Thread.Comm != "a" {
			t.Errorf("sample of %q", it.Thread.Comm)
		}
	}
	if diff := cmp.Diff([]string{"COMM", "SAMPLE", "EXIT"}, got); diff != "" {
		t.Error(diff)
	}
}
