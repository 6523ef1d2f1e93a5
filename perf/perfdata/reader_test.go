// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/perf"
)

// TestTruncated cuts a file and a stream at every byte: what is read is a
// prefix, and it is said that something is missing.
func TestTruncated(t *testing.T) {
	records := testRecords()
	all := encodeAll(t, perf.LittleEndian, records)
	features := &Features{Hostname: "h", CmdLine: []string{"x"}, BuildIDs: testFeatures().BuildIDs, NrCPUsAvail: 2}
	for name, b := range map[string][]byte{
		"file":      write(t, nil, records, features),
		"zstd":      write(t, &WriterOptions{Compress: 1}, records, features),
		"pipe":      writePipe(t, &WriterOptions{Features: features}, records, features),
		"pipe zstd": writePipe(t, &WriterOptions{Compress: 1, Features: features}, records, features),
	} {
		for n := range b {
			for _, stream := range []bool{false, true} {
				r, err := openCut(b[:n], stream)
				if (r == nil) == (err == nil) {
					t.Fatalf("%s, %d bytes: reader %v and error %v", name, n, r, err)
				}
				if err != nil {
					checkOpenError(t, err)
					continue
				}
				got, err := readAll(r.Next)
				if err != nil {
					t.Fatalf("%s, %d of %d bytes: %v", name, n, len(b), err)
				}
				checkPrefix(t, all, got)
				// A stream may end anywhere between records.
				if !r.pipe && len(r.Warnings()) == 0 {
					t.Fatalf("%s, %d of %d bytes: no warning", name, n, len(b))
				}
			}
		}
	}
}

func openCut(b []byte, stream bool) (*Reader, error) {
	if stream && len(b) >= 16 && b[8] == 16 {
		return NewPipeReader(bytes.NewReader(b), nil)
	}
	return NewReader(bytes.NewReader(b), int64(len(b)), nil)
}

func checkOpenError(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrMagic) {
		t.Fatalf("error %v", err)
	}
}

func checkPrefix(t *testing.T, all [][]byte, got []kept) {
	t.Helper()
	l := raws(got, func(t perf.RecordType) bool { return t.Kernel() || t == perf.RecordFinishedRound })
	if len(l) > len(all) || !slices.EqualFunc(all[:len(l)], l, bytes.Equal) {
		t.Fatalf("%d records that are no prefix", len(l))
	}
}

// patch changes bytes of a file.
func patch(b []byte, off int, v uint64, size int) []byte {
	b = bytes.Clone(b)
	for i := range size {
		b[off+i] = byte(v >> (8 * i))
	}
	return b
}

func TestHostileHeader(t *testing.T) {
	good := write(t, nil, testRecords(), testFeatures())
	attr := int(perf.LittleEndian.Uint64(good[24:]))
	tests := []struct {
		name string
		b    []byte
		want error
		off  int64
	}{
		{"empty", nil, ErrMagic, 0},
		{"magic", patch(good, 0, 'X', 1), ErrMagic, 0},
		{"version 1", append([]byte("PERFFILE"), good[8:]...), ErrUnsupported, 0},
		{"header size", patch(good, 8, 96, 8), ErrUnsupported, 8},
		{"attr size 0", patch(good, 16, 0, 8), ErrFormat, 16},
		{"attr size huge", patch(good, 16, 1<<63, 8), ErrFormat, 16},
		{"attrs offset", patch(good, 24, 1<<40, 8), ErrTruncated, 24},
		{"attrs overflow", patch(good, 24, 1<<64-8, 8), ErrTruncated, 24},
		{"attrs size", patch(good, 32, 145, 8), ErrFormat, 32},
		{"data offset", patch(good, 40, 1<<63, 8), ErrTruncated, 40},
		{"attr says 4", patch(good, attr+4, 4, 4), ErrFormat, int64(attr)},
		{"attr says more", patch(good, attr+4, 4096, 4), ErrFormat, int64(attr)},
		{"ids offset", patch(good, attr+128, 1<<64-8, 8), ErrTruncated, int64(attr + 128)},
		{"ids size", patch(good, attr+136, 9, 8), ErrFormat, int64(attr + 128)},
	}
	for _, tt := range tests {
		r, err := NewReader(bytes.NewReader(tt.b), int64(len(tt.b)), nil)
		var e *Error
		if r != nil || !errors.As(err, &e) || !errors.Is(err, tt.want) || e.Offset != tt.off {
			t.Errorf("%s: %v, want %v at %d", tt.name, err, tt.want, tt.off)
		}
	}
}

