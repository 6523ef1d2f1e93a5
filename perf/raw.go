// SPDX-License-Identifier: Apache-2.0

package perf

import "bytes"

// NativeOrder is the byte order of the machines that gantry records on (amd64 and
// arm64).
const NativeOrder = LittleEndian

// Raw is one whole record as the kernel has written it into a ring, in
// NativeOrder. Its methods read single fields where they lie, for recorders that
// look at each record and decode none. The layouts are those of enum
// perf_event_type in linux/perf_event.h. A method that returns ok reports false
// for a record that is too short; none looks at the type.
type Raw []byte

// Offsets in records. Those of samples hold for RawSampleType.
const (
	rawMisc, rawSize = 4, 6

	rawTaskPID, rawTaskPPID, rawTaskTID, rawTaskPTID, rawTaskTime, rawTaskEnd = 8, 12, 16, 20, 24, 32
	rawCommPID, rawCommTID, rawCommName                                       = 8, 12, 16
	rawNSPID, rawNSTID, rawNSCount, rawNSLinks                                = 8, 12, 16, 24
	rawNSLinkSize, rawNSInode                                                 = 16, 8
	rawCgroupID, rawCgroupPath                                                = 8, 16
	rawLostCount, rawLostEnd                                                  = 16, 24
	rawLostSamples, rawLostSamplesEnd                                         = 8, 16
	rawKsymbolAddr, rawKsymbolFlags, rawKsymbolName                           = 8, 22, 24
	rawThreadPID, rawThreadTID                                                = 8, 12 // COMM, NAMESPACES, MMAP, MMAP2

	rawMmapPID, rawMmapAddr, rawMmapLen          = 8, 16, 24
	rawMmapPgOff, rawMmapEnd                     = 32, 40 // of MMAP, too
	rawMmapMajor, rawMmapMinor, rawMmapInode     = 40, 44, 48
	rawMmapInodeGen, rawMmapPath                 = 56, 72
	rawMmapIDSize, rawMmapID, rawMmapIDEnd       = 40, 44, 64 // in place of device and inode
	rawBPFType, rawBPFID, rawBPFTag, rawBPFEnd   = 8, 12, 16, 24
	rawSampleID, rawSamplePID, rawSampleTID      = 8, 24, 28
	rawSampleTime, rawSampleEnd                  = 32, 40
	rawTrailerPID, rawTrailerTID, rawTrailerTime = 0, 4, 8 // from the end, less RawTrailerSize
)

const (
	// RawSampleType is what a sample type must have for the sample fields of
	// Raw: they have the same offset in every sample with these.
	RawSampleType = SampleIdentifier | SampleIP | SampleTID | SampleTime | SampleCPU
	// RawSampleMin is the least size of such a sample, in bytes.
	RawSampleMin = rawSampleEnd
	// RawTrailerSize is the size of the sample_id that RawSampleType gives to
	// other records: TID, TIME, CPU and IDENTIFIER.
	RawTrailerSize = 32
	// MaxRawBuildID is the largest build-id that an MMAP2 record has room for.
	MaxRawBuildID = rawMmapIDEnd - rawMmapID
)

func (r Raw) u32(at int) uint32 { return NativeOrder.Uint32(r[at:]) }
func (r Raw) u64(at int) uint64 { return NativeOrder.Uint64(r[at:]) }
func (r Raw) i32(at int) int32  { return int32(NativeOrder.Uint32(r[at:])) }

// Type returns the record's type.
func (r Raw) Type() RecordType { return RecordType(r.u32(0)) }

// Misc returns the misc bits of the header.
func (r Raw) Misc() Misc { return Misc(NativeOrder.Uint16(r[rawMisc:])) }

// SetMisc sets the misc bits of the header.
func (r Raw) SetMisc(m Misc) { NativeOrder.PutUint16(r[rawMisc:], uint16(m)) }

// SetSize sets the size in the header to that of r.
func (r Raw) SetSize() { NativeOrder.PutUint16(r[rawSize:], uint16(len(r))) }

// Task returns the body of a FORK or EXIT record.
func (r Raw) Task() (t Task, ok bool) {
	if len(r) < rawTaskEnd {
		return t, false
	}
	return Task{
		PID: r.i32(rawTaskPID), PPID: r.i32(rawTaskPPID), TID: r.i32(rawTaskTID), PTID: r.i32(rawTaskPTID),
		Time: r.u64(rawTaskTime),
	}, true
}

// Comm returns whose name a COMM record tells.
func (r Raw) Comm() (pid, tid int32, ok bool) {
	if len(r) < rawCommName {
		return 0, 0, false
	}
	return r.i32(rawCommPID), r.i32(rawCommTID), true
}

// RawNamespaces is a NAMESPACES record where it lies.
type RawNamespaces struct {
	PID, TID int32
	links    Raw
}

// Namespaces returns the body of a NAMESPACES record.
func (r Raw) Namespaces() (n RawNamespaces, ok bool) {
	if len(r) < rawNSLinks {
		return n, false
	}
	count := r.u64(rawNSCount)
	if count > uint64(len(r)-rawNSLinks)/rawNSLinkSize {
		return n, false
	}
	return RawNamespaces{PID: r.i32(rawNSPID), TID: r.i32(rawNSTID),
		links: r[rawNSLinks : rawNSLinks+int(count)*rawNSLinkSize]}, true
}

