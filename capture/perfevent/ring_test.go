// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// ringOf opens a sampling event with a ring.
func ringOf(t *testing.T, a perf.Attr, target Target, pages int) (*Event, *Ring) {
	t.Helper()
	a.SampleCount = 1
	a.SampleType |= perf.SampleIdentifier | perf.SampleTID | perf.SampleTime
	a.Flags |= perf.AttrSampleIDAll
	ev := opened(t, a, target, nil)
	ring, err := NewRing(ev, pages)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ring.Close() })
	return ev, ring
}

// drain decodes and consumes everything unread.
func drain(t *testing.T, ring *Ring, events *perf.Events) (samples int, lost uint64, wrapped bool) {
	t.Helper()
	a, b := ring.Peek()
	var scratch []byte
	for raw, err := range Records(a, b, &scratch) {
		if err != nil {
			t.Fatal(err)
		}
		rec, err := perf.Decode(raw, nativeOrder, events.Of(raw, nativeOrder))
		if err != nil {
			t.Fatal(err)
		}
		switch r := rec.(type) {
		case *perf.Sample:
			samples++
		case *perf.Lost:
			lost += r.N
		}
	}
	ring.Consume(len(a) + len(b))
	return samples, lost, len(scratch) > 0
}

func eventsOf(list ...*Event) *perf.Events {
	var all []*perf.Event
	for _, ev := range list {
		all = append(all, &perf.Event{Attr: ev.Attr, IDs: []uint64{ev.ID}, Layout: perf.NewLayout(&ev.Attr)})
	}
	return perf.NewEvents(all...)
}

// Every system call must come out once, also from records that lie across
// the end of the ring.
func TestRingWraps(t *testing.T) {
	testutil.CheckLeaks(t)
	attr := sysEnter(t)
	attr.SampleType = perf.SampleRaw // an odd size, so that records straddle
	ev, ring := ringOf(t, attr, ownThread(t), 1)
	events := eventsOf(ev)
	if ring.Size() != 4096 {
		t.Errorf("ring of %d bytes", ring.Size())
	}
	total, wraps := 0, 0
	for range 500 {
		syscalls(20)
		n, lost, wrapped := drain(t, ring, events)
		if lost != 0 {
			t.Fatalf("lost %d", lost)
		}
		total += n
		if wrapped {
			wraps++
		}
	}
	if total != 500*20 {
		t.Errorf("%d samples of %d system calls", total, 500*20)
	}
	if wraps == 0 {
		t.Error("no record lay across the end of the ring")
	}
	if a, b := ring.Peek(); a != nil || b != nil || ring.Unread() != 0 {
		t.Errorf("%d bytes left", len(a)+len(b))
	}
}

func TestRingCountsLost(t *testing.T) {
	testutil.CheckLeaks(t)
	ev, ring := ringOf(t, sysEnter(t), ownThread(t), 1)
	events := eventsOf(ev)
	const made = 1000
	syscalls(made)
	kept, lost, _ := drain(t, ring, events)
	if kept == 0 || kept >= made || lost != 0 {
		t.Fatalf("kept %d of %d, lost %d", kept, made, lost)
	}
	// The next record that fits is preceded by the count.
	syscalls(1)
	more, lost, _ := drain(t, ring, events)
	if more != 1 || int(lost) != made-kept {
		t.Errorf("kept %d, then %d; lost %d of %d", kept, more, lost, made+1)
	}
}

func TestSetOutputSharesRing(t *testing.T) {
	testutil.CheckLeaks(t)
	target := ownThread(t)
	first, ring := ringOf(t, sysEnter(t), target, 8)
	a := first.Attr
	second := opened(t, a, target, nil)
	if err := second.SetOutput(first); err != nil {
		t.Fatal(err)
	}
	syscalls(3)
	x, y := ring.Peek()
	events, seen := eventsOf(first, second), map[uint64]int{}
	var scratch []byte
	for raw, err := range Records(x, y, &scratch) {
		if err != nil {
			t.Fatal(err)
		}
		if ev := events.Of(raw, nativeOrder); ev != nil {
			seen[ev.IDs[0]]++
		}
	}
	if seen[first.ID] != 3 || seen[second.ID] != 3 {
		t.Errorf("samples by event: %v, want 3 of %d and %d", seen, first.ID, second.ID)
	}
}