// TestBadRecordSize: records up to the bad one, then an error with its offset.
func TestBadRecordSize(t *testing.T) {
	b := write(t, nil, testRecords(), nil)
	at := mustReadAll(t, open(t, b, nil).Next)[4].Offset
	for _, size := range []uint64{0, 7} {
		r := open(t, patch(b, int(at)+6, size, 2), nil)
		got, err := readAll(r.Next)
		var e *Error
		if len(got) != 4 || !errors.As(err, &e) || !errors.Is(err, ErrFormat) || e.Offset != at {
			t.Errorf("size %d: %d records, %v", size, len(got), err)
		}
		if _, again := r.Next(); again != err {
			t.Errorf("the next call says %v", again)
		}
	}
	// Too long a record takes the ones behind it in, until the end cuts it.
	r := open(t, patch(b, int(at)+6, 0xffff, 2), nil)
	if got := mustReadAll(t, r.Next); len(got) != 4 || !hasWarning(r, WarnTruncated) {
		t.Errorf("%d records, warnings %v", len(got), r.Warnings())
	}
	if w := r.Warnings()[0]; w.Offset != at {
		t.Errorf("warning at %d, want %d", w.Offset, at)
	}
}

// TestNoDataSize: a recorder that was killed before it knew the size.
func TestNoDataSize(t *testing.T) {
	b := write(t, nil, testRecords(), nil)
	n := open(t, b, nil).in.end
	b = patch(b[:n], dataSizeAt, 0, 8)
	for name, tail := range map[string][]byte{"none": nil, "zeros": make([]byte, 100), "half a record": {9, 0, 0, 0, 0, 0, 100, 0, 1, 2}} {
		r := open(t, append(bytes.Clone(b), tail...), nil)
		got := mustReadAll(t, r.Next)
		if len(got) != len(testRecords()) || !hasWarning(r, WarnUnfinished) || hasWarning(r, WarnTruncated) != (tail != nil) {
			t.Errorf("tail of %s: %d records, warnings %v", name, len(got), r.Warnings())
		}
	}
}

// raw makes a record of perf itself by hand.
func raw(typ perf.RecordType, size int, body ...byte) []byte {
	return append(perf.Header{Type: typ, Size: uint16(size)}.Append(nil, perf.LittleEndian), body...)
}

