// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
)

// leafLayouts are sample types in which the fields that DecodeLeaf reads are at
// different places, or absent.
func leafLayouts() []SampleType {
	return []SampleType{
		SampleIP,
		SampleIP | SampleTID | SampleTime | SampleCPU | SamplePeriod,
		SampleIdentifier | SampleIP | SampleTID | SampleCPU,
		SampleIdentifier | SampleTID | SampleTime | SampleID | SampleStreamID | SamplePeriod,
		SampleIP | SampleTID | SampleAddr | SampleCallchain | SampleRaw | SampleCgroup,
		RawSampleType | SampleCallchain | SampleCgroup,
		SampleIP | SampleTID | SampleCgroup | SamplePhysAddr | SampleDataPageSize | SampleCodePageSize,
		SampleIP | SampleTID | SampleCgroup | SampleAux, // the cgroup is behind a length
	}
}

// DecodeLeaf is Decode for the fields that it has, in any layout and byte order.
func TestDecodeLeaf(t *testing.T) {
	for _, typ := range leafLayouts() {
		ev := NewEvent(Attr{SampleType: typ}, "x", 7)
		rec := &Sample{
			IP: 0x401000, PID: 12, TID: 13, CPU: 3, Period: 99, Callchain: []uint64{1, 2, 3}, Raw: []byte("1234"), Cgroup: 42,
			PhysAddr: 5, DataPage: 6, CodePage: 7, Aux: []byte("12345678"), Time: 8, ID: 7, StreamID: 7,
		}
		SetMisc(rec, MiscKernel)
		for _, o := range []Order{LittleEndian, BigEndian} {
			t.Run(fmt.Sprintf("%#x/%v", uint64(typ), o), func(t *testing.T) {
				raw, err := Append(nil, rec, o, ev)
				if err != nil {
					t.Fatal(err)
				}
				checkLeaf(t, raw, o, ev)
				for n := range len(raw) - 1 {
					var s Sample
					if err := s.DecodeLeaf(raw[:n+1], o, &ev.Layout, true); err == nil {
						t.Errorf("%d of %d bytes: no error", n+1, len(raw))
					}
				}
			})
		}
	}
	var s Sample
	ev := NewEvent(Attr{SampleType: SampleIP}, "x")
	raw, err := Append(nil, &Comm{Comm: "a"}, LittleEndian, ev)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DecodeLeaf(raw, LittleEndian, &ev.Layout, false); !errors.Is(err, ErrShort) {
		t.Errorf("a record that is no sample: %v", err)
	}
}

func checkLeaf(t *testing.T, raw []byte, o Order, ev *Event) {
	t.Helper()
	var all, leaf Sample
	if err := all.Decode(raw, o, &ev.Layout); err != nil {
		t.Fatal(err)
	}
	for _, cgroup := range []bool{false, true} {
		leaf = Sample{IP: 1, PID: 1, TID: 1, CPU: 1, Period: 1} // of the one before
		if err := leaf.DecodeLeaf(raw, o, &ev.Layout, cgroup); err != nil {
			t.Fatal(err)
		}
		got := []any{leaf.Misc, leaf.IP, leaf.PID, leaf.TID, leaf.CPU, leaf.Period}
		want := []any{all.Misc, all.IP, all.PID, all.TID, all.CPU, all.Period}
		if !reflect.DeepEqual(got, want) || cgroup && leaf.Cgroup != all.Cgroup {
			t.Errorf("got %v and cgroup %d, want %v and %d", got, leaf.Cgroup, want, all.Cgroup)
		}
	}
}

// The accessors of a raw sample are what Decode finds.
func TestRawSample(t *testing.T) {
	ev := NewEvent(Attr{SampleType: RawSampleType | SampleCgroup}, "x", 7)
	raw, err := Append(nil, &Sample{IP: 1, PID: 12, TID: 13, Time: 14, CPU: 3, ID: 7, Cgroup: 42}, NativeOrder, ev)
	if err != nil {
		t.Fatal(err)
	}
	r := Raw(raw)
	if r.SampleIdentifier() != 7 || r.SamplePID() != 12 || r.SampleTID() != 13 || r.SampleTime() != 14 || len(r) < RawSampleMin {
		t.Errorf("%d %d %d %d", r.SampleIdentifier(), r.SamplePID(), r.SampleTID(), r.SampleTime())
	}
}