func TestRingSamplesCPUClock(t *testing.T) {
	testutil.CheckLeaks(t)
	a := liveAttr(t, "cpu-clock/period=100000/u")
	ev := opened(t, withSample(a), ownThread(t), nil)
	ring, err := NewRing(ev, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	for ring.Unread() == 0 {
		syscalls(100)
	}
	x, y := ring.Peek()
	var scratch []byte
	samples := 0
	for raw, err := range Records(x, y, &scratch) {
		if err != nil {
			t.Fatal(err)
		}
		if perf.ParseHeader(raw, nativeOrder).Type == perf.RecordSample {
			samples++
		}
	}
	if samples == 0 {
		t.Error("the ring has no sample")
	}
}

func withSample(a perf.Attr) perf.Attr {
	a.SampleType |= perf.SampleIP | perf.SampleTime
	return a
}

func TestRingRefusesOddSizes(t *testing.T) {
	for _, pages := range []int{-1, 0, 3, 100} {
		if r, err := NewRing(nil, pages); err == nil {
			r.Close()
			t.Errorf("%d pages were taken", pages)
		}
	}
	for size, want := range map[int]int{0: 1, 1: 1, 4096: 1, 4097: 2, 512 << 10: 128, 513 << 10: 256} {
		if got := RingPages(size); got != want {
			t.Errorf("%d bytes: %d pages, want %d", size, got, want)
		}
	}
}

func TestRingLockedMemory(t *testing.T) {
	const pages = 1 << 15
	if soft, _, err := sys.MemlockLimit(); err != nil || soft > pages*uint64(sys.PageSize()) {
		testutil.NotHere(t, "this user may lock %d bytes, %v: ulimit -l", soft, err)
	}
	asNobody(t, func() {
		a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWDummy, Flags: perf.AttrExcludeKernel | perf.AttrExcludeHV}
		ev, err := Open(&a, Target{CPU: Any}, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ev.Close()
		r, err := NewRing(ev, pages)
		if err == nil {
			r.Close()
		}
		if !errors.Is(err, ErrLockedMemory) || hint.Of(err) == "" {
			t.Errorf("got %v (hint %q), want ErrLockedMemory", err, hint.Of(err))
		}
	})
}

// A ring whose records do not add up is an error with a place, not a loop.
func TestRecordsRefuseNonsense(t *testing.T) {
	good := perf.Header{Type: perf.RecordExit, Size: 16}.Append(nil, nativeOrder)
	good = append(good, make([]byte, 8)...)
	for name, h := range map[string]perf.Header{
		"size 0":    {Type: perf.RecordSample},
		"odd size":  {Type: perf.RecordSample, Size: 12},
		"too large": {Type: perf.RecordSample, Size: 64},
	} {
		b := h.Append(nil, nativeOrder)
		n := 0
		var scratch []byte
		var rec *RecordError
		for _, err := range Records(good, b, &scratch) {
			n++
			if n == 2 && (!errors.As(err, &rec) || rec.Offset != 16) {
				t.Errorf("%s: %v, want an error at 16", name, err)
			}
		}
		if n != 2 {
			t.Errorf("%s: walked %d steps, want a record and an error", name, n)
		}
	}
}

func FuzzRecords(f *testing.F) {
	rec := perf.Header{Type: perf.RecordSample, Size: 24}.Append(nil, nativeOrder)
	rec = append(rec, make([]byte, 16)...)
	lost := perf.Header{Type: perf.RecordLost, Size: 24}.Append(nil, nativeOrder)
	lost = append(lost, make([]byte, 16)...)
	f.Add(append(rec, lost...), 16)
	f.Add(append(rec, lost[:8]...), 24)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		data = data[:len(data)&^7]
		cut = min(max(cut&^7, 0), len(data))
		// Where the ring wraps makes no difference.
		whole, wholeErr := walk(data, nil)
		got, err := walk(data[:cut], data[cut:])
		if !slices.EqualFunc(got, whole, bytes.Equal) || (err == nil) != (wholeErr == nil) {
			t.Fatalf("%d records, %v; %d in one piece, %v", len(got), err, len(whole), wholeErr)
		}
		if n := len(slices.Concat(got...)); err == nil && n != len(data) {
			t.Fatalf("walked %d of %d bytes", n, len(data))
		}
	})
}

// walk gives copies of all records, up to an error.
func walk(a, b []byte) (list [][]byte, err error) {
	var scratch []byte
	for raw, err := range Records(a, b, &scratch) {
		if err != nil {
			return list, err
		}
		list = append(list, bytes.Clone(raw))
	}
	return list, nil
}
