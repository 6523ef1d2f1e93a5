// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gantry-tools/gantry/perf"
)

// content is what a recording says, without where and how.
type content struct {
	records  [][]byte
	features Features
	attrs    []perf.Attr
	names    []string
	ids      [][]uint64
}

func contentOf(r *Reader, l []kept) content {
	c := content{features: *r.Features()}
	for _, k := range l {
		switch k.Type {
		case perf.RecordHeaderAttr, perf.RecordHeaderFeature, perf.RecordHeaderTracingData, perf.RecordHeaderBuildID,
			perf.RecordAuxtrace: // in a stream, or with a payload
		default:
			c.records = append(c.records, k.Raw)
		}
	}
	for _, ev := range r.Events().List() {
		c.attrs = append(c.attrs, compact(ev.Attr, r.Order()))
		c.names = append(c.names, ev.Name)
		c.ids = append(c.ids, slices.Clone(ev.IDs))
	}
	c.features.Compressed = nil
	if c.features.EventDesc == nil {
		for i, a := range c.attrs {
			c.features.EventDesc = append(c.features.EventDesc, EventDesc{Attr: a, Name: c.names[i], IDs: c.ids[i]})
		}
	}
	for i := range c.features.EventDesc {
		c.features.EventDesc[i].Attr = compact(c.features.EventDesc[i].Attr, r.Order())
	}
	return c
}

// checkReader asserts what holds for any input, and returns what was read.
func checkReader(t *testing.T, r *Reader, err error) (content, bool) {
	t.Helper()
	if (r == nil) == (err == nil) {
		t.Fatalf("reader %v and error %v", r, err)
	}
	var e *Error
	if err != nil {
		if !errors.As(err, &e) {
			t.Fatalf("error without offset: %v", err)
		}
		return content{}, false
	}
	l, err := readAll(r.Next)
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("error without offset: %v", err)
	}
	for _, k := range l {
		if int(k.Size) != len(k.Raw) || k.Header != perf.ParseHeader(k.Raw, r.Order()) || k.Offset < 0 {
			t.Fatalf("record %+v", k)
		}
	}
	if r.blocks.held > 4<<20 {
		t.Fatalf("%d bytes held", r.blocks.held)
	}
	return contentOf(r, l), err == nil
}

// checkOrdered asserts that time order delivers the same records, sorted but for
// those it counts.
func checkOrdered(t *testing.T, r *Reader, err error, want content) {
	t.Helper()
	if err != nil {
		t.Fatalf("the second time: %v", err)
	}
	l := mustReadAll(t, r.Ordered().Next)
	got := contentOf(r, l).records
	if n := late(l); n != warned(r, WarnOutOfOrder) {
		t.Fatalf("%d records late, warnings %v", n, r.Warnings())
	}
	sorted := func(l [][]byte) [][]byte {
		l = slices.Clone(l)
		slices.SortFunc(l, bytes.Compare)
		return l
	}
	if !slices.EqualFunc(sorted(want.records), sorted(got), bytes.Equal) {
		t.Fatal("time order delivers other records than file order")
	}
}

// checkRewritten writes what was read as a file and reads that.
func checkRewritten(t *testing.T, o perf.Order, want content) {
	t.Helper()
	var m memFile
	var events []*perf.Event
	for i := range want.attrs {
		events = append(events, perf.NewEvent(want.attrs[i], want.names[i], want.ids[i]...))
	}
	w, err := NewWriter(&m, events, &WriterOptions{Order: o})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(want.records...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(&want.features); err != nil {
		if errors.Is(err, ErrTooLarge) {
			return // padding can make a record of 64 KiB larger
		}
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(m.b), int64(len(m.b)), nil)
	got, ok := checkReader(t, r, err)
	if !ok {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	opts := []cmp.Option{cmp.AllowUnexported(content{}), cmpopts.EquateEmpty()}
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Fatalf("written and read again (-want +got):\n%s", diff)
	}
}

func addSeeds(f *testing.F, pipe bool) {
	for _, o := range orders {
		for _, level := range []int{0, 1} {
			opts := &WriterOptions{Order: o, Compress: level}
			if pipe {
				f.Add(writePipe(f, opts, testRecords(), testFeatures()))
			} else {
				f.Add(write(f, opts, testRecords(), testFeatures()))
				f.Add(write(f, opts, nil, nil))
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	addSeeds(f, false)
	f.Fuzz(func(t *testing.T, b []byte) {
		start := func() (*Reader, error) { return NewReader(bytes.NewReader(b), int64(len(b)), nil) }
		r, err := start()
		c, ok := checkReader(t, r, err)
		if !ok || r.pipe {
			return
		}
		r2, err := start()
		checkOrdered(t, r2, err, c)
		if sane(r, c) {
			checkRewritten(t, r.Order(), c)
		}
	})
}

// sane reports whether the input can be expected to come out of a file as it went
// in: sections that were cut or doubled change.
func sane(r *Reader, c content) bool {
	if len(r.Warnings()) > 0 {
		return false
	}
	for id, b := range c.features.Raw {
		if len(b) == 0 && id < FeatureStat {
			return false
		}
	}
	return !slices.ContainsFunc(c.records, func(b []byte) bool {
		h := perf.ParseHeader(b, r.Order())
		return h.Type == perf.RecordEventUpdate
	})
}

func FuzzPipe(f *testing.F) {
	addSeeds(f, true)
	f.Fuzz(func(t *testing.T, b []byte) {
		start := func() (*Reader, error) { return NewPipeReader(bytes.NewReader(b), nil) }
		r, err := start()
		c, ok := checkReader(t, r, err)
		if !ok {
			return
		}
		r2, err := start()
		checkOrdered(t, r2, err, c)
		slow, err := NewPipeReader(oneByte{bytes.NewReader(b)}, nil)
		got, ok := checkReader(t, slow, err)
		if !ok {
			t.Fatal("byte by byte, it cannot be read")
		}
		if diff := cmp.Diff(c, got, cmp.AllowUnexported(content{})); diff != "" {
			t.Fatalf("byte by byte (-want +got):\n%s", diff)
		}
	})
}

func FuzzTracingData(f *testing.F) {
	for _, o := range orders {
		f.Add(testTracing(o).Append(nil), []byte("raw data of a sample, raw data of a sample"))
	}
	f.Fuzz(func(t *testing.T, b, raw []byte) {
		td, err := ParseTracingData(b)
		if (td == nil) == (err == nil) {
			t.Fatalf("data %v and error %v", td, err)
		}
		if err != nil {
			return
		}
		again, err := ParseTracingData(td.Append(nil))
		if err != nil {
			t.Fatalf("encoded again: %v", err)
		}
		if diff := cmp.Diff(td, again, cmp.AllowUnexported(TracingData{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("encoded again (-want +got):\n%s", diff)
		}
		for _, format := range td.byID {
			format.AppendFields(nil, raw, td.Order)
		}
	})
}
