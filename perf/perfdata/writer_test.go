// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/perf"
)

var orders = []perf.Order{perf.LittleEndian, perf.BigEndian}

func TestFileRoundTrip(t *testing.T) {
	for _, o := range orders {
		for _, level := range []int{0, 1, 9} {
			b := write(t, &WriterOptions{Order: o, Compress: level}, testRecords(), testFeatures())
			r := open(t, b, nil)
			got := mustReadAll(t, r.Next)
			noWarnings(t, r)
			if diff := cmp.Diff(encodeAll(t, o, testRecords()), raws(got, nil)); diff != "" {
				t.Errorf("%v, level %d: records (-want +got):\n%s", o, level, diff)
			}
			checkFeatures(t, r, level > 0)
			checkEvents(t, r.Events())
		}
	}
}

func checkFeatures(t *testing.T, r *Reader, compressed bool) {
	t.Helper()
	want := testFeatures()
	for _, ev := range testEvents() {
		want.EventDesc = append(want.EventDesc, EventDesc{Attr: ev.Attr, Name: ev.Name, IDs: ev.IDs})
	}
	got := *r.Features()
	if compressed != (got.Compressed != nil) {
		t.Errorf("compressed %v, feature %+v", compressed, got.Compressed)
	}
	got.Compressed = nil
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
	if !got.Has(FeatureGantry) || !got.Has(77) || got.Has(FeatureStat) {
		t.Errorf("features are %v", got.IDs())
	}
}

