// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"fmt"
)

// The records that perf itself writes into files and pipes.

// FinishedRound is PERF_RECORD_FINISHED_ROUND: every ring was read once;
// nothing that follows is older than what was read the round before.
type FinishedRound struct{ RecordMisc }

// FinishedInit is PERF_RECORD_FINISHED_INIT: the records about what ran
// before the recording are complete.
type FinishedInit struct{ RecordMisc }

// HeaderAttr is PERF_RECORD_HEADER_ATTR: an event, in a pipe.
type HeaderAttr struct {
	RecordMisc
	Attr Attr
	IDs  []uint64
}

// TracingData is PERF_RECORD_HEADER_TRACING_DATA. Size bytes of tracing data
// follow behind the record, padded to a multiple of 8.
type TracingData struct {
	RecordMisc
	Size uint32
}

// BuildID is PERF_RECORD_HEADER_BUILD_ID and the entry of the BUILD_ID
// feature. PID is -1 for the host.
type BuildID struct {
	RecordMisc
	PID      int32
	ID       []byte // at most 20 bytes
	Filename string
}

// IDIndexEntry says which cpu and thread a kernel id was opened for.
type IDIndexEntry struct{ ID, Idx, CPU, TID uint64 }

// IDIndex is PERF_RECORD_ID_INDEX. Extra holds the second list that newer
// versions append, undecoded.
type IDIndex struct {
	RecordMisc
	Entries []IDIndexEntry
	Extra   []byte
}

// AuxtraceInfo is PERF_RECORD_AUXTRACE_INFO, its payload undecoded.
type AuxtraceInfo struct {
	RecordMisc
	InfoType uint32
	Reserved uint32
	Priv     []byte
}

// Auxtrace is PERF_RECORD_AUXTRACE. Size bytes of trace follow the record.
type Auxtrace struct {
	RecordMisc
	Size, Offset, Reference uint64
	Idx, TID, CPU, Reserved uint32
}

// ThreadMapEntry is one thread that was recorded.
type ThreadMapEntry struct {
	PID  uint64
	Comm string // at most 16 bytes
}

// ThreadMap is PERF_RECORD_THREAD_MAP.
type ThreadMap struct {
	RecordMisc
	Threads []ThreadMapEntry
}

// CPUMap is PERF_RECORD_CPU_MAP: a set of cpus in one of three encodings,
// kept as it was written (MapType 0: list, 1: mask, 2: range).
type CPUMap struct {
	RecordMisc
	MapType uint16
	Data    []byte
}

// Kinds of EventUpdate.
const (
	EventUpdateUnit uint64 = iota
	EventUpdateScale
	EventUpdateName
	EventUpdateCPUs
)

// EventUpdate is PERF_RECORD_EVENT_UPDATE: unit, scale, name or cpus of the
// event with kernel id ID.
type EventUpdate struct {
	RecordMisc
	Kind  uint64
	ID    uint64
	Text  string  // EventUpdateUnit, EventUpdateName
	Scale float64 // EventUpdateScale
	Data  []byte  // everything else
}

// TimeConv is PERF_RECORD_TIME_CONV: how cycles become nanoseconds. Short
// says that the file holds the first three fields only.
type TimeConv struct {
	RecordMisc
	TimeShift, TimeMult, TimeZero uint64
	Short                         bool
	TimeCycles, TimeMask          uint64
	CapUserTimeZero               uint8
	CapUserTimeShort              uint8
}

// HeaderFeature is PERF_RECORD_HEADER_FEATURE: a feature section, in a pipe.
type HeaderFeature struct {
	RecordMisc
	Feature uint64
	Data    []byte
}

// Compressed is PERF_RECORD_COMPRESSED: a piece of a zstd stream of records.
type Compressed struct {
	RecordMisc
	Data []byte
}

// Compressed2 is PERF_RECORD_COMPRESSED2: Compressed with the size of its
// data given, so that the record can be padded.
type Compressed2 struct {
	RecordMisc
	Data []byte
}

// Unknown is a record this package does not decode: its payload as it is.
type Unknown struct {
	RecordMisc
	Type RecordType
	Data []byte
}

// RecordType implements Record.
func (r *FinishedRound) RecordType() RecordType { return RecordFinishedRound }
func (r *FinishedInit) RecordType() RecordType  { return RecordFinishedInit }
func (r *HeaderAttr) RecordType() RecordType    { return RecordHeaderAttr }
func (r *TracingData) RecordType() RecordType   { return RecordHeaderTracingData }
func (r *BuildID) RecordType() RecordType       { return RecordHeaderBuildID }
func (r *IDIndex) RecordType() RecordType       { return RecordIDIndex }
func (r *AuxtraceInfo) RecordType() RecordType  { return RecordAuxtraceInfo }
func (r *Auxtrace) RecordType() RecordType      { return RecordAuxtrace }
func (r *ThreadMap) RecordType() RecordType     { return RecordThreadMap }
func (r *CPUMap) RecordType() RecordType        { return RecordCPUMap }
func (r *EventUpdate) RecordType() RecordType   { return RecordEventUpdate }
func (r *TimeConv) RecordType() RecordType      { return RecordTimeConv }
func (r *HeaderFeature) RecordType() RecordType { return RecordHeaderFeature }
func (r *Compressed) RecordType() RecordType    { return RecordCompressed }
func (r *Compressed2) RecordType() RecordType   { return RecordCompressed2 }
func (r *Unknown) RecordType() RecordType       { return r.Type }

