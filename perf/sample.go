// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Sample is PERF_RECORD_SAMPLE. Which fields are there the event's
// SampleType says; the others are zero. The fields stand here in the order in
// which they are written.
type Sample struct {
	RecordMisc
	ID         uint64 // from SampleIdentifier or SampleID
	IP         uint64
	PID, TID   int32
	Time       uint64 // nanoseconds of the event's clock
	Addr       uint64
	StreamID   uint64
	CPU        uint32
	Period     uint64
	Read       ReadValues
	Callchain  []uint64 // leaf first, with Context marks
	Raw        []byte   // tracepoint fields, or what a BPF program put out
	Branches   []Branch
	BranchHW   uint64   // hardware index, with BranchHWIndex
	BranchCtrs []uint64 // with BranchCounters
	RegsUser   Regs
	StackUser  []byte // as much as was dumped
	StackDyn   uint64 // bytes of StackUser that are valid
	Weight     uint64 // also the WeightStruct union
	DataSrc    uint64
	Txn        uint64
	RegsIntr   Regs
	PhysAddr   uint64
	Cgroup     uint64 // id: inode number in the cgroup file system
	DataPage   uint64 // page size of Addr in bytes
	CodePage   uint64 // page size of IP in bytes
	Aux        []byte
}

// RecordType implements Record.
func (s *Sample) RecordType() RecordType { return RecordSample }

// Branch is struct perf_branch_entry. Flags are its bit-fields, the first in
// bit 0.
type Branch struct{ From, To, Flags uint64 }

// Regs are sampled registers: ABI 0 (none), 1 (32 bit) or 2 (64 bit), and one
// value per bit of the event's mask, lowest bit first.
type Regs struct {
	ABI    uint64
	Values []uint64
}

// ReadValues is struct read_format: the counts of an event or, with
// FormatGroup, of a group. Times are nanoseconds.
type ReadValues struct {
	TimeEnabled, TimeRunning uint64
	Counts                   []Count
}

// Count is one counter's value. Lost is the number of samples its ring had no
// room for (FormatLost).
type Count struct{ Value, ID, Lost uint64 }

// own makes the byte slices of s its own; Decode leaves them in the record.
func (s *Sample) own() {
	s.Raw, s.StackUser, s.Aux = bytes.Clone(s.Raw), bytes.Clone(s.StackUser), bytes.Clone(s.Aux)
}

// reset empties s and keeps its slices' memory.
func (s *Sample) reset() {
	*s = Sample{
		Callchain: s.Callchain[:0], Branches: s.Branches[:0], BranchCtrs: s.BranchCtrs[:0],
		Read:     ReadValues{Counts: s.Read.Counts[:0]},
		RegsUser: Regs{Values: s.RegsUser.Values[:0]}, RegsIntr: Regs{Values: s.RegsIntr.Values[:0]},
	}
}

// Decode fills s from the whole record raw, reusing s's slices. Raw,
// StackUser and Aux are left pointing into raw.
func (s *Sample) Decode(raw []byte, o Order, l *Layout) error {
	s.reset()
	if err := s.decodeFixed(raw, o, l); err != nil {
		return err
	}
	if l.SampleType&^(sampleKnown) != 0 {
		return recordError(RecordSample, fmt.Errorf("sample_type %#x: %w", uint64(l.SampleType), ErrUnsupported))
	}
	d := sampleDecoder{b: raw, off: l.fixed, o: o}
	d.variable(s, l)
	d.tail(s, l)
	if d.err != nil {
		return recordError(RecordSample, fmt.Errorf("at byte %d of %d: %w", d.off, len(raw), d.err))
	}
	return nil
}

// DecodeLeaf fills what tells whose sample it is and where it fell: Misc, IP,
// PID, TID, CPU and Period, and with the last argument Cgroup. Of s, nothing
// else changes.
func (s *Sample) DecodeLeaf(raw []byte, o Order, l *Layout, cgroup bool) error {
	h, err := checkHeader(raw, o)
	if err != nil {
		return err
	}
	if h.Type != RecordSample || len(raw) < l.fixed {
		return shortSample(h.Type, len(raw), l)
	}
	s.Misc, s.IP, s.PID, s.TID, s.CPU, s.Period = h.Misc, 0, 0, 0, 0, 0
	if l.ip != absent {
		s.IP = o.Uint64(raw[l.ip:])
	}
	if l.tid != absent {
		s.PID, s.TID = int32(o.Uint32(raw[l.tid:])), int32(o.Uint32(raw[l.tid+4:]))
	}
	if l.cpu != absent {
		s.CPU = o.Uint32(raw[l.cpu:])
	}
	if l.period != absent {
		s.Period = o.Uint64(raw[l.period:])
	}
	if !cgroup {
		return nil
	}
	return s.decodeCgroup(raw, o, l)
}

