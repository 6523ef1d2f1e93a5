// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// TestTrim: of each sample what counts stays, whatever lies behind the stack
// and wherever the ring ends.
func TestTrim(t *testing.T) {
	const base = perf.RawSampleType | perf.SampleCallchain | perf.SampleRegsUser | perf.SampleStackUser
	for name, c := range map[string]struct {
		more  perf.SampleType
		used  uint64
		saved int
	}{
		"some":       {perf.SampleCgroup, 101, 1024 - 104},
		"all":        {perf.SampleCgroup, 1024, 0},
		"none":       {perf.SampleCgroup, 0, 1024 + 8},
		"more":       {perf.SampleWeight | perf.SampleDataSrc | perf.SamplePhysAddr | perf.SampleCgroup, 8, 1024 - 8},
		"last":       {0, 512, 512},
		"registers":  {perf.SampleRegsIntr | perf.SampleCgroup, 8, 0},
		"not dumped": {perf.SampleCgroup, 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ev := perf.NewEvent(perf.Attr{SampleType: base | c.more, SampleRegsUser: 3, SampleStackUser: 1024, Flags: perf.AttrSampleIDAll}, "x", 7)
			want := &perf.Sample{ID: 7, IP: 1, PID: 2, TID: 3, Time: 4, Callchain: []uint64{perf.ContextUser, 9}}
			if c.more&perf.SampleCgroup != 0 {
				want.Cgroup = 99
			}
			if name != "not dumped" {
				want.RegsUser = perf.Regs{ABI: 2, Values: []uint64{5, 6}}
				want.StackUser, want.StackDyn = bytes.Repeat([]byte{0xaa}, 1024), c.used
			}
			raw, err := perf.Append(nil, want, perf.NativeOrder, ev)
			if err != nil {
				t.Fatal(err)
			}
			for cut := 0; cut <= len(raw); cut += 8 {
				tr := newTrimmer(&eventSet{list: []*perf.Event{ev}})
				got, err := tr.trim(nil, raw[:cut], raw[cut:])
				if err != nil || len(raw)-len(got) != c.saved || tr.saved != uint64(c.saved) {
					t.Fatalf("cut at %d: %d bytes of %d, %d saved, %v; want %d", cut, len(got), len(raw), tr.saved, err, c.saved)
				}
				var sm perf.Sample
				if err := sm.Decode(got, perf.NativeOrder, &ev.Layout); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(sm.StackUser[:sm.StackDyn], want.StackUser[:c.used*min(1, uint64(len(want.StackUser)))]) || sm.Cgroup != want.Cgroup || !reflect.DeepEqual(sm.RegsUser.Values, want.RegsUser.Values) {
					t.Fatalf("cut at %d: %+v", cut, sm)
				}
			}
		})
	}
}

// TestTrimOthers: other records, and broken ones, are not touched.
func TestTrimOthers(t *testing.T) {
	ev := perf.NewEvent(perf.Attr{SampleType: perf.RawSampleType | perf.SampleStackUser, SampleStackUser: 64, Flags: perf.AttrSampleIDAll}, "x", 7)
	tr := newTrimmer(&eventSet{list: []*perf.Event{ev}})
	lost := []byte{byte(perf.RecordLost), 0, 0, 0, 0, 0, 24, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}
	got, err := tr.trim(nil, lost, nil)
	if err != nil || !bytes.Equal(got, lost) || tr.saved != 0 {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := tr.trim(nil, lost[:20], nil); err == nil {
		t.Error("no error for half a record")
	}
}
