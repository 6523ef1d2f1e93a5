// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// growing are records that the kernel makes longer than they are, with a
// sample_id that begins behind padding, and without any.
func growing() []Record {
	id := Trailer{SampleID: SampleIDInfo{PID: 5, TID: 6, Time: 12345, ID: 72, CPU: 1}}
	return []Record{
		&Ksymbol{Trailer: id, Addr: 0xffffffffc0000000, Len: 44, KsymType: KsymbolBPF, Name: "bpf_prog_2a71da1e"},
		&Ksymbol{Trailer: id, Addr: 0xffffffffc0000000, Len: 44, KsymType: KsymbolBPF, Name: "bpf_prog_2a71da"},
		&BPFEvent{Trailer: id, EventType: BPFEventProgLoad, ID: 255, Tag: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}},
	}
}

// grow is rec with more bytes behind it, which look like what was in a ring.
func grow(t testing.TB, rec Record, o Order, ev *Event, more int) []byte {
	t.Helper()
	raw, err := Append(nil, rec, o, ev)
	if err != nil {
		t.Fatal(err)
	}
	for range more / 8 {
		raw = o.AppendUint64(raw, 71) // an id that there is, and a time that may be
	}
	o.PutUint16(raw[6:], uint16(len(raw)))
	return raw
}

// TestGrownRecords: the sample_id is found behind the body, however long the
// record claims to be, and at the end where gantry's recorder has put it.
func TestGrownRecords(t *testing.T) {
	attr := func(st SampleType) Attr {
		return Attr{SampleType: st, Flags: AttrSampleIDAll}
	}
	const some = SampleTID | SampleTime | SampleCPU
	for name, list := range map[string][]*Event{
		"identifier": {NewEvent(attr(some|SampleIdentifier), "a", 71), NewEvent(attr(some|SampleIdentifier), "b", 72, 73)},
		"id":         {NewEvent(attr(some|SampleID), "a", 71), NewEvent(attr(some|SampleID), "b", 72)},
		"other size": {NewEvent(attr(some|SampleIdentifier|SampleStreamID), "a", 71), NewEvent(attr(some|SampleIdentifier), "b", 72)},
		"no id":      {NewEvent(attr(some), "a")},
	} {
		events := NewEvents(list...)
		owner := list[len(list)-1]
		for _, o := range []Order{LittleEndian, BigEndian} {
			for _, rec := range growing() {
				want, err := Decode(grow(t, rec, o, owner, 0), o, owner)
				if err != nil {
					t.Fatal(err)
				}
				size := owner.Layout.SampleIDSize()
				for _, more := range []int{0, 8, 16, size, 2 * size, 40 * size} {
					t.Run(fmt.Sprint(name, o, rec.RecordType(), more), func(t *testing.T) {
						raw := grow(t, rec, o, owner, more)
						checkGrown(t, events, owner, raw, o, want)
						if more >= size || owner.IDs != nil {
							checkGrown(t, events, owner, mend(bytes.Clone(raw), more, size), o, want)
						}
					})
				}
			}
		}
	}
}

// mend does what the recorder does.
func mend(raw []byte, more, size int) []byte {
	end := len(raw) - more
	copy(raw[len(raw)-size:], raw[end-size:end])
	clear(raw[end-size : len(raw)-size])
	return raw
}

func checkGrown(t *testing.T, events *Events, owner *Event, raw []byte, o Order, want Record) {
	t.Helper()
	if ev := events.Of(raw, o); ev != owner {
		t.Errorf("is of %v", ev)
	}
	if at, ok := events.Time(raw, o); !ok || at != 12345 {
		t.Errorf("time %d, %v", at, ok)
	}
	got, err := Decode(raw, o, owner)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