// Len returns how many namespaces the record has.
func (n *RawNamespaces) Len() int { return len(n.links) / rawNSLinkSize }

// Inode returns the inode number of a namespace, by NSNet and so on; 0 if the
// record does not have it.
func (n *RawNamespaces) Inode(i int) uint64 {
	if i >= n.Len() {
		return 0
	}
	return n.links.u64(i*rawNSLinkSize + rawNSInode)
}

// Cgroup returns the body of a CGROUP record. The path lies in the record.
func (r Raw) Cgroup() (id uint64, path []byte, ok bool) {
	if len(r) < rawCgroupPath {
		return 0, nil, false
	}
	end := bytes.IndexByte(r[rawCgroupPath:], 0)
	if end < 0 {
		return 0, nil, false
	}
	return r.u64(rawCgroupID), r[rawCgroupPath : rawCgroupPath+end], true
}

// Lost returns how many records a LOST record counts.
func (r Raw) Lost() (n uint64, ok bool) {
	if len(r) < rawLostEnd {
		return 0, false
	}
	return r.u64(rawLostCount), true
}

// RawMmap2 is some of an MMAP2 record. Path lies in the record.
type RawMmap2 struct {
	PID             int32
	Addr, Len       uint64
	Major, Minor    uint32
	Inode, InodeGen uint64
	Path            []byte
}

// Mmap2 returns the body of an MMAP2 record as the kernel writes it for an event
// without attr.build_id: with device and inode, whatever the misc bits say.
func (r Raw) Mmap2() (m RawMmap2, ok bool) {
	if len(r) < rawMmapPath {
		return m, false
	}
	end := bytes.IndexByte(r[rawMmapPath:], 0)
	if end < 0 {
		return m, false
	}
	return RawMmap2{
		PID: r.i32(rawMmapPID), Addr: r.u64(rawMmapAddr), Len: r.u64(rawMmapLen),
		Major: r.u32(rawMmapMajor), Minor: r.u32(rawMmapMinor), Inode: r.u64(rawMmapInode),
		InodeGen: r.u64(rawMmapInodeGen),
		Path:     r[rawMmapPath : rawMmapPath+end],
	}, true
}

// SetBuildID gives an MMAP2 record the form with the build-id, in place of device
// and inode, or the plain one if there is no id or it is too long. The bit in
// misc may have been set by the kernel for another recording.
func (r Raw) SetBuildID(id []byte) {
	if len(r) < rawMmapIDEnd {
		return
	}
	misc := r.Misc() &^ MiscMmapBuildID
	if n := len(id); n > 0 && n <= MaxRawBuildID {
		misc |= MiscMmapBuildID
		clear(r[rawMmapIDSize:rawMmapIDEnd])
		r[rawMmapIDSize] = byte(n)
		copy(r[rawMmapID:], id)
	}
	r.SetMisc(misc)
}

// SetInodeGen sets the inode's generation in an MMAP2 record without build-id.
func (r Raw) SetInodeGen(gen uint64) {
	if len(r) >= rawMmapPath {
		NativeOrder.PutUint64(r[rawMmapInodeGen:], gen)
	}
}

// Mapping returns the memory that an MMAP or MMAP2 record is about, and the offset into the
// file.
func (r Raw) Mapping() (pid int32, addr, size, pgoff uint64, ok bool) {
	if len(r) < rawMmapEnd {
		return 0, 0, 0, 0, false
	}
	return r.i32(rawMmapPID), r.u64(rawMmapAddr), r.u64(rawMmapLen), r.u64(rawMmapPgOff), true
}

// SetMapping changes what Mapping returns, but the process.
func (r Raw) SetMapping(addr, size, pgoff uint64) {
	if len(r) >= rawMmapEnd {
		NativeOrder.PutUint64(r[rawMmapAddr:], addr)
		NativeOrder.PutUint64(r[rawMmapLen:], size)
		NativeOrder.PutUint64(r[rawMmapPgOff:], pgoff)
	}
}

// SetThread changes whose a COMM, NAMESPACES, MMAP or MMAP2 record is.
func (r Raw) SetThread(pid, tid int32) {
	if len(r) >= rawCommName {
		NativeOrder.PutUint32(r[rawThreadPID:], uint32(pid))
		NativeOrder.PutUint32(r[rawThreadTID:], uint32(tid))
	}
}

// SetTrailer changes the thread and the time in a sample_id of RawTrailerSize.
func (r Raw) SetTrailer(pid, tid int32, time uint64) {
	if len(r) < HeaderSize+RawTrailerSize {
		return
	}
	t := r[len(r)-RawTrailerSize:]
	NativeOrder.PutUint32(t[rawTrailerPID:], uint32(pid))
	NativeOrder.PutUint32(t[rawTrailerTID:], uint32(tid))
	NativeOrder.PutUint64(t[rawTrailerTime:], time)
}

