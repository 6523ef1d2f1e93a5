// SPDX-License-Identifier: Apache-2.0

package perftext

import "github.com/gantry-tools/gantry/perf"

// sample walks the fields of a sample that its event has.
func (f *fields) sample(s *perf.Sample, ev *perf.Event) {
	st := ev.Attr.SampleType
	at := func(bit perf.SampleType, walk func()) {
		if st&bit != 0 {
			walk()
		}
	}
	at(perf.SampleIP, func() { hexa(f, "ip", &s.IP) })
	f.all = true
	at(perf.SampleTID, func() { f.task(&s.PID, &s.TID) })
	at(perf.SampleTime, func() { num(f, "time", &s.Time) })
	at(perf.SampleCPU, func() { num(f, "cpu", &s.CPU) })
	f.all = false
	at(perf.SampleID|perf.SampleIdentifier, func() { f.id("id", &s.ID, ev) })
	at(perf.SampleStreamID, func() { num(f, "stream", &s.StreamID) })
	at(perf.SamplePeriod, func() { num(f, "period", &s.Period) })
	at(perf.SampleAddr, func() { hexa(f, "addr", &s.Addr) })
	at(perf.SamplePhysAddr, func() { hexa(f, "phys_addr", &s.PhysAddr) })
	at(perf.SampleCgroup, func() { num(f, "cgroup", &s.Cgroup) })
	at(perf.SampleRead, func() { f.counts(&s.Read, ev.Attr.ReadFormat) })
	at(perf.SampleWeight|perf.SampleWeightStruct, func() { hexa(f, "weight", &s.Weight) })
	at(perf.SampleDataSrc, func() { hexa(f, "data_src", &s.DataSrc) })
	at(perf.SampleTransaction, func() { hexa(f, "txn", &s.Txn) })
	at(perf.SampleDataPageSize, func() { num(f, "data_page", &s.DataPage) })
	at(perf.SampleCodePageSize, func() { num(f, "code_page", &s.CodePage) })
	at(perf.SampleRegsUser, func() { f.regs("regs_user", &s.RegsUser, ev.Attr.SampleRegsUser) })
	at(perf.SampleRegsIntr, func() { f.regs("regs_intr", &s.RegsIntr, ev.Attr.SampleRegsIntr) })
	at(perf.SampleCallchain, func() { f.chain("callchain", &s.Callchain) })
	at(perf.SampleBranchStack, func() { f.branches(s, ev.Attr.BranchSampleType) })
	at(perf.SampleRaw, func() { f.bytes("raw", &s.Raw) })
	at(perf.SampleAux, func() { f.bytes("aux", &s.Aux) })
	at(perf.SampleStackUser, func() { f.stack(s) })
}

// id is a kernel id, by default the first of the event.
func (f *fields) id(key string, id *uint64, ev *perf.Event) {
	first := uint64(0)
	if len(ev.IDs) > 0 {
		first = ev.IDs[0]
	}
	if !f.parse && *id == first {
		return
	}
	if f.parse && !f.has(key) {
		*id = first
		return
	}
	all := f.all
	f.all = true
	num(f, key, id)
	f.all = all
}

// stack is a dumped stack and how much of it is valid, all if not given.
func (f *fields) stack(s *perf.Sample) {
	f.bytes("stack", &s.StackUser)
	n := uint64(len(s.StackUser))
	if !f.parse && s.StackDyn == n {
		return
	}
	if f.parse && !f.has("stack_dyn") {
		s.StackDyn = n
		return
	}
	f.all = true
	num(f, "stack_dyn", &s.StackDyn)
	f.all = false
	if s.StackDyn > n {
		f.fail(syntaxError(f.end, "stack_dyn is larger than the stack"))
	}
}

// regs are the values of the registers in mask.
func (f *fields) regs(key string, r *perf.Regs, mask uint64) {
	num(f, key+"_abi", &r.ABI)
	f.words(key, 16, &r.Values)
	if !f.parse {
		return
	}
	n := 0
	for ; mask != 0 && r.ABI != 0; mask &= mask - 1 {
		n++
	}
	if len(r.Values) != n {
		f.fail(syntaxError(f.end, "%s has %d values, the event %d (none without %s_abi)", key, len(r.Values), n, key))
	}
}

// branches are from/to/flags, the last one first.
func (f *fields) branches(s *perf.Sample, bt perf.BranchSampleType) {
	tuples(f, "branches", 16, &s.Branches,
		func(b *perf.Branch) []*uint64 { return []*uint64{&b.From, &b.To, &b.Flags} })
	if bt&perf.BranchHWIndex != 0 {
		hexa(f, "branch_hw", &s.BranchHW)
	}
	if bt&perf.BranchCounters == 0 {
		return
	}
	f.words("branch_counters", 16, &s.BranchCtrs)
	if f.parse && len(s.BranchCtrs) != len(s.Branches) {
		f.fail(syntaxError(f.end, "%d branch_counters for %d branches", len(s.BranchCtrs), len(s.Branches)))
	}
}

// counts are the counts of an event or a group: value, and if the read format
// has them, /id and /lost.
func (f *fields) counts(r *perf.ReadValues, format perf.ReadFormat) {
	if format&perf.FormatTotalTimeEnabled != 0 {
		num(f, "enabled", &r.TimeEnabled)
	}
	if format&perf.FormatTotalTimeRunning != 0 {
		num(f, "running", &r.TimeRunning)
	}
	tuples(f, "counts", 10, &r.Counts, func(c *perf.Count) []*uint64 {
		parts := []*uint64{&c.Value}
		if format&perf.FormatID != 0 {
			parts = append(parts, &c.ID)
		}
		if format&perf.FormatLost != 0 {
			parts = append(parts, &c.Lost)
		}
		return parts
	})
	if f.parse && format&perf.FormatGroup == 0 && len(r.Counts) != 1 {
		f.fail(syntaxError(f.end, "%d counts, the event has one", len(r.Counts)))
	}
}

// sampleID walks the sample_id behind a record.
func (f *fields) sampleID(s *perf.SampleIDInfo, ev *perf.Event) {
	if !ev.Layout.SampleIDAll {
		return
	}
	st := ev.Attr.SampleType
	if st&perf.SampleTID != 0 {
		num(f, "@pid", &s.PID)
		num(f, "@tid", &s.TID)
	}
	if st&perf.SampleTime != 0 {
		num(f, "@time", &s.Time)
	}
	if st&perf.SampleCPU != 0 {
		num(f, "@cpu", &s.CPU)
	}
	if st&perf.SampleStreamID != 0 {
		num(f, "@stream", &s.StreamID)
	}
	if st&(perf.SampleID|perf.SampleIdentifier) != 0 {
		f.id("@id", &s.ID, ev)
	}
}