// decodeCgroup fills Cgroup, if the event has it.
func (s *Sample) decodeCgroup(raw []byte, o Order, l *Layout) error {
	if t := l.cgroupTail; t > 0 {
		if len(raw) < l.fixed+t {
			return recordError(RecordSample, fmt.Errorf("%d bytes: %w", len(raw), ErrShort))
		}
		s.Cgroup = o.Uint64(raw[len(raw)-t:])
		return nil
	}
	if l.SampleType&SampleCgroup != 0 {
		return s.Decode(raw, o, l)
	}
	s.Cgroup = 0
	return nil
}

func shortSample(t RecordType, size int, l *Layout) error {
	return recordError(t, fmt.Errorf("%d bytes, a sample of this event has at least %d: %w", size, l.fixed, ErrShort))
}

func (s *Sample) decodeFixed(raw []byte, o Order, l *Layout) error {
	h, err := checkHeader(raw, o)
	if err != nil {
		return err
	}
	if h.Type != RecordSample || len(raw) < l.fixed {
		return shortSample(h.Type, len(raw), l)
	}
	s.Misc = h.Misc
	get := func(at int8) uint64 {
		if at == absent {
			return 0
		}
		return o.Uint64(raw[at:])
	}
	s.IP = get(l.ip)
	if l.tid != absent {
		s.PID, s.TID = int32(o.Uint32(raw[l.tid:])), int32(o.Uint32(raw[l.tid+4:]))
	}
	s.Time = get(l.time)
	s.Addr = get(l.addr)
	s.ID = get(l.id)
	if l.ident != absent {
		s.ID = get(l.ident)
	}
	s.StreamID = get(l.stream)
	if l.cpu != absent {
		s.CPU = o.Uint32(raw[l.cpu:])
	}
	s.Period = get(l.period)
	return nil
}

// sampleDecoder walks the fields of variable size.
type sampleDecoder struct {
	b   []byte
	off int
	o   Order
	err error
}

func (d *sampleDecoder) take(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.b)-d.off) {
		d.fail(ErrShort)
		return nil
	}
	d.off += int(n)
	return d.b[d.off-int(n) : d.off : d.off]
}

func (d *sampleDecoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *sampleDecoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return d.o.Uint64(b)
	}
	return 0
}

// words appends n words to dst.
func (d *sampleDecoder) words(dst []uint64, n uint64) []uint64 {
	if n > uint64(len(d.b)-d.off)/8 {
		d.fail(ErrLength)
		return dst
	}
	b := d.take(n * 8)
	if b == nil {
		return dst
	}
	at := len(dst)
	dst = slices.Grow(dst, int(n))[:at+int(n)]
	for i := range dst[at:] {
		dst[at+i] = binary.LittleEndian.Uint64(b[i*8:])
	}
	if d.o != LittleEndian {
		for i, v := range dst[at:] {
			dst[at+i] = bits.ReverseBytes64(v)
		}
	}
	return dst
}

// variable decodes what stands between the fixed fields and the weights.
func (d *sampleDecoder) variable(s *Sample, l *Layout) {
	st := l.SampleType
	if st&SampleRead != 0 && d.err == nil {
		n, err := s.Read.decode(d.b[d.off:], l.ReadFormat, d.o)
		d.off += n
		if err != nil {
			d.fail(err)
		}
	}
	if st&SampleCallchain != 0 {
		s.Callchain = d.words(s.Callchain, d.u64())
	}
	if st&SampleRaw != 0 {
		if b := d.take(4); b != nil {
			s.Raw = d.take(uint64(d.o.Uint32(b)))
			d.off = min((d.off+7)&^7, len(d.b))
		}
	}
	if st&SampleBranchStack != 0 {
		d.branches(s, l)
	}
	if st&SampleRegsUser != 0 {
		d.regs(&s.RegsUser, l.nUser)
	}
	if st&SampleStackUser != 0 {
		if n := d.u64(); n > 0 {
			s.StackUser = d.take(n)
			s.StackDyn = d.u64()
			if s.StackDyn > n {
				d.fail(ErrLength)
			}
		}
	}
}

// tail decodes the fields from the weight on.
func (d *sampleDecoder) tail(s *Sample, l *Layout) {
	st := l.SampleType
	if st&(SampleWeight|SampleWeightStruct) != 0 {
		s.Weight = d.u64()
	}
	if st&SampleDataSrc != 0 {
		s.DataSrc = d.u64()
	}
	if st&SampleTransaction != 0 {
		s.Txn = d.u64()
	}
	if st&SampleRegsIntr != 0 {
		d.regs(&s.RegsIntr, l.nIntr)
	}
	if st&SamplePhysAddr != 0 {
		s.PhysAddr = d.u64()
	}
	if st&SampleCgroup != 0 {
		s.Cgroup = d.u64()
	}
	if st&SampleDataPageSize != 0 {
		s.DataPage = d.u64()
	}
	if st&SampleCodePageSize != 0 {
		s.CodePage = d.u64()
	}
	if st&SampleAux != 0 {
		s.Aux = d.take(d.u64())
	}
}