// file makes a file of records that are given as bytes.
func file(t testing.TB, data ...[]byte) []byte {
	t.Helper()
	var m memFile
	w, err := NewWriter(&m, testEvents(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(data...), w.Close(nil)); err != nil {
		t.Fatal(err)
	}
	return m.b
}

func TestUnknownRecords(t *testing.T) {
	s := encode(t, perf.LittleEndian, sample(10))
	odd := raw(900, 13, 1, 2, 3, 4, 5)
	r := open(t, file(t, odd, s, odd, raw(50, 8), s), nil)
	got := mustReadAll(t, r.Next)
	if len(got) != 5 || got[1].Time != 10 || got[4].Time != 10 {
		t.Errorf("records are %v", got)
	}
	want := []Warning{{Kind: WarnUnknownRecord, Offset: got[0].Offset, Count: 2, Text: "records of the unknown type 900, passed over"}}
	if diff := cmp.Diff(want, r.Warnings()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestUnknownID(t *testing.T) {
	s := sample(10)
	s.ID = 99
	r := open(t, file(t, encode(t, perf.LittleEndian, s), encode(t, perf.LittleEndian, sample(11))), nil)
	got := mustReadAll(t, r.Ordered().Next)
	if len(got) != 2 || got[0].Name != "" || got[0].Time != 10 || got[1].Name != "cpu-clock:u" {
		t.Errorf("records are %v", got)
	}
	if !hasWarning(r, WarnUnknownID) {
		t.Errorf("warnings are %v", r.Warnings())
	}
}

// TestAuxtrace: what follows the record is passed over, also past the end of a
// block and of the file.
func TestAuxtrace(t *testing.T) {
	s := encode(t, perf.LittleEndian, sample(10))
	aux := func(size uint64) []byte {
		b, err := perf.Append(nil, &perf.Auxtrace{Size: size}, perf.LittleEndian, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, size := range []int{0, 8, 1 << 20} {
		b := file(t, s, aux(uint64(size)), bytes.Repeat([]byte{0xff}, size), s)
		for _, o := range []*ReaderOptions{nil, {BlockSize: 1}} {
			r := open(t, b, o)
			if got := mustReadAll(t, r.Ordered().Next); len(got) != 3 {
				t.Errorf("payload of %d: %d records", size, len(got))
			}
			noWarnings(t, r)
		}
	}
	for _, size := range []uint64{1 << 20, 1<<63 - 1} {
		r := open(t, file(t, s, aux(size), s), nil)
		if got := mustReadAll(t, r.Next); len(got) != 2 || !hasWarning(r, WarnTruncated) {
			t.Errorf("payload of %d missing: %d records, warnings %v", size, len(got), r.Warnings())
		}
	}
	if _, err := readAll(open(t, file(t, aux(1<<63)), nil).Next); !errors.Is(err, ErrFormat) {
		t.Errorf("payload of 1<<63: %v", err)
	}
}

// TestNameSources: EVENT_DESC before EVENT_UPDATE before the attribute.
func TestNameSources(t *testing.T) {
	update, err := perf.Append(nil, &perf.EventUpdate{Kind: perf.EventUpdateName, ID: 11, Text: "updated"}, perf.LittleEndian, nil)
	if err != nil {
		t.Fatal(err)
	}
	described := open(t, file(t, update), nil)
	mustReadAll(t, described.Next)
	if name := described.Events().List()[0].Name; name != "cpu-clock:u" {
		t.Errorf("the described event is %q", name)
	}
	b := file(t, update)
	b = patch(b, featureMapAt, 0, 8) // no features
	r := open(t, b, nil)
	if name := r.Events().List()[0].Name; name != "cpu-clock" {
		t.Errorf("the event is %q before the update", name)
	}
	mustReadAll(t, r.Next)
	if name := r.Events().List()[0].Name; name != "updated" {
		t.Errorf("the event is %q after the update", name)
	}
}

func TestAttrNames(t *testing.T) {
	tracing, err := ParseTracingData(testTracing(perf.LittleEndian).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for want, a := range map[string]perf.Attr{
		"cycles":                {Type: perf.TypeHardware},
		"cycles:uppp":           {Type: perf.TypeHardware, Flags: (perf.AttrExcludeKernel | perf.AttrExcludeHV).WithPreciseIP(3)},
		"unknown-hardware-77":   {Type: perf.TypeHardware, Config: 77},
		"task-clock:k":          {Type: perf.TypeSoftware, Config: 1, Flags: perf.AttrExcludeUser | perf.AttrExcludeHV},
		"cpu-clock:G":           {Type: perf.TypeSoftware, Flags: perf.AttrExcludeHost},
		"sched:sched_switch":    {Type: perf.TypeTracepoint, Config: 372},
		"tracepoint:1":          {Type: perf.TypeTracepoint, Config: 1},
		"L1-dcache-load-misses": {Type: perf.TypeHWCache, Config: 1 << 16},
		"LLC-stores":            {Type: perf.TypeHWCache, Config: 1<<8 | 2},
		"LLC-prefetches":        {Type: perf.TypeHWCache, Config: 2<<8 | 2},
		"r1a8":                  {Type: perf.TypeRaw, Config: 0x1a8},
		"mem:0x1000":            {Type: perf.TypeBreakpoint, Config1: 0x1000},
		"msr/config=0x3/":       {Type: 9, Config: 3},
		"pmu10/config=0x3/":     {Type: 10, Config: 3},
	} {
		if got := attrName(&a, tracing, []PMU{{9, "msr"}}); got != want {
			t.Errorf("attrName(%+v) = %q, want %q", a, got, want)
		}
	}
}

// TestFeatureMap32: big-endian machines of 32 bits swap the words of the map.
func TestFeatureMap32(t *testing.T) {
	b := write(t, &WriterOptions{Order: perf.BigEndian}, testRecords(), testFeatures())
	want := open(t, b, nil).Features()
	for i := featureMapAt; i < headerSize; i += 8 {
		for j := range 4 {
			b[i+j], b[i+4+j] = b[i+4+j], b[i+j]
		}
	}
	r := open(t, b, nil)
	if diff := cmp.Diff(want, r.Features()); diff != "" {
		t.Errorf("features (-64 bits +32 bits):\n%s", diff)
	}
}

// TestOldHeader: before 2.6.31 there were no features.
func TestOldHeader(t *testing.T) {
	b := patch(write(t, nil, testRecords(), testFeatures()), 8, headerSizeOld, 8)
	r := open(t, b, nil)
	if got := mustReadAll(t, r.Next); len(got) != len(testRecords()) {
		t.Errorf("%d records", len(got))
	}
	if ids := r.Features().IDs(); len(ids) != 0 {
		t.Errorf("features are %v", ids)
	}
}

// TestDamagedFeature costs that feature only.
func TestDamagedFeature(t *testing.T) {
	b := write(t, nil, testRecords(), testFeatures())
	end := int(open(t, b, nil).in.end)
	ids := open(t, b, nil).Features().IDs()
	for i, id := range ids {
		entry := end + sectionSize*i
		for _, bad := range [][]byte{
			patch(b, entry, 1<<64-1, 8),          // offset
			patch(b, entry+8, 1<<64-1, 8),        // size
			patch(b, entry+8, uint64(len(b)), 8), // overlap
			patch(b, entry+8, 3, 8),              // too short
		} {
			r := open(t, bad, nil)
			if got := mustReadAll(t, r.Next); len(got) != len(testRecords()) {
				t.Errorf("%v: %d records", id, len(got))
			}
			got := r.Features().IDs()
			for _, other := range ids {
				if other != id && !slices.Contains(got, other) && r.Features().bytesField(id) == nil {
					t.Errorf("%v damaged, and %v is lost", id, other)
				}
			}
		}
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "perf.data")
	if _, err := Open(path, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(filepath.Dir(path), nil); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a directory: %v", err)
	}
	for name, b := range map[string][]byte{
		"file": write(t, nil, testRecords(), nil), "stream": writePipe(t, nil, testRecords(), nil),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
		for range 20 { // what was read before Close may still come
			if _, err = r.Next(); err != nil {
				break
			}
		}
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: Next after Close: %v", name, err)
		}
	}
}

// failing is a stream that breaks.
type failing struct{ r io.Reader }

var errBroken = errors.New("broken")

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

func TestReadError(t *testing.T) {
	b := writePipe(t, nil, testRecords(), nil)
	for _, n := range []int{0, 10, 100, len(b)} {
		r, err := NewPipeReader(failing{bytes.NewReader(b[:n])}, nil)
		if err == nil {
			_, err = readAll(r.Next)
		}
		if !errors.Is(err, errBroken) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestNoEvents: no events at all, and records all the same.
func TestNoEvents(t *testing.T) {
	var m memFile
	w, err := NewWriter(&m, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(raw(perf.RecordComm, 8)), w.Close(nil)); err != nil {
		t.Fatal(err)
	}
	r := open(t, m.b, nil)
	if got := mustReadAll(t, r.Ordered().Next); len(got) != 1 || len(r.Events().List()) != 0 {
		t.Errorf("records %v, events %v", got, r.Events().List())
	}
}