// Ksymbol returns the address of a KSYMBOL record, and whether the symbol is no more.
func (r Raw) Ksymbol() (addr uint64, gone, ok bool) {
	if len(r) < rawKsymbolName {
		return 0, false, false
	}
	return r.u64(rawKsymbolAddr), NativeOrder.Uint16(r[rawKsymbolFlags:])&KsymbolUnregister != 0, true
}

// BPFEvent returns the body of a BPF_EVENT record.
func (r Raw) BPFEvent() (kind uint16, id uint32, tag [8]byte, ok bool) {
	if len(r) < rawBPFEnd {
		return 0, 0, tag, false
	}
	return NativeOrder.Uint16(r[rawBPFType:]), r.u32(rawBPFID), [8]byte(r[rawBPFTag:]), true
}

// BPFEventTrailer returns the task and the time in the sample_id right behind the
// body of a BPF_EVENT, of an event whose sample type begins with TID and TIME.
func (r Raw) BPFEventTrailer() (pid, tid int32, time uint64, ok bool) {
	if len(r) < rawBPFEnd+rawTrailerTime+8 {
		return 0, 0, 0, false
	}
	t := r[rawBPFEnd:]
	return t.i32(rawTrailerPID), t.i32(rawTrailerTID), t.u64(rawTrailerTime), true
}

// TrailerTime returns the time in a sample_id of RawTrailerSize, 0 if there is no
// room for one.
func (r Raw) TrailerTime() uint64 {
	if len(r) < HeaderSize+RawTrailerSize {
		return 0
	}
	return r.u64(len(r) - RawTrailerSize + rawTrailerTime)
}

// RepairTrailer moves the sample_id of a KSYMBOL or BPF_EVENT record, of
// RawTrailerSize, to the end of the record. When several recordings get such a
// record, the kernel counts the sample_id of each in the size of those that come
// after it (perf_event_ksymbol_output, perf_event_bpf_output, as of 6.18): what is
// at the end is then what was in the ring before. Other records stay as they are.
func (r Raw) RepairTrailer() {
	end := 0
	switch r.Type() {
	case RecordBPFEvent:
		end = rawBPFEnd
	case RecordKsymbol:
		if len(r) <= rawKsymbolName {
			return
		}
		n := bytes.IndexByte(r[rawKsymbolName:], 0)
		if n < 0 {
			return
		}
		end = rawKsymbolName + (n+8)&^7
	default:
		return
	}
	at := len(r) - RawTrailerSize
	if end >= at {
		return
	}
	copy(r[at:], r[end:end+RawTrailerSize])
	clear(r[end:at])
}

// SampleIdentifier returns the id of a sample's event. Like the methods below, it
// is for samples of RawSampleType and RawSampleMin bytes at least.
func (r Raw) SampleIdentifier() uint64 { return r.u64(rawSampleID) }

// SamplePID returns the process of a sample.
func (r Raw) SamplePID() int32 { return r.i32(rawSamplePID) }

// SampleTID returns the thread of a sample.
func (r Raw) SampleTID() int32 { return r.i32(rawSampleTID) }

// SampleTime returns the time of a sample.
func (r Raw) SampleTime() uint64 { return r.u64(rawSampleTime) }

// RingData is what a ring holds: B follows A, where the ring wraps around. Its
// methods take the offset of a record from the start of A. Records are aligned to
// eight bytes, and so is the end of A.
type RingData struct{ A, B []byte }

// Len returns the size of both parts in bytes.
func (d RingData) Len() int { return len(d.A) + len(d.B) }

// Header returns type and size of the record at an offset. It is not ok if the
// size makes no sense.
func (d RingData) Header(off int) (typ RecordType, size int, ok bool) {
	part, at := d.A, off
	if off >= len(d.A) {
		part, at = d.B, off-len(d.A)
	}
	if len(part)-at < HeaderSize {
		return 0, 0, false
	}
	size = int(NativeOrder.Uint16(part[at+rawSize:]))
	return RecordType(NativeOrder.Uint32(part[at:])), size, size >= HeaderSize && size&7 == 0 && size <= d.Len()-off
}

func (d RingData) word(off int) uint64 {
	if off >= len(d.A) {
		return NativeOrder.Uint64(d.B[off-len(d.A):])
	}
	return NativeOrder.Uint64(d.A[off:])
}

// SampleTime returns the time of the sample at an offset, see Raw.SampleTime.
func (d RingData) SampleTime(off int) uint64 { return d.word(off + rawSampleTime) }

// LastWord returns the last eight bytes of a record of so many bytes.
func (d RingData) LastWord(off, size int) uint64 { return d.word(off + size - 8) }

// Lost returns how many records the LOST record at an offset counts, 0 if it is
// too short.
func (d RingData) Lost(off, size int) uint64 {
	if size < rawLostEnd {
		return 0
	}
	return d.word(off + rawLostCount)
}

// LostSamples returns how many samples the LOST_SAMPLES record at an offset
// counts, 0 if it is too short.
func (d RingData) LostSamples(off, size int) uint64 {
	if size < rawLostSamplesEnd {
		return 0
	}
	return d.word(off + rawLostSamples)
}