func (d *sampleDecoder) regs(r *Regs, n int) {
	if r.ABI = d.u64(); r.ABI != 0 {
		r.Values = d.words(r.Values, uint64(n))
	}
}

func (d *sampleDecoder) branches(s *Sample, l *Layout) {
	n := d.u64()
	if l.BranchType&BranchHWIndex != 0 {
		s.BranchHW = d.u64()
	}
	if n > uint64(len(d.b)-d.off)/24 {
		d.fail(ErrLength)
		return
	}
	for range n {
		b := Branch{From: d.u64(), To: d.u64(), Flags: d.u64()}
		b.Flags = swapBranchFlags(b.Flags, d.o)
		s.Branches = append(s.Branches, b)
	}
	if l.BranchType&BranchCounters != 0 {
		s.BranchCtrs = d.words(s.BranchCtrs, n)
	}
}

// branchFields are the widths of the bit-fields of perf_branch_entry.
var branchFields = [...]int{1, 1, 1, 1, 16, 4, 2, 4, 3, 31}

// swapBranchFlags turns the flags word of a big-endian file, whose first
// bit-field is in the highest bits, around, and back.
func swapBranchFlags(v uint64, o Order) uint64 {
	if o == LittleEndian {
		return v
	}
	var out uint64
	at := 0
	for _, w := range branchFields {
		field := v >> (64 - at - w) & (1<<w - 1)
		out |= field << at
		at += w
	}
	return out
}

// unswapBranchFlags is the opposite of swapBranchFlags.
func unswapBranchFlags(v uint64, o Order) uint64 {
	if o == LittleEndian {
		return v
	}
	var out uint64
	at := 0
	for _, w := range branchFields {
		out |= v >> at & (1<<w - 1) << (64 - at - w)
		at += w
	}
	return out
}

// decode reads struct read_format and says how many bytes it took.
func (r *ReadValues) decode(b []byte, f ReadFormat, o Order) (int, error) {
	off := 0
	short := false
	u64 := func() uint64 {
		if len(b)-off < 8 {
			short = true
			return 0
		}
		off += 8
		return o.Uint64(b[off-8:])
	}
	times := func() {
		if f&FormatTotalTimeEnabled != 0 {
			r.TimeEnabled = u64()
		}
		if f&FormatTotalTimeRunning != 0 {
			r.TimeRunning = u64()
		}
	}
	count := func() {
		c := Count{Value: u64()}
		if f&FormatGroup == 0 {
			times()
		}
		if f&FormatID != 0 {
			c.ID = u64()
		}
		if f&FormatLost != 0 {
			c.Lost = u64()
		}
		r.Counts = append(r.Counts, c)
	}
	n := uint64(1)
	if f&FormatGroup != 0 {
		n = u64()
		times()
	}
	if n > uint64(len(b))/8 {
		return off, ErrLength
	}
	for range n {
		count()
	}
	if short {
		return off, ErrShort
	}
	return off, nil
}

// DecodeRead reads what read(2) on an event with the read format f gave. The
// error is ErrShort, or ErrLength for a group that cannot be in b.
func DecodeRead(b []byte, f ReadFormat, o Order) (ReadValues, error) {
	var r ReadValues
	_, err := r.decode(b, f, o)
	if err != nil {
		return ReadValues{}, fmt.Errorf("read format: %w", err)
	}
	return r, nil
}

func (r *ReadValues) append(dst []byte, f ReadFormat, o Order) []byte {
	times := func() {
		if f&FormatTotalTimeEnabled != 0 {
			dst = o.AppendUint64(dst, r.TimeEnabled)
		}
		if f&FormatTotalTimeRunning != 0 {
			dst = o.AppendUint64(dst, r.TimeRunning)
		}
	}
	counts := r.Counts
	if f&FormatGroup != 0 {
		dst = o.AppendUint64(dst, uint64(len(counts)))
		times()
	} else if len(counts) == 0 {
		counts = []Count{{}}
	}
	for _, c := range counts {
		dst = o.AppendUint64(dst, c.Value)
		if f&FormatGroup == 0 {
			times()
		}
		if f&FormatID != 0 {
			dst = o.AppendUint64(dst, c.ID)
		}
		if f&FormatLost != 0 {
			dst = o.AppendUint64(dst, c.Lost)
		}
		if f&FormatGroup == 0 {
			break
		}
	}
	return dst
}
