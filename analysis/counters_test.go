// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// TestSampledAddress: the function of a sample is that of its own address, as in
// perf, also where the call chain begins in another one; with callers and
// without, the samples of each function are the same.
func TestSampledAddress(t *testing.T) {
	const idle, schedule = 0xffffffff81001000, 0xffffffff81002000
	at := func(ip uint64, chain ...uint64) *perf.Sample {
		s := sample(1, ip, append([]uint64{perf.ContextKernel}, chain...)...)
		s.Misc = perf.MiscKernel
		return s
	}
	record := func() *Session {
		r := newRecording(t, perf.SampleCallchain)
		r.add(kernelMap(0xffffffff81000000), comm(1, "a"),
			at(idle+4, schedule+1, schedule+9),     // interrupted in the caller
			at(idle+4, idle+7, schedule+9),         // interrupted a little later
			at(idle+4, idle+4, schedule+9),         // exactly there
			at(schedule+4),                         // nothing but a mark
			at(idle+1, schedule+1, idle+9, idle+4)) // called by itself
		return r.open(nil, &Options{Kallsyms: kallsyms})
	}
	const i, s = "do_idle@[kernel.kallsyms]", "schedule@[kernel.kallsyms]"
	stacks := map[string]uint64{
		"a: " + i + ";" + s + ";" + s: 1, "a: " + i + ";" + s: 2, "a: " + s: 1, "a: " + i + ";" + s + ";" + i + ";" + i: 1,
	}
	for _, tc := range []struct {
		o    CollectOptions
		want map[string]uint64
	}{
		{CollectOptions{Stacks: true}, stacks},
		{CollectOptions{Stacks: true, Inline: true, Lines: true}, stacks},
		{CollectOptions{}, map[string]uint64{"a: " + i: 4, "a: " + s: 1}},
	} {
		tc.o.Fields, tc.o.Symbols = profile.FieldComm, true
		p, err := record().Collect(tc.o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, rows(p, byComm)); diff != "" {
			t.Errorf("%+v: %s", tc.o, diff)
		}
	}
}

// groupRecording has samples of an event that read the counters of two.
func groupRecording(t *testing.T, format perf.ReadFormat, flags perf.AttrFlags, samples ...*perf.Sample) *Session {
	t.Helper()
	attr := perf.Attr{
		Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleCount: 1000, ReadFormat: format,
		SampleType: perf.SampleIdentifier | perf.SampleIP | perf.SampleTID | perf.SampleTime | perf.SampleRead,
		Flags:      perf.AttrSampleIDAll | flags,
	}
	leader := perf.NewEvent(attr, "leader", 7)
	attr.Config = perf.SWPageFaults
	f := new(memFile)
	w, err := perfdata.NewWriter(f, []*perf.Event{leader, perf.NewEvent(attr, "member", 8)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, sm := range samples {
		sm.ID, sm.Time = 7, uint64(1000+i)
		if err := w.WriteRecord(sm, leader); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	rd, err := perfdata.NewReader(bytes.NewReader(f.b), int64(len(f.b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewSession(rd, nil)
}

// reads is a sample of a thread whose group's counters stand at values.
func reads(tid int32, values ...uint64) *perf.Sample {
	sm := sample(1, 0x1000)
	sm.TID, sm.Period = tid, 1000
	for i, v := range values {
		sm.Read.Counts = append(sm.Read.Counts, perf.Count{Value: v, ID: uint64(7 + i)})
	}
	return sm
}

// TestGroupCounts: a sample counts what each counter of its group moved by, for
// the event of that counter, with every kind of report.
func TestGroupCounts(t *testing.T) {
	group := perf.FormatID | perf.FormatGroup
	type total struct{ Samples, Value uint64 }
	for name, tc := range map[string]struct {
		format  perf.ReadFormat
		flags   perf.AttrFlags
		samples []*perf.Sample
		want    map[string]total
	}{
		"group": {group, 0, []*perf.Sample{reads(1, 100, 5), reads(1, 250, 5), reads(1, 300, 9)},
			map[string]total{"leader": {3, 300}, "member": {2, 9}}},
		"alone": {perf.FormatID, 0, []*perf.Sample{reads(1, 100), reads(1, 300)}, map[string]total{"leader": {2, 300}}},
		"no id": {0, 0, []*perf.Sample{reads(1, 100), reads(1, 300)}, map[string]total{"leader": {2, 300}}},
		"threads have counters of their own": {group, perf.AttrInherit,
			[]*perf.Sample{reads(1, 100, 5), reads(2, 70, 3), reads(1, 130, 5), reads(2, 90, 4)},
			map[string]total{"leader": {4, 220}, "member": {3, 9}}},
		"of no known event": {group, 0, []*perf.Sample{reads(1, 100, 5, 77)}, map[string]total{"leader": {1, 100}, "member": {1, 5}}},
	} {
		for _, o := range []CollectOptions{{}, {Symbols: true}, {Symbols: true, Stacks: true}} {
			p, err := groupRecording(t, tc.format, tc.flags, tc.samples...).Collect(o)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]total{}
			for i := range p.Events {
				got[p.Events[i].Name] = total{p.Events[i].Samples, p.Events[i].Value}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s, %+v: %s", name, o, diff)
			}
		}
	}
}