func checkEvents(t *testing.T, got *perf.Events) {
	t.Helper()
	want := testEvents()
	for i, ev := range got.List() {
		if diff := cmp.Diff([]any{want[i].Attr, want[i].Name, want[i].IDs}, []any{ev.Attr, ev.Name, ev.IDs}); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
	if len(got.List()) != len(want) {
		t.Errorf("%d events, want %d", len(got.List()), len(want))
	}
}

func TestPipeRoundTrip(t *testing.T) {
	for _, o := range orders {
		for _, level := range []int{0, 3} {
			early := &Features{Hostname: "h", NrCPUsAvail: 3, TracingData: testFeatures().TracingData}
			b := writePipe(t, &WriterOptions{Order: o, Compress: level, Features: early}, testRecords(), testFeatures())
			file := open(t, b, nil)
			stream, err := NewPipeReader(oneByte{bytes.NewReader(b)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, r := range map[string]*Reader{"file": file, "stream": stream} {
				checkEvents(t, r.Events()) // known before the first Next
				if r.Features().Hostname != "h" || len(r.Features().TracingData) == 0 {
					t.Errorf("%s: early features are %v", name, r.Features().IDs())
				}
				got := mustReadAll(t, r.Next)
				noWarnings(t, r)
				want := encodeAll(t, o, testRecords())
				notHeader := func(t perf.RecordType) bool {
					return t == perf.RecordFinishedRound || t < perf.RecordHeaderAttr
				}
				if diff := cmp.Diff(want, raws(got, notHeader)); diff != "" {
					t.Errorf("%s, %v, level %d: records (-want +got):\n%s", name, o, level, diff)
				}
				checkPipeFeatures(t, r)
			}
		}
	}
}

// checkPipeFeatures compares what survives the padding of records.
func checkPipeFeatures(t *testing.T, r *Reader) {
	t.Helper()
	got, want := *r.Features(), testFeatures()
	got.Compressed, got.EventDesc = nil, nil
	delete(want.Raw, 77) // an empty feature is taken for the end mark
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}

// TestPipeLargeFeatures: what does not fit into a record.
func TestPipeLargeFeatures(t *testing.T) {
	var m bytes.Buffer
	w, err := NewPipeWriter(&m, testEvents(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(`{"x":"` + string(bytes.Repeat([]byte("y"), 200_001)) + `"}`)
	if err := w.Close(&Features{Gantry: want, BPFBTF: make([]byte, 70_000)}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]FeatureID{FeatureBPFBTF}, w.Omitted()); diff != "" {
		t.Errorf("omitted (-want +got):\n%s", diff)
	}
	r := open(t, m.Bytes(), nil)
	mustReadAll(t, r.Next)
	noWarnings(t, r)
	if !bytes.Equal(r.Features().Gantry, want) {
		t.Errorf("gantry's feature has %d bytes, want %d", len(r.Features().Gantry), len(want))
	}
}

// TestKilled: without Close, everything up to the last round is there.
func TestKilled(t *testing.T) {
	var m memFile
	ev := testEvents()
	w, err := NewWriter(&m, ev, nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := bytes.Clone(m.b)
	writeRecords(t, w, ev, testRecords()) // ends behind the last round
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r := open(t, m.b, nil)
	got := mustReadAll(t, r.Next)
	all := encodeAll(t, perf.LittleEndian, testRecords())
	if diff := cmp.Diff(all[:len(all)-1], raws(got, nil)); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if !hasWarning(r, WarnUnfinished) {
		t.Errorf("warnings are %v", r.Warnings())
	}
	// Within a round as well, if that is asked for.
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r = open(t, m.b, nil)
	if diff := cmp.Diff(all, raws(mustReadAll(t, r.Next), nil)); diff != "" {
		t.Errorf("records after Commit (-want +got):\n%s", diff)
	}
	r = open(t, empty, nil)
	if got := mustReadAll(t, r.Next); len(got) != 0 || !hasWarning(r, WarnUnfinished) {
		t.Errorf("an empty file: %d records, warnings %v", len(got), r.Warnings())
	}
}

// TestFull: a file system that is full after any number of bytes leaves a file
// with the whole records before.
func TestFull(t *testing.T) {
	for name, o := range map[string]*WriterOptions{"features at the end": nil, "features early": {Features: testFeatures()}} {
		t.Run(name, func(t *testing.T) { testFull(t, o) })
	}
}

func testFull(t *testing.T, o *WriterOptions) {
	all := testRecords()
	full := write(t, o, all, testFeatures())
	start := int(open(t, full, nil).in.pos)
	slack := 100
	if o != nil { // records make room for the table, which is behind two of them
		slack = 2*sectionSize*(len(o.Features.IDs())+1) + 2*largest(mustReadAll(t, open(t, full, nil).Next))
	}
	for limit := 1; limit < len(full); limit++ {
		m := &diskFile{memFile{limit: limit}}
		ev := testEvents()
		w, err := NewWriter(m, ev, o)
		if limit < start {
			if !errors.Is(err, errFull) {
				t.Fatalf("limit %d: %v", limit, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("limit %d: %v", limit, err)
		}
		for i, rec := range all {
			of := ev[1]
			if rec.RecordType() == perf.RecordSample {
				of = ev[0]
			}
			if err = w.WriteRecord(rec, of); err == nil && i%2 == 0 {
				err = w.Commit()
			}
			if err != nil {
				break
			}
		}
		if cerr := w.Close(testFeatures()); !errors.Is(cerr, errFull) {
			t.Fatalf("limit %d: write %v, close %v", limit, err, cerr)
		}
		r := open(t, m.b, nil)
		got := mustReadAll(t, r.Next)
		for i, k := range got {
			if want := full[k.Offset:][:k.Size]; !bytes.Equal(k.Raw, want) {
				t.Fatalf("limit %d: record %d is %x, want %x", limit, i, k.Raw, want)
			}
		}
		if len(got) < len(all) && start+size(got)+slack < limit {
			t.Fatalf("limit %d: only %d records of %d bytes behind %d, slack %d", limit, len(got), size(got), start, slack)
		}
	}
}

func largest(list []kept) (n int) {
	for _, k := range list {
		n = max(n, len(k.Raw))
	}
	return n
}

// TestFullKeepsFeatures: of a file that fills the disk the last rounds are
// given up for the features.
func TestFullKeepsFeatures(t *testing.T) {
	m := &memFile{limit: 20_000}
	ev := testEvents()
	w, err := NewWriter(m, ev, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for err == nil {
		err = w.WriteRecord(sample(uint64(n+1)), ev[0])
		if n++; n%20 == 0 && err == nil {
			err = w.FinishRound()
		}
	}
	if cerr := w.Close(testFeatures()); !errors.Is(cerr, errFull) {
		t.Fatalf("write %v, close %v", err, cerr)
	}
	r := open(t, m.b, nil)
	got := mustReadAll(t, r.Next)
	noWarnings(t, r)
	if r.Features().Hostname != testFeatures().Hostname || !bytes.Equal(r.Features().TracingData, testFeatures().TracingData) {
		t.Errorf("features are %+v", r.Features())
	}
	if len(got) < 100 || got[len(got)-1].Type != perf.RecordFinishedRound {
		t.Errorf("%d records of %d, the last a %v", len(got), n, got[len(got)-1].Type)
	}
}

func size(l []kept) (n int) {
	for _, k := range l {
		n += len(k.Raw)
	}
	return n
}

func TestWritev(t *testing.T) {
	rec := encode(t, perf.LittleEndian, sample(5))
	ring := bytes.Repeat(rec, 3000)
	for _, step := range []int{1 << 20, 100_000, 4093} {
		f := &vecFile{step: step}
		w, err := NewWriter(f, testEvents(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cut := len(rec)*1000 + 5 // a record goes around the end of the ring
		if err := w.Write(ring[:cut], ring[cut:]); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(nil); err != nil {
			t.Fatal(err)
		}
		if want := (len(ring) + step - 1) / step; f.calls != want {
			t.Errorf("step %d: %d calls, want %d", step, f.calls, want)
		}
		if got := mustReadAll(t, open(t, f.b, nil).Next); len(got) != 3000 {
			t.Errorf("step %d: %d records", step, len(got))
		}
	}
}

// A file whose writer is killed after a round has the features that were known
// at its start, and within a round none but all records.
func TestEarlyFeatures(t *testing.T) {
	early := testFeatures()
	rec := encode(t, perf.LittleEndian, sample(5))
	var m memFile
	w, err := NewWriter(&m, testEvents(), &WriterOptions{Features: early})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string, records int, features bool) {
		t.Helper()
		r := open(t, bytes.Clone(m.b), nil)
		if got := len(mustReadAll(t, r.Next)); got != records {
			t.Errorf("%s: %d records, want %d", when, got, records)
		}
		if got := r.Features().Hostname != ""; got != features {
			t.Errorf("%s: features are there: %v", when, got)
		}
	}
	check("at the start", 0, false)
	if err := w.WriteRound(rec, rec); err != nil {
		t.Fatal(err)
	}
	check("after a round", 3, true)
	if err := errors.Join(w.Write(bytes.Repeat(rec, 500)), w.Flush()); err != nil {
		t.Fatal(err)
	}
	check("within a round", 3, false)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	check("after a part of a round", 503, true)
	// Sections that are known later, one in place of an early one.
	btf := []byte("of a program that was loaded meanwhile")
	w.CheckpointFeatures(map[FeatureID][]byte{FeatureBPFBTF: btf, FeatureBPFProgInfo: {0, 0, 0, 0}})
	if err := w.WriteRound(rec); err != nil {
		t.Fatal(err)
	}
	check("with later features", 505, true)
	if f := open(t, bytes.Clone(m.b), nil).Features(); !bytes.Equal(f.BPFBTF, btf) || len(f.BPFProgInfo) != 4 || !bytes.Equal(f.TracingData, early.TracingData) {
		t.Errorf("later features: %q, %d bytes of programs", f.BPFBTF, len(f.BPFProgInfo))
	}
	if err := errors.Join(w.Write(rec), w.Flush()); err != nil {
		t.Fatal(err)
	}
	check("within a round after them", 505, false)
	size := len(m.b)
	final := *early
	final.CmdLine = []string{"at", "the", "end"}
	if err := w.Close(&final); err != nil {
		t.Fatal(err)
	}
	check("at the end", 506, true)
	if r := open(t, m.b, nil); !slices.Equal(r.Features().CmdLine, final.CmdLine) || !bytes.Equal(r.Features().TracingData, early.TracingData) {
		t.Errorf("features at the end: %+v", r.Features())
	}
	if grown := len(m.b) - size; grown >= len(early.TracingData) {
		t.Errorf("%d bytes more at the end: what has not changed was written again", grown)
	}
}

// A round in one call is what it is in two.
func TestWriteRound(t *testing.T) {
	rec := encode(t, perf.LittleEndian, sample(5))
	ring := bytes.Repeat(rec, 300)
	for _, level := range []int{0, 1} {
		var files [2]memFile
		for i := range files {
			w, err := NewWriter(&files[i], testEvents(), &WriterOptions{Compress: level})
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range []int{0, 10, len(rec), len(ring)} {
				if i == 0 {
					err = w.WriteRound(ring[:cut], ring[cut:])
				} else {
					err = errors.Join(w.Write(ring[:cut], ring[cut:]), w.FinishRound())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(nil); err != nil {
				t.Fatal(err)
			}
			if err := w.WriteRound(rec); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("WriteRound after Close: %v", err)
			}
		}
		if !bytes.Equal(files[0].b, files[1].b) {
			t.Errorf("level %d: the files differ", level)
		}
	}
}

func TestWriterClosed(t *testing.T) {
	var m memFile
	w, err := NewWriter(&m, testEvents(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(nil), w.Close(nil)); err != nil {
		t.Error(err)
	}
	if err := w.FinishRound(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("FinishRound after Close: %v", err)
	}
	if err := w.Write([]byte("x")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

// TestCompressedSize: perf unpacks a record into a buffer of MmapLen bytes, and
// a record ends at 64 KiB.
func TestCompressedSize(t *testing.T) {
	var m memFile
	w, err := NewWriter(&m, testEvents(), &WriterOptions{Compress: 1})
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]uint64, 500)
	var x uint64 = 1
	var want [][]byte
	for range 400 {
		for i := range noise {
			x = x*6364136223846793005 + 1442695040888963407
			noise[i] = x >> 1
		}
		s := sample(x >> 2)
		s.Callchain = noise
		want = append(want, encode(t, perf.LittleEndian, s))
		if err := w.Write(want[len(want)-1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	r := open(t, m.b, nil)
	if !slices.EqualFunc(want, raws(mustReadAll(t, r.Next), nil), bytes.Equal) {
		t.Error("records differ")
	}
	noWarnings(t, r)
}

func TestWriteError(t *testing.T) {
	w, err := NewPipeWriter(io.Discard, testEvents(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// An encoding error concerns one record, not the stream.
	if err := w.WriteRecord(&perf.Comm{Comm: string(make([]byte, 1<<16))}, nil); err == nil {
		t.Error("a record of more than 64 KiB was taken")
	}
	if err := w.WriteRecord(comm(1, "x"), testEvents()[1]); err != nil {
		t.Error(err)
	}
	if err := w.Close(nil); err != nil {
		t.Error(err)
	}
	ids := make([]uint64, 10_000)
	if _, err := NewPipeWriter(io.Discard, []*perf.Event{perf.NewEvent(testAttr(1, 0), "x", ids...)}, nil); err == nil {
		t.Error("an event of 10,000 ids was put in one record")
	}
}

// TestGantryAmongTheData: the section counts in a stream, and in a file that
// was not finished; that of the features is newer.
func TestGantryAmongTheData(t *testing.T) {
	ev := perf.NewEvent(perf.Attr{SampleType: perf.SampleIP, Flags: perf.AttrSampleIDAll}, "x")
	first, second := bytes.Repeat([]byte("one"), 50_000), []byte("two")
	for _, finished := range []bool{true, false} {
		f := new(memFile)
		w, err := NewWriter(f, []*perf.Event{ev}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range [][]byte{first, second} {
			if err := w.WriteGantry(section); err != nil {
				t.Fatal(err)
			}
		}
		want := "two"
		if err := w.FinishRound(); err != nil {
			t.Fatal(err)
		}
		if finished {
			want = "three"
			if err := w.Close(&Features{Gantry: []byte(want)}); err != nil {
				t.Fatal(err)
			}
		}
		r, err := NewReader(bytes.NewReader(f.b), int64(len(f.b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if got := string(r.Features().Gantry); got != want || (r.GantryChanges() > 0) == finished {
			t.Errorf("finished %v: %.10q after %d changes, want %q", finished, got, r.GantryChanges(), want)
		}
	}
}