func (r *FinishedRound) code(*codec) {}
func (r *FinishedInit) code(*codec)  {}

func (r *HeaderAttr) code(c *codec) {
	if !c.dec {
		c.b = r.Attr.Append(c.b, c.order)
	} else {
		a, err := DecodeAttr(c.b[c.off:], c.order)
		if err != nil {
			c.err = err
			return
		}
		r.Attr = a
		c.take(max(int(a.Size), AttrSizeVer0))
	}
	c.u64s(&r.IDs, uint64((len(c.b)-c.off)/8))
}

func (r *TracingData) code(c *codec) { c.u32(&r.Size) }

// buildIDSize is the id field of a BuildID record: twenty bytes of id, one
// of length, three reserved.
const buildIDSize = 24

func (r *BuildID) code(c *codec) {
	var b [buildIDSize]byte
	n := copy(b[:20], r.ID)
	if r.Misc&MiscBuildIDSize != 0 {
		b[20] = uint8(n)
	}
	c.i32(&r.PID)
	c.bytes(b[:])
	c.str(&r.Filename)
	if !c.dec || c.err != nil {
		return
	}
	n = 20
	if r.Misc&MiscBuildIDSize != 0 && int(b[20]) <= 20 {
		n = int(b[20])
	}
	r.ID = bytes.Clone(b[:n])
}

func (r *IDIndex) code(c *codec) {
	n := uint64(len(r.Entries))
	c.u64(&n)
	if !c.count(n, 32) {
		return
	}
	if c.dec && n > 0 {
		r.Entries = make([]IDIndexEntry, n)
	}
	for i := range r.Entries {
		e := &r.Entries[i]
		c.u64(&e.ID)
		c.u64(&e.Idx)
		c.u64(&e.CPU)
		c.u64(&e.TID)
	}
	c.rest(&r.Extra)
}

func (r *AuxtraceInfo) code(c *codec) {
	c.u32(&r.InfoType)
	c.u32(&r.Reserved)
	c.rest(&r.Priv)
}

func (r *Auxtrace) code(c *codec) {
	c.u64(&r.Size)
	c.u64(&r.Offset)
	c.u64(&r.Reference)
	c.u32(&r.Idx)
	c.u32(&r.TID)
	c.u32(&r.CPU)
	c.u32(&r.Reserved)
}

func (r *ThreadMap) code(c *codec) {
	n := uint64(len(r.Threads))
	c.u64(&n)
	if !c.count(n, 24) {
		return
	}
	if c.dec && n > 0 {
		r.Threads = make([]ThreadMapEntry, n)
	}
	for i := range r.Threads {
		var comm [16]byte
		copy(comm[:], r.Threads[i].Comm)
		c.u64(&r.Threads[i].PID)
		c.bytes(comm[:])
		r.Threads[i].Comm = cString(comm[:])
	}
}

func (r *CPUMap) code(c *codec) {
	c.u16(&r.MapType)
	c.rest(&r.Data)
}

func (r *EventUpdate) code(c *codec) {
	c.u64(&r.Kind)
	c.u64(&r.ID)
	switch r.Kind {
	case EventUpdateUnit, EventUpdateName:
		c.str(&r.Text)
	case EventUpdateScale:
		c.f64(&r.Scale)
	default:
		c.rest(&r.Data)
	}
}

func (r *TimeConv) code(c *codec) {
	c.u64(&r.TimeShift)
	c.u64(&r.TimeMult)
	c.u64(&r.TimeZero)
	if c.dec {
		r.Short = c.off == len(c.b)
	}
	if r.Short {
		return
	}
	c.u64(&r.TimeCycles)
	c.u64(&r.TimeMask)
	c.u8(&r.CapUserTimeZero)
	c.u8(&r.CapUserTimeShort)
	c.pad(6)
}

func (r *HeaderFeature) code(c *codec) {
	c.u64(&r.Feature)
	c.rest(&r.Data)
}

func (r *Compressed) code(c *codec) { c.rest(&r.Data) }

func (r *Compressed2) code(c *codec) {
	n := uint64(len(r.Data))
	c.u64(&n)
	if !c.count(n, 1) {
		return
	}
	if c.dec {
		r.Data = make([]byte, n)
	}
	c.bytes(r.Data)
}

func (r *Unknown) code(c *codec) { c.rest(&r.Data) }

