// SPDX-License-Identifier: Apache-2.0

package perf

// sampleEncoder appends the fields of a sample that its layout has.
type sampleEncoder struct {
	b  []byte
	o  Order
	st SampleType
}

func (e *sampleEncoder) u64(bit SampleType, v uint64) {
	if e.st&bit != 0 {
		e.b = e.o.AppendUint64(e.b, v)
	}
}

func (e *sampleEncoder) u32s(bit SampleType, a, b uint32) {
	if e.st&bit != 0 {
		e.b = e.o.AppendUint32(e.o.AppendUint32(e.b, a), b)
	}
}

func (e *sampleEncoder) words(vs []uint64) {
	for _, v := range vs {
		e.b = e.o.AppendUint64(e.b, v)
	}
}

// append encodes s; the size in the header is left zero.
func (s *Sample) append(dst []byte, o Order, l *Layout) []byte {
	start := len(dst)
	e := sampleEncoder{b: Header{Type: RecordSample, Misc: s.Misc}.Append(dst, o), o: o, st: l.SampleType}
	e.u64(SampleIdentifier, s.ID)
	e.u64(SampleIP, s.IP)
	e.u32s(SampleTID, uint32(s.PID), uint32(s.TID))
	e.u64(SampleTime, s.Time)
	e.u64(SampleAddr, s.Addr)
	e.u64(SampleID, s.ID)
	e.u64(SampleStreamID, s.StreamID)
	e.u32s(SampleCPU, s.CPU, 0)
	e.u64(SamplePeriod, s.Period)
	if e.st&SampleRead != 0 {
		e.b = s.Read.append(e.b, l.ReadFormat, o)
	}
	e.u64(SampleCallchain, uint64(len(s.Callchain)))
	if e.st&SampleCallchain != 0 {
		e.words(s.Callchain)
	}
	e.raw(s.Raw, start)
	e.branches(s, l)
	e.regs(SampleRegsUser, &s.RegsUser, l.nUser)
	if e.st&SampleStackUser != 0 {
		e.b = o.AppendUint64(e.b, uint64(len(s.StackUser)))
		if len(s.StackUser) > 0 {
			e.b = append(e.b, s.StackUser...)
			e.b = o.AppendUint64(e.b, s.StackDyn)
		}
	}
	e.tail(s, l)
	return e.b
}

func (e *sampleEncoder) tail(s *Sample, l *Layout) {
	e.u64(e.st&(SampleWeight|SampleWeightStruct), s.Weight)
	e.u64(SampleDataSrc, s.DataSrc)
	e.u64(SampleTransaction, s.Txn)
	e.regs(SampleRegsIntr, &s.RegsIntr, l.nIntr)
	e.u64(SamplePhysAddr, s.PhysAddr)
	e.u64(SampleCgroup, s.Cgroup)
	e.u64(SampleDataPageSize, s.DataPage)
	e.u64(SampleCodePageSize, s.CodePage)
	if e.st&SampleAux != 0 {
		e.b = e.o.AppendUint64(e.b, uint64(len(s.Aux)))
		e.b = append(e.b, s.Aux...)
	}
}

// raw is a size and bytes, together padded to 8. The kernel counts the
// padding into the size; what was read keeps the size it had.
func (e *sampleEncoder) raw(raw []byte, start int) {
	if e.st&SampleRaw == 0 {
		return
	}
	e.b = e.o.AppendUint32(e.b, uint32(len(raw)))
	e.b = append(e.b, raw...)
	for (len(e.b)-start)%8 != 0 {
		e.b = append(e.b, 0)
	}
}

func (e *sampleEncoder) branches(s *Sample, l *Layout) {
	if e.st&SampleBranchStack == 0 {
		return
	}
	e.b = e.o.AppendUint64(e.b, uint64(len(s.Branches)))
	if l.BranchType&BranchHWIndex != 0 {
		e.b = e.o.AppendUint64(e.b, s.BranchHW)
	}
	for _, b := range s.Branches {
		e.words([]uint64{b.From, b.To, unswapBranchFlags(b.Flags, e.o)})
	}
	if l.BranchType&BranchCounters != 0 {
		for i := range s.Branches {
			var v uint64
			if i < len(s.BranchCtrs) {
				v = s.BranchCtrs[i]
			}
			e.b = e.o.AppendUint64(e.b, v)
		}
	}
}

// regs writes exactly as many values as the mask has bits.
func (e *sampleEncoder) regs(bit SampleType, r *Regs, n int) {
	if e.st&bit == 0 {
		return
	}
	e.b = e.o.AppendUint64(e.b, r.ABI)
	if r.ABI == 0 {
		return
	}
	for i := range n {
		var v uint64
		if i < len(r.Values) {
			v = r.Values[i]
		}
		e.b = e.o.AppendUint64(e.b, v)
	}
}
