// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/perf/perftext"
	"github.com/gantry-tools/gantry/view/report"
)

// memFile is a perfdata.File in memory.
type memFile struct{ b []byte }

func (m *memFile) Write(p []byte) (int, error) {
	m.b = append(m.b, p...)
	return len(p), nil
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	if n := int(off) + len(p) - len(m.b); n > 0 {
		m.b = append(m.b, make([]byte, n)...)
	}
	return copy(m.b[off:], p), nil
}

// fileOf makes perf.data of a text.
func fileOf(t testing.TB, text string) []byte {
	t.Helper()
	rec, err := perftext.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var f memFile
	if err := rec.WriteData(&f); err != nil {
		t.Fatal(err)
	}
	return f.b
}

func textFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// kallsyms is a kernel of two functions.
func kallsyms(analysis.Kernel) (*symbol.Kallsyms, error) {
	return symbol.ReadKallsyms(strings.NewReader(
		"ffffffff81000000 T _text\nffffffff81000010 T start\nffffffff81000100 t hot.constprop.0\nffffffff81000200 T _etext\n"))
}

func run(t testing.TB, data []byte, o *Options) (string, error) {
	t.Helper()
	r, err := perfdata.NewReader(bytes.NewReader(data), int64(len(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = Write(&b, r, analysis.NewSession(r, &analysis.Options{Kallsyms: kallsyms}), o)
	return b.String(), err
}

func columns(t testing.TB, lists ...string) Columns {
	t.Helper()
	c, err := ParseFields(lists, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestGolden prints the recordings in testdata in several ways. What perf has
// as well was compared with perf script of version 6.1.
func TestGolden(t *testing.T) {
	all := fileOf(t, textFile(t, "all.txt"))
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"default", Options{}},
		{"ns-G", Options{Nanoseconds: true, HideCallGraph: true}},
		{"max-stack-2", Options{MaxStack: 2}},
		{"F-comm,pid,tid,cpu,time,event,ip,dso", Options{Columns: columns(t, "comm,pid,tid,cpu,time,event,ip,dso")}},
		{"F-pid,time", Options{Columns: columns(t, "pid,time")}},
		{"F-ip,sym", Options{Columns: columns(t, "ip,sym")}},
		{"F+misc,+period,-time", Options{Columns: columns(t, "+misc,+period,-time")}},
		{"F-sw:+addr,+weight,+phys_addr", Options{Columns: columns(t, "sw:+addr,+weight,+phys_addr,+data_page_size,+code_page_size", "trace:")}},
		{"F+container", Options{Columns: columns(t, "+container,+image,+pod,+cgroup,-ip,-sym,-dso")}},
		{"comm-web", Options{Filter: report.Filter{Comm: []string{"w*"}}}},
		{"container-web", Options{Filter: report.Filter{Match: container.ByName("web")}}},
		{"tid-3", Options{Filter: report.Filter{TID: []int32{3}}}},
		{"cpu-12,1234", Options{Filter: report.Filter{CPU: []int32{12, 1234}}}},
		{"time", Options{Span: Span{From: 1000011000, To: 1000013123}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := run(t, all, &c.o)
			if err != nil {
				t.Fatal(err)
			}
			testutil.Golden(t, "testdata/all."+strings.ReplaceAll(c.name, ":", "_")+".golden", []byte(got))
		})
	}
}

func TestSideband(t *testing.T) {
	data := fileOf(t, textFile(t, "sideband.txt"))
	got, err := run(t, data, &Options{Show: ShowMmap | ShowTask | ShowNamespace | ShowLost | ShowSwitch | ShowBPF | ShowCgroup | ShowTextPoke})
	if err != nil {
		t.Fatal(err)
	}
	testutil.Golden(t, "testdata/sideband.golden", []byte(got))
	got, err = run(t, data, &Options{Show: ShowLost, Filter: report.Filter{TID: []int32{2}}, Columns: columns(t, "tid,misc")})
	if err != nil || got != "    2       PERF_RECORD_LOST lost 99\n    2       PERF_RECORD_LOST_SAMPLES lost 3\n" {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestGroup: {a,b}:S is printed as perf does, a line for each counter that
// moved.
func TestGroup(t *testing.T) {
	const head = `perfdata little
event "a" type=software config=cpu-clock period=1000 sample=tid|time|read|period|identifier read=id|group ids=7
event "bb" type=software config=task-clock sample=tid|time|read|period|identifier read=id|group ids=8
SAMPLE pid=1 tid=1 time=1000 period=5 counts=10/7,20/8
SAMPLE pid=1 tid=1 time=2000 period=5 counts=10/7,25/8
SAMPLE pid=1 tid=1 time=3000 period=5 counts=11/7,25/8,9/99
`
	got, err := run(t, fileOf(t, head), &Options{Columns: columns(t, "time,event,period")})
	want := `    0.000001:         10  a: 
    0.000001:         20 bb: 
    0.000002:          5 bb: 
    0.000003:          1  a: 
`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// A counter without an id is that of the sample's event.
func TestCounterWithoutID(t *testing.T) {
	data := fileOf(t, `perfdata little
event "cycles" type=hardware config=cycles period=100 sample=tid|time|read
COMM pid=7 tid=7 "work"
SAMPLE pid=7 tid=7 time=1000000000 counts=100
SAMPLE pid=7 tid=7 time=2000000000 counts=250
`)
	got, err := run(t, data, &Options{Columns: columns(t, "time,period,event")})
	if want := []string{"1.000000:", "100", "cycles:", "2.000000:", "150", "cycles:"}; err != nil || !slices.Equal(strings.Fields(got), want) {
		t.Errorf("%v: %q", err, got)
	}
}

// TestHostile: nothing that steers a terminal gets out.
func TestHostile(t *testing.T) {
	for _, name := range []string{"all.txt", "sideband.txt"} {
		got, err := run(t, fileOf(t, textFile(t, name)), &Options{Show: ^Show(0)})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(got, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f }) {
			t.Errorf("%s prints control characters:\n%q", name, got)
		}
	}
}

func TestParseFields(t *testing.T) {
	sw, tp := &perf.Attr{Type: perf.TypeSoftware}, &perf.Attr{Type: perf.TypeTracepoint}
	chain := &perf.Attr{Type: perf.TypeTracepoint, SampleType: perf.SampleCallchain}
	for _, c := range []struct {
		lists []string
		attr  *perf.Attr
		want  string
	}{
		{nil, sw, "comm,tid,cpu,time,period,event,ip,sym,symoff,dso"},
		{nil, tp, "comm,tid,cpu,time,event,trace"},
		{nil, chain, "comm,tid,cpu,time,event,trace,ip,sym,symoff,dso"},
		{[]string{"comm,trace"}, sw, "comm"},
		{[]string{"comm,trace"}, tp, "comm,trace"},
		{[]string{"sw:comm"}, tp, "comm,tid,cpu,time,event,trace"},
		{[]string{"sw:comm"}, sw, "comm"},
		{[]string{"trace:"}, tp, ""},
		{[]string{"+pid,-time"}, sw, "comm,pid,tid,cpu,period,event,ip,sym,symoff,dso"},
		{[]string{"+pid", "-pid,+misc"}, tp, "comm,tid,cpu,misc,time,event,trace"},
		{[]string{"+pid", "comm"}, sw, "comm"},
		{[]string{"comm", "+pid"}, sw, "comm,pid"},
		{[]string{"comm,,pid,"}, sw, "comm,pid"},
	} {
		cols, err := ParseFields(c.lists, nil, false)
		if err != nil {
			t.Errorf("%q: %v", c.lists, err)
			continue
		}
		if got, _ := cols.of(c.attr); got.String() != c.want {
			t.Errorf("%q: %v, want %s", c.lists, got, c.want)
		}
	}
	for list, want := range map[string]string{
		"foo": `no field is called "foo"`, "comm,-cpu": "either all with", "x:comm": `fields of "x"`,
		"sw:trace": "tracepoints only", "ip,symoff": "symoff needs sym", "srcline": "srcline needs ip", "": "no fields are left", "+nope": `no field is called "nope"`,
	} {
		if _, err := ParseFields([]string{list}, nil, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
}

func TestSymbols(t *testing.T) {
	sw := perf.NewEvents(perf.NewEvent(perf.Attr{Type: perf.TypeSoftware}, "x"))
	tp := perf.NewEvents(perf.NewEvent(perf.Attr{Type: perf.TypeTracepoint}, "x"))
	for _, c := range []struct {
		list   string
		events *perf.Events
		want   bool
	}{
		{"+pid", sw, true}, {"+pid", tp, false}, {"ip,dso", sw, false}, {"sym", sw, false}, {"ip,sym", tp, true}, {"comm", new(perf.Events), true},
	} {
		if got := (&Options{Columns: columns(t, c.list)}).Symbols(c.events); got != c.want {
			t.Errorf("%s of %d events: %v", c.list, len(c.events.List()), got)
		}
	}
}

func TestMissingField(t *testing.T) {
	data := fileOf(t, textFile(t, "sideband.txt"))
	for _, list := range []string{"addr", "+cgroup", "sw:phys_addr"} {
		if _, err := run(t, data, &Options{Columns: columns(t, list)}); !errors.Is(err, ErrNoField) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for s, want := range map[string]Span{
		"1,2": {1e9, 2e9}, "1.5,": {From: 1500000000}, "1.5": {From: 1500000000}, ",2.000000001": {To: 2000000001}, "3.1234567891,4": {3123456789, 4e9},
	} {
		if got, err := ParseSpan(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", ",", "2,1", "x,", "1.x,", "99999999999999,", "-1,2"} {
		if _, err := ParseSpan(s); err == nil {
			t.Errorf("%q is a span", s)
		}
	}
}

type fullDisk struct{}

var errFull = errors.New("full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteError(t *testing.T) {
	data := fileOf(t, textFile(t, "all.txt"))
	r, err := perfdata.NewReader(bytes.NewReader(data), int64(len(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(fullDisk{}, r, analysis.NewSession(r, nil), nil); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

// TestStream: events and formats may come after the first sample.
func TestStream(t *testing.T) {
	rec, err := perftext.Parse(strings.NewReader(textFile(t, "all.txt")))
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := rec.WriteStream(&stream); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.NewPipeReader(&stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Write(&got, r, analysis.NewSession(r, &analysis.Options{Kallsyms: kallsyms}), nil); err != nil {
		t.Fatal(err)
	}
	testutil.Golden(t, "testdata/all.default.golden", got.Bytes())
}

// FuzzWrite: whatever is in a file, printing it ends, with an error or with
// text that is harmless.
func FuzzWrite(f *testing.F) {
	f.Add(fileOf(f, textFile(f, "all.txt")))
	f.Add(fileOf(f, textFile(f, "sideband.txt")))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := perfdata.NewReader(bytes.NewReader(data), int64(len(data)), nil)
		if err != nil {
			return
		}
		var b bytes.Buffer
		_ = Write(&b, r, analysis.NewSession(r, nil), &Options{Show: ^Show(0)})
		if i := bytes.IndexFunc(b.Bytes(), func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == 0x7f }); i >= 0 {
			t.Fatalf("%q", b.Bytes()[max(0, i-50):min(b.Len(), i+50)])
		}
	})
}

// BenchmarkSamples prints call chains of 16 frames.
func BenchmarkSamples(b *testing.B) {
	const n = 10000
	var text strings.Builder
	text.WriteString("perfdata little\nevent \"cpu-clock\" type=software config=cpu-clock freq=999 sample=ip|tid|time|cpu|period|callchain|identifier flags=sample_id_all ids=7\n")
	text.WriteString("MMAP2 misc=user pid=1 tid=1 addr=0x400000 len=0x100000 pgoff=0x0 prot=read|exec flags=private \"/usr/bin/program\"\n")
	for i := range n {
		text.WriteString("SAMPLE misc=user ip=0x400000 pid=1 tid=1 time=1 cpu=0 period=1 callchain=user")
		for j := range 16 {
			text.WriteString(",0x" + string(appendHex(nil, uint64(0x400000+(i*7+j*977)%4096*16), 0)))
		}
		text.WriteString("\n")
	}
	data := fileOf(b, text.String())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, err := perfdata.NewReader(bytes.NewReader(data), int64(len(data)), nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := Write(io.Discard, r, analysis.NewSession(r, nil), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/sample")
}
