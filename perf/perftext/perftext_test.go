// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func readAll(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/all.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func mustParse(t testing.TB, text string) *Recording {
	t.Helper()
	rec, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return rec
}

func textOf(t testing.TB, rec *Recording) string {
	t.Helper()
	var b strings.Builder
	if err := rec.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAll: a text with every record and every field is printed as it is, and
// so is what its bytes decode to.
func TestAll(t *testing.T) {
	text := readAll(t)
	rec := mustParse(t, text)
	if diff := cmp.Diff(text, textOf(t, rec)); diff != "" {
		t.Errorf("not printed as it was read (-want +got):\n%s", diff)
	}
	seen := make(map[perf.RecordType]bool)
	for _, o := range []perf.Order{perf.LittleEndian, perf.BigEndian} {
		decoded := *rec
		decoded.Records = nil
		for i := range rec.Records {
			r := &rec.Records[i]
			seen[r.RecordType()] = true
			raw, err := r.Append(nil, o)
			if err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			if isUnknown(r.Record) {
				decoded.Records = append(decoded.Records, *r)
				continue
			}
			v, err := perf.Decode(raw, o, r.Event)
			if err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			decoded.Records = append(decoded.Records, Record{v, r.Event})
		}
		if diff := cmp.Diff(text, textOf(t, &decoded)); diff != "" {
			t.Errorf("%v: not printed as it was encoded (-want +got):\n%s", o, diff)
		}
	}
	for typ := range perf.RecordType(100) {
		if typ.Known() && !seen[typ] {
			t.Errorf("%v is not in testdata/all.txt", typ)
		}
	}
}

// TestNamesComplete: every flag that package perf knows has a name.
func TestNamesComplete(t *testing.T) {
	for _, c := range []struct {
		names []name
		last  uint64
		known int
	}{
		{sampleNames(), uint64(perf.SampleWeightStruct), 25},
		{readNames(), uint64(perf.FormatLost), 5},
		{branchNames(), uint64(perf.BranchCounters), 20},
		{attrNames(), uint64(perf.AttrDeferOutput), 37}, // without freq and precise_ip
	} {
		if got := c.names[len(c.names)-1].bits; got != c.last || len(c.names) != c.known {
			t.Errorf("%d names up to %#x (%s), want %d up to %#x", len(c.names), got, c.names[len(c.names)-1].name, c.known, c.last)
		}
	}
}

// memFile is a perfdata.File in memory.
type memFile struct{ b []byte }

func (m *memFile) Write(p []byte) (int, error) {
	m.b = append(m.b, p...)
	return len(p), nil
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	if grow := int(off) + len(p) - len(m.b); grow > 0 {
		m.b = append(m.b, make([]byte, grow)...)
	}
	return copy(m.b[off:], p), nil
}

const small = `feature TRACING_DATA long=8 page=4096 "0.6"
feature TRACING_DATA file=format "name: sys_enter\nID: 22\nformat:\n" "raw_syscalls"
feature HOSTNAME "vm"
feature OSRELEASE "6.18"
event "cpu-clock" type=software config=cpu-clock freq=999 sample=ip|tid|time|callchain|cpu|identifier flags=sample_id_all size=128 ids=7,8
event "raw_syscalls:sys_enter" type=tracepoint config=0x16 sample=ip|tid|time|cpu|raw|identifier flags=sample_id_all size=128 ids=9
COMM misc=user pid=1 tid=1 "init" @time=3
SAMPLE misc=user ip=0x401000 pid=1 tid=1 time=4 cpu=0 id=8 callchain=user,0x401000,0x402000
SAMPLE ev=1 misc=kernel ip=0xffffffff81000000 pid=1 tid=1 time=5 cpu=1 raw=160000000000000001000000
FINISHED_ROUND
RECORD_99 bytes=0102030405060708
`

// TestFile: text to perf.data to text gives the same text.
func TestFile(t *testing.T) {
	for _, header := range []string{"perfdata little\n", "perfdata big\n"} {
		text := header + small
		rec := mustParse(t, text)
		var f memFile
		if err := rec.WriteData(&f); err != nil {
			t.Fatal(err)
		}
		r, err := perfdata.NewReader(bytes.NewReader(f.b), int64(len(f.b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		if err := Write(&got, r); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, got.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// TestStream is TestFile through a pipe, where features follow the records.
func TestStream(t *testing.T) {
	rec := mustParse(t, "perfdata little pipe\n"+small)
	var b bytes.Buffer
	if err := rec.WriteStream(&b); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.NewPipeReader(&b, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Write(&text, r); err != nil {
		t.Fatal(err)
	}
	got := mustParse(t, text.String())
	if !got.Pipe || !reflect.DeepEqual(got.Features.TracingData, rec.Features.TracingData) || got.Features.Hostname != "vm" {
		t.Errorf("features differ:\n%s", &text)
	}
	for _, line := range strings.Split(strings.TrimSuffix(small, "\n"), "\n") {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("missing: %s\nin\n%s", line, &text)
		}
	}
}

// TestUndecoded: what cannot be decoded is kept as bytes.
func TestUndecoded(t *testing.T) {
	rec := mustParse(t, "perfdata little\n"+small)
	ev := rec.Events[0]
	raw, err := perf.Append(nil, &perf.Sample{ID: 7, Callchain: []uint64{1}}, perf.LittleEndian, ev)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-16] = 200 // entries of the callchain
	rec.Records = []Record{{&perf.Unknown{Type: perf.RecordSample, Data: raw[perf.HeaderSize:]}, nil}}
	var f memFile
	if err := rec.WriteData(&f); err != nil {
		t.Fatal(err)
	}
	r, err := perfdata.NewReader(bytes.NewReader(f.b), int64(len(f.b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := Write(&text, r); err != nil {
		t.Fatal(err)
	}
	again := mustParse(t, text.String())
	got, err := again.Records[0].Append(nil, perf.LittleEndian)
	if err != nil || !bytes.Equal(got, raw) {
		t.Errorf("%v\ngot  %x\nwant %x\nfrom %s", err, got, raw, &text)
	}
}

func TestErrors(t *testing.T) {
	event := "perfdata little\nevent \"x\" sample=ip|tid ids=1\n"
	for _, c := range []struct{ text, want string }{
		{"", "1:1: malformed text: no line that starts with perfdata"},
		{"# only a comment\n", "1:1: malformed text: no line"},
		{"SAMPLE\n", "1:1: malformed text: the first line starts with perfdata"},
		{"perfdata\n", "1:9: malformed text: little or big is missing"},
		{"perfdata middle\n", `1:10: malformed text: "middle" does not belong here`},
		{"perfdata little\nNOPE\n", `2:1: malformed text: no record is called "NOPE"`},
		{"perfdata little\nfeature\n", "2:8: malformed text: the name of the feature"},
		{"perfdata little\nfeature NOPE\n", `2:9: malformed text: no feature is called "NOPE"`},
		{"perfdata little\nfeature EVENT_DESC\n", "2:9: malformed text: no feature is called"},
		{"perfdata little\nfeature AUXTRACE\n", "2:17: malformed text: AUXTRACE takes bytes="},
		{"perfdata little\nSAMPLE ip=1\n", "2:12: malformed text: a sample needs an event"},
		{event + "SAMPLE ip=1 ip=2\n", "3:13: malformed text: ip is given twice"},
		{event + "SAMPLE cgroup=2\n", "3:8: malformed text: cgroup is given twice, or is no field"},
		{event + "SAMPLE ev=1\n", "3:12: malformed text: ev=1, but there are 1 events"},
		{event + "SAMPLE ip=12x\n", "3:11: malformed text: ip=12x is not a number"},
		{event + "SAMPLE pid=4294967296\n", "3:12: malformed text: pid=4294967296 is not a number of 32 bits"},
		{event + "SAMPLE misc=wrong\n", `3:13: malformed text: misc: no flag is called "wrong"`},
		{event + "COMM pid=1 \"x\n", "3:12: malformed text: string without an end"},
		{event + "COMM pid=1 \"x\"y\n", "3:15: malformed text: a space is missing"},
		{event + "COMM pid=\"1\"\n", "3:10: malformed text: pid is not a string"},
		{event + "COMM pid=1 x\n", `3:12: malformed text: "x" does not belong here`},
		{event + "NAMESPACES links=uts:1/2\n", `3:18: malformed text: links: "uts:1/2" is not net:DEV/INODE`},
		{event + "BPF_EVENT tag=00\n", "3:17: malformed text: a tag has 8 bytes"},
		{event + "MMAP2 misc=build_id build_id=0\n", "3:30: malformed text: build_id: encoding/hex: odd length"},
		{event + "event \"y\" size=63\n", "3:18: malformed text: an attr cannot have size=63"},
		{event + "THREAD_MAP pids=1\n", "3:18: malformed text: 1 pids and 0 names"},
	} {
		_, err := Parse(strings.NewReader(c.text))
		var pos *Error
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !errors.Is(err, ErrSyntax) || !errors.As(err, &pos) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestDefaults: what a person may leave out, and how it may be written.
func TestDefaults(t *testing.T) {
	rec := mustParse(t, `
# a comment
perfdata little
event "x" sample=ip|tid|identifier|stack_user|callchain flags=sample_id_all ids=5 # here too
	SAMPLE stack=0102 tid=0x10 callchain=kernel,18446744071562067968
COMM
`)
	s := rec.Records[0].Record.(*perf.Sample)
	if s.ID != 5 || s.StackDyn != 2 || s.TID != 16 || s.Callchain[0] != perf.ContextKernel || s.Callchain[1] != 0xffffffff80000000 {
		t.Errorf("%+v", s)
	}
	if c := rec.Records[1].Record.(*perf.Comm); c.SampleID.ID != 5 {
		t.Errorf("%+v", c)
	}
}

type failingWriter struct{}

var errFull = errors.New("full")

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

// A line of many strings is read in one walk over them.
func TestManyStrings(t *testing.T) {
	const n = 300_000
	rec := mustParse(t, "perfdata little\nfeature CMDLINE"+strings.Repeat(` "x"`, n)+"\n")
	if got := len(rec.Features.CmdLine); got != n {
		t.Errorf("%d of %d strings", got, n)
	}
}

func TestWriteError(t *testing.T) {
	if err := mustParse(t, "perfdata little\n"+small).WriteText(failingWriter{}); !errors.Is(err, errFull) {
		t.Error(err)
	}
	if _, err := Parse(io.MultiReader(strings.NewReader("perfdata little\n"), failingReader{})); !errors.Is(err, errFull) {
		t.Error(err)
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errFull }

// FuzzPerftext: a recording xor an error; what is printed reads back and is
// printed the same, and encodes to the same bytes.
func FuzzPerftext(f *testing.F) {
	all := readAll(f)
	f.Add(all)
	f.Add("perfdata big pipe\n" + small)
	head, records, _ := strings.Cut(all, "MMAP ")
	for line := range strings.Lines("MMAP " + records) {
		f.Add("perfdata little\n" + head[strings.Index(head, "event "):] + line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := Parse(strings.NewReader(text))
		if (rec == nil) == (err == nil) {
			t.Fatalf("value %v and error %v", rec, err)
		}
		if err != nil {
			return
		}
		printed := textOf(t, rec)
		again := mustParse(t, printed)
		if twice := textOf(t, again); twice != printed {
			t.Fatalf("printed differently:\n%s\n%s", printed, twice)
		}
		if len(again.Records) != len(rec.Records) {
			t.Fatalf("%d records, then %d", len(rec.Records), len(again.Records))
		}
		for i := range rec.Records {
			a, err1 := rec.Records[i].Append(nil, rec.Order)
			b, err2 := again.Records[i].Append(nil, rec.Order)
			if (err1 == nil) != (err2 == nil) || !bytes.Equal(a, b) {
				t.Fatalf("record %d encodes to\n%x, %v\nand\n%x, %v", i, a, err1, b, err2)
			}
		}
	})
}
