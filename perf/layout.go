// SPDX-License-Identifier: Apache-2.0

package perf

import "math/bits"

// absent marks a field that a layout does not have.
const absent = -1

// Layout says where the fields of an event's records lie. It is computed once
// per event, so that the hot fields cost one load each.
type Layout struct {
	SampleType   SampleType
	ReadFormat   ReadFormat
	BranchType   BranchSampleType
	SampleIDAll  bool
	RegsUser     uint64 // masks of the registers in a sample
	RegsIntr     uint64
	nUser, nIntr int

	// Offsets from the start of a sample record, absent if not there.
	ident, ip, tid, time, addr, id, stream, cpu, period int8
	// fixed is where the fields of variable size begin.
	fixed int
	// cgroupTail is how far before the end of a sample its cgroup id
	// lies, 0 if it has none or something of variable size follows.
	cgroupTail int

	// Offsets of sample_id fields from the end of a record, 0 if absent.
	sidTID, sidTime, sidID, sidStream, sidCPU, sidIdent int
	sidSize                                             int
}

// NewLayout computes the layout of the records of a's events.
func NewLayout(a *Attr) Layout {
	st := a.SampleType
	l := Layout{
		SampleType: st, ReadFormat: a.ReadFormat, BranchType: a.BranchSampleType,
		SampleIDAll: a.Flags.Has(AttrSampleIDAll),
		RegsUser:    a.SampleRegsUser, RegsIntr: a.SampleRegsIntr,
		nUser: bits.OnesCount64(a.SampleRegsUser), nIntr: bits.OnesCount64(a.SampleRegsIntr),
	}
	off := int8(HeaderSize)
	place := func(bit SampleType) int8 {
		if st&bit == 0 {
			return absent
		}
		off += 8
		return off - 8
	}
	l.ident = place(SampleIdentifier)
	l.ip = place(SampleIP)
	l.tid = place(SampleTID)
	l.time = place(SampleTime)
	l.addr = place(SampleAddr)
	l.id = place(SampleID)
	l.stream = place(SampleStreamID)
	l.cpu = place(SampleCPU)
	l.period = place(SamplePeriod)
	l.fixed = int(off)
	if st&SampleCgroup != 0 && st&SampleAux == 0 {
		l.cgroupTail = 8 * (1 + bits.OnesCount64(uint64(st&(SampleDataPageSize|SampleCodePageSize))))
	}
	if l.SampleIDAll {
		l.placeSampleID()
	}
	return l
}

// placeSampleID walks struct sample_id from its end.
func (l *Layout) placeSampleID() {
	size := 0
	place := func(bit SampleType) int {
		if l.SampleType&bit == 0 {
			return 0
		}
		size += 8
		return size
	}
	l.sidIdent = place(SampleIdentifier)
	l.sidCPU = place(SampleCPU)
	l.sidStream = place(SampleStreamID)
	l.sidID = place(SampleID)
	l.sidTime = place(SampleTime)
	l.sidTID = place(SampleTID)
	l.sidSize = size
}

// SampleIDInfo is struct sample_id, the trailer of records with sample_id_all.
// Fields that the layout does not have are zero.
type SampleIDInfo struct {
	PID, TID int32
	Time     uint64
	ID       uint64 // also from the identifier
	StreamID uint64
	CPU      uint32
}

// decodeSampleID reads the trailer from b, which is exactly sidSize bytes.
func (l *Layout) decodeSampleID(b []byte, o Order) (s SampleIDInfo) {
	at := func(tail int) []byte { return b[len(b)-tail:] }
	if l.sidTID > 0 {
		s.PID, s.TID = int32(o.Uint32(at(l.sidTID))), int32(o.Uint32(at(l.sidTID)[4:]))
	}
	if l.sidTime > 0 {
		s.Time = o.Uint64(at(l.sidTime))
	}
	if l.sidID > 0 {
		s.ID = o.Uint64(at(l.sidID))
	}
	if l.sidStream > 0 {
		s.StreamID = o.Uint64(at(l.sidStream))
	}
	if l.sidCPU > 0 {
		s.CPU = o.Uint32(at(l.sidCPU))
	}
	if l.sidIdent > 0 {
		s.ID = o.Uint64(at(l.sidIdent))
	}
	return s
}

func (l *Layout) appendSampleID(dst []byte, s *SampleIDInfo, o Order) []byte {
	if l.sidTID > 0 {
		dst = o.AppendUint32(o.AppendUint32(dst, uint32(s.PID)), uint32(s.TID))
	}
	if l.sidTime > 0 {
		dst = o.AppendUint64(dst, s.Time)
	}
	if l.sidID > 0 {
		dst = o.AppendUint64(dst, s.ID)
	}
	if l.sidStream > 0 {
		dst = o.AppendUint64(dst, s.StreamID)
	}
	if l.sidCPU > 0 {
		dst = o.AppendUint32(o.AppendUint32(dst, s.CPU), 0)
	}
	if l.sidIdent > 0 {
		dst = o.AppendUint64(dst, s.ID)
	}
	return dst
}

// HasTime reports whether records of this layout carry a time: samples, and the
// others when the event has sample_id_all.
func (l *Layout) HasTime() bool { return l.time != absent }

// SampleIDSize is the size in bytes of the sample_id behind the records that
// are not samples.
func (l *Layout) SampleIDSize() int { return l.sidSize }

// Time is the time of a whole record of this layout's event, in nanoseconds
// of the event's clock; false if the record has none.
func (l *Layout) Time(raw []byte, o Order) (uint64, bool) {
	if RecordType(o.Uint32(raw)) == RecordSample {
		if l.time == absent || len(raw) < int(l.time)+8 {
			return 0, false
		}
		return o.Uint64(raw[l.time:]), true
	}
	if l.sidTime == 0 || len(raw) < HeaderSize+l.sidSize {
		return 0, false
	}
	return o.Uint64(raw[len(raw)-l.sidTime:]), true
}
