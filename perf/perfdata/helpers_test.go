// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

var errFull = errors.New("no space left on device")

// memFile is a File in memory that takes at most limit bytes, if limit > 0.
type memFile struct {
	b     []byte
	pos   int // of Write
	limit int
}

func (f *memFile) Write(p []byte) (int, error) {
	n := len(p)
	if f.limit > 0 {
		n = min(n, max(0, f.limit-f.pos))
	}
	k := copy(f.b[f.pos:], p[:n])
	f.b = append(f.b, p[k:n]...)
	f.pos += n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if end := int(off) + len(p); end > len(f.b) {
		if f.limit > 0 && end > f.limit {
			return 0, errFull
		}
		f.b = append(f.b, make([]byte, end-len(f.b))...)
	}
	return copy(f.b[off:], p), nil
}

// diskFile is a memFile that can be read while it is written.
type diskFile struct{ memFile }

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.b).ReadAt(p, off)
}

// vecFile has a Writev that writes at most step bytes a call.
type vecFile struct {
	memFile
	step, calls int
}

func (f *vecFile) Writev(b [][]byte) (total int, err error) {
	f.calls++
	for _, v := range b {
		v = v[:min(len(v), f.step-total)]
		n, err := f.Write(v)
		if total += n; err != nil || total == f.step {
			return total, err
		}
	}
	return total, nil
}

const testSampleType = perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleCPU |
	perf.SamplePeriod | perf.SampleCallchain

func testAttr(typ perf.EventType, config uint64) perf.Attr {
	return perf.Attr{Type: typ, Size: perf.AttrSizeVer7, Config: config, SampleCount: 999, SampleType: testSampleType,
		Flags: perf.AttrSampleIDAll | perf.AttrFreq}
}

// testEvents are two events on two CPUs.
func testEvents() []*perf.Event {
	return []*perf.Event{
		perf.NewEvent(testAttr(perf.TypeSoftware, perf.SWCPUClock), "cpu-clock:u", 11, 12),
		perf.NewEvent(testAttr(perf.TypeSoftware, perf.SWDummy), "dummy:HG", 13, 14),
	}
}

func sample(time uint64) *perf.Sample {
	return &perf.Sample{ID: 11 + time&1, IP: 0x1000 + time, PID: 7, TID: 8, Time: time, CPU: uint32(time & 1), Period: 1,
		Callchain: []uint64{perf.ContextUser, 0x1000 + time, 0x2000}}
}

func comm(time uint64, name string) *perf.Comm {
	c := &perf.Comm{PID: 7, TID: 8, Comm: name}
	c.SampleID = perf.SampleIDInfo{PID: 7, TID: 8, Time: time, ID: 13}
	return c
}