// newBody gives the empty record of type t, *Unknown if there is no type of
// its own. Samples are not made here.
func newBody(t RecordType) body {
	if t >= RecordHeaderAttr {
		return newUserBody(t)
	}
	switch t {
	case RecordMmap:
		return new(Mmap)
	case RecordLost:
		return new(Lost)
	case RecordComm:
		return new(Comm)
	case RecordExit:
		return new(Exit)
	case RecordThrottle, RecordUnthrottle:
		return &Throttle{Un: t == RecordUnthrottle}
	case RecordFork:
		return new(Fork)
	case RecordRead:
		return new(Read)
	case RecordMmap2:
		return new(Mmap2)
	case RecordAux:
		return new(Aux)
	case RecordItraceStart:
		return new(ItraceStart)
	case RecordLostSamples:
		return new(LostSamples)
	case RecordSwitch:
		return new(Switch)
	case RecordSwitchCPUWide:
		return new(SwitchCPUWide)
	case RecordNamespaces:
		return new(Namespaces)
	case RecordKsymbol:
		return new(Ksymbol)
	case RecordBPFEvent:
		return new(BPFEvent)
	case RecordCgroup:
		return new(Cgroup)
	case RecordTextPoke:
		return new(TextPoke)
	case RecordAuxOutputHWID:
		return new(AuxOutputHWID)
	case RecordCallchainDeferred:
		return new(CallchainDeferred)
	}
	return &Unknown{Type: t}
}

func newUserBody(t RecordType) body {
	switch t {
	case RecordHeaderAttr:
		return new(HeaderAttr)
	case RecordHeaderTracingData:
		return new(TracingData)
	case RecordHeaderBuildID:
		return new(BuildID)
	case RecordFinishedRound:
		return new(FinishedRound)
	case RecordIDIndex:
		return new(IDIndex)
	case RecordAuxtraceInfo:
		return new(AuxtraceInfo)
	case RecordAuxtrace:
		return new(Auxtrace)
	case RecordThreadMap:
		return new(ThreadMap)
	case RecordCPUMap:
		return new(CPUMap)
	case RecordEventUpdate:
		return new(EventUpdate)
	case RecordTimeConv:
		return new(TimeConv)
	case RecordHeaderFeature:
		return new(HeaderFeature)
	case RecordCompressed:
		return new(Compressed)
	case RecordFinishedInit:
		return new(FinishedInit)
	case RecordCompressed2:
		return new(Compressed2)
	}
	return &Unknown{Type: t}
}

var recordNames = [...]string{
	RecordMmap: "MMAP", RecordLost: "LOST", RecordComm: "COMM", RecordExit: "EXIT",
	RecordThrottle: "THROTTLE", RecordUnthrottle: "UNTHROTTLE", RecordFork: "FORK",
	RecordRead: "READ", RecordSample: "SAMPLE", RecordMmap2: "MMAP2", RecordAux: "AUX",
	RecordItraceStart: "ITRACE_START", RecordLostSamples: "LOST_SAMPLES",
	RecordSwitch: "SWITCH", RecordSwitchCPUWide: "SWITCH_CPU_WIDE",
	RecordNamespaces: "NAMESPACES", RecordKsymbol: "KSYMBOL", RecordBPFEvent: "BPF_EVENT",
	RecordCgroup: "CGROUP", RecordTextPoke: "TEXT_POKE",
	RecordAuxOutputHWID: "AUX_OUTPUT_HW_ID", RecordCallchainDeferred: "CALLCHAIN_DEFERRED",
	RecordHeaderAttr: "HEADER_ATTR", RecordHeaderEventType: "HEADER_EVENT_TYPE",
	RecordHeaderTracingData: "HEADER_TRACING_DATA", RecordHeaderBuildID: "HEADER_BUILD_ID",
	RecordFinishedRound: "FINISHED_ROUND", RecordIDIndex: "ID_INDEX",
	RecordAuxtraceInfo: "AUXTRACE_INFO", RecordAuxtrace: "AUXTRACE",
	RecordAuxtraceError: "AUXTRACE_ERROR", RecordThreadMap: "THREAD_MAP",
	RecordCPUMap: "CPU_MAP", RecordStatConfig: "STAT_CONFIG", RecordStat: "STAT",
	RecordStatRound: "STAT_ROUND", RecordEventUpdate: "EVENT_UPDATE",
	RecordTimeConv: "TIME_CONV", RecordHeaderFeature: "HEADER_FEATURE",
	RecordCompressed: "COMPRESSED", RecordFinishedInit: "FINISHED_INIT",
	RecordCompressed2: "COMPRESSED2", RecordBPFMetadata: "BPF_METADATA",
}

// String is the name after PERF_RECORD_, or RECORD_n if there is none.
func (t RecordType) String() string {
	if int(t) < len(recordNames) && recordNames[t] != "" {
		return recordNames[t]
	}
	return fmt.Sprintf("RECORD_%d", uint32(t))
}

// RecordTypeOf is the opposite of RecordType.String.
func RecordTypeOf(name string) (RecordType, bool) {
	for t, n := range recordNames {
		if n == name && n != "" {
			return RecordType(t), true
		}
	}
	var t uint32
	if n, err := fmt.Sscanf(name, "RECORD_%d", &t); n == 1 && err == nil {
		return RecordType(t), true
	}
	return 0, false
}