// encode encodes rec for the events of testEvents.
func encode(t testing.TB, o perf.Order, rec perf.Record) []byte {
	t.Helper()
	ev := testEvents()
	i := 1
	if rec.RecordType() == perf.RecordSample {
		i = 0
	}
	b, err := perf.Append(nil, rec, o, ev[i])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// testRecords is two rounds: two CPUs, one after the other.
func testRecords() []perf.Record {
	return []perf.Record{
		comm(0, "before"),
		sample(10), sample(20), comm(25, "new"), sample(30),
		sample(11), sample(21), sample(31),
		&perf.FinishedRound{},
		sample(40), sample(50),
		sample(35), sample(45),
		&perf.FinishedRound{},
		sample(46),
	}
}

// testFeatures is one of everything.
func testFeatures() *Features {
	return &Features{
		Hostname: "h", OSRelease: "6.18", Version: "gantry 1", Arch: "x86_64",
		NrCPUsOnline: 2, NrCPUsAvail: 3, CPUDesc: "A CPU", CPUID: "id,1", TotalMem: 1 << 40,
		CmdLine:      []string{"gantry", "record", ""},
		CPUTopology:  &CPUTopology{Cores: []string{"0-2"}, Threads: []string{"0", "1", "2"}, CPUs: []CPULocation{{0, 0, 0}, {1, 0, 0}, {0, 1, 1}}, Dies: []string{"0-1", "2"}},
		NUMATopology: []NUMANode{{0, 100, 50, "0-2"}}, PMUMappings: []PMU{{1, "software"}, {9, "msr"}},
		GroupDesc: []GroupDesc{{"{anon_group}", 0, 2}},
		BuildIDs: []BuildIDEntry{
			{PID: -1, Misc: perf.MiscKernel, ID: bytes.Repeat([]byte{1}, 20), Path: "[kernel.kallsyms]"},
			{PID: -1, Misc: perf.MiscUser, ID: bytes.Repeat([]byte{2}, 16), Path: "/usr/lib/" + string(bytes.Repeat([]byte{'x'}, 100))},
		},
		SampleTime: [2]uint64{10, 50}, ClockRes: 1, ClockData: &ClockData{ClockID: 1, WallNS: 1 << 60, ClockNS: 5},
		TracingData: testTracing(perf.LittleEndian).Append(nil),
		BPFProgInfo: []byte{1, 0, 0, 0, 0, 0, 0, 0}, BPFBTF: []byte{2, 0, 0, 0, 0, 0, 0, 0},
		Gantry: []byte(`{"version":1}`),
		Raw:    map[FeatureID][]byte{FeatureMemTopology: {1, 2, 3, 4, 5, 6, 7, 8}, 77: {}},
	}
}

// write makes a file of the records.
func write(t testing.TB, o *WriterOptions, records []perf.Record, f *Features) []byte {
	t.Helper()
	var m memFile
	ev := testEvents()
	w, err := NewWriter(&m, ev, o)
	if err != nil {
		t.Fatal(err)
	}
	writeRecords(t, w, ev, records)
	if err := w.Close(f); err != nil {
		t.Fatal(err)
	}
	return m.b
}

func writeRecords(t testing.TB, w *Writer, ev []*perf.Event, records []perf.Record) {
	t.Helper()
	for _, rec := range records {
		var err error
		switch rec := rec.(type) {
		case *perf.FinishedRound:
			err = w.FinishRound()
		case *perf.Sample:
			err = w.WriteRecord(rec, ev[0])
		default:
			err = w.WriteRecord(rec, ev[1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writePipe(t testing.TB, o *WriterOptions, records []perf.Record, f *Features) []byte {
	t.Helper()
	var m bytes.Buffer
	ev := testEvents()
	w, err := NewPipeWriter(&m, ev, o)
	if err != nil {
		t.Fatal(err)
	}
	writeRecords(t, w, ev, records)
	if err := w.Close(f); err != nil {
		t.Fatal(err)
	}
	return m.Bytes()
}

// kept is a record that outlives the reader's next call.
type kept struct {
	Record
	Name string // of the event
}

func keep(rec *Record) kept {
	k := kept{Record: *rec}
	k.Raw = slices.Clone(rec.Raw)
	if rec.Event != nil {
		k.Name = rec.Event.Name
	}
	k.Event = nil
	return k
}

// readAll reads until the end; the error is nil at io.EOF.
func readAll(next func() (*Record, error)) (l []kept, err error) {
	for {
		rec, err := next()
		if err == io.EOF {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		l = append(l, keep(rec))
	}
}

func open(t testing.TB, b []byte, o *ReaderOptions) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(b), int64(len(b)), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func mustReadAll(t testing.TB, next func() (*Record, error)) []kept {
	t.Helper()
	l, err := readAll(next)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func raws(l []kept, keep func(perf.RecordType) bool) (out [][]byte) {
	for _, k := range l {
		if keep == nil || keep(k.Type) {
			out = append(out, k.Raw)
		}
	}
	return out
}

// encodeAll encodes the records as the Writer does.
func encodeAll(t testing.TB, o perf.Order, records []perf.Record) (out [][]byte) {
	for _, rec := range records {
		out = append(out, encode(t, o, rec))
	}
	return out
}

func noWarnings(t testing.TB, r *Reader) {
	t.Helper()
	for _, w := range r.Warnings() {
		t.Errorf("warning: %v", w)
	}
}

func hasWarning(r *Reader, kind WarningKind) bool {
	return slices.ContainsFunc(r.Warnings(), func(w Warning) bool { return w.Kind == kind })
}

// oneByte reads one byte at a time.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

func testTracing(o perf.Order) *TracingData {
	return &TracingData{
		Version: "0.6", Order: o, LongSize: 8, PageSize: 4096,
		HeaderPage: []byte("\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"), HeaderEvent: []byte("# compressed entry header\n"),
		Systems: []TracingSystem{
			{"sched", [][]byte{[]byte(switchFormat)}},
			{"net", [][]byte{[]byte(netFormat), []byte(relFormat)}},
		},
		Printk: []byte("0xffff : \"x\"\n"), Cmdlines: []byte("1 init\n"),
	}
}

const commonFields = `format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

`

const switchFormat = `name: sched_switch
ID: 372
` + commonFields + `	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:int prev_prio;	offset:28;	size:4;	signed:1;
	field:long prev_state;	offset:32;	size:8;	signed:1;

print fmt: "prev_comm=%s prev_pid=%d", REC->prev_comm, REC->prev_pid
`

const netFormat = `name: net_dev_queue
ID: 1500
` + commonFields + `	field:void * skbaddr;	offset:8;	size:8;	signed:0;
	field:unsigned int len;	offset:16;	size:4;	signed:0;
	field:__data_loc char[] name;	offset:20;	size:4;	signed:0;
	field:u16 ports[2];	offset:24;	size:4;	signed:0;
	field:__u8 addr[4];	offset:28;	size:4;	signed:0;

print fmt: "dev=%s", __get_str(name)
`

const relFormat = `name: rel
ID: 1501
` + commonFields + `	field:__rel_loc unsigned int[] list;	offset:8;	size:4;	signed:0;

print fmt: ""
`
