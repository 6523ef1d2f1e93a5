// SPDX-License-Identifier: Apache-2.0

package perf

// EventType is attr.type: which kernel unit counts the event. Values from 6
// up are dynamic, found in /sys/bus/event_source/devices/*/type.
type EventType uint32

// Event types of enum perf_type_id.
const (
	TypeHardware EventType = iota
	TypeSoftware
	TypeTracepoint
	TypeHWCache
	TypeRaw
	TypeBreakpoint
)

// Hardware events, attr.config of TypeHardware (enum perf_hw_id).
const (
	HWCPUCycles uint64 = iota
	HWInstructions
	HWCacheReferences
	HWCacheMisses
	HWBranchInstructions
	HWBranchMisses
	HWBusCycles
	HWStalledCyclesFrontend
	HWStalledCyclesBackend
	HWRefCPUCycles
)

// Software events, attr.config of TypeSoftware (enum perf_sw_ids).
const (
	SWCPUClock uint64 = iota
	SWTaskClock
	SWPageFaults
	SWContextSwitches
	SWCPUMigrations
	SWPageFaultsMin
	SWPageFaultsMaj
	SWAlignmentFaults
	SWEmulationFaults
	SWDummy
	SWBPFOutput
	SWCgroupSwitches // Linux 5.13
)

// SampleType is attr.sample_type: the fields of a sample.
type SampleType uint64

// Fields of a sample (enum perf_event_sample_format), not in the order in
// which they are written: see [Sample].
const (
	SampleIP SampleType = 1 << iota
	SampleTID
	SampleTime
	SampleAddr
	SampleRead
	SampleCallchain
	SampleID
	SampleCPU
	SamplePeriod
	SampleStreamID
	SampleRaw
	SampleBranchStack
	SampleRegsUser
	SampleStackUser
	SampleWeight
	SampleDataSrc
	SampleIdentifier
	SampleTransaction
	SampleRegsIntr
	SamplePhysAddr
	SampleAux
	SampleCgroup       // Linux 5.7
	SampleDataPageSize // 5.11
	SampleCodePageSize // 5.11
	SampleWeightStruct // 5.12

	// sampleKnown are the bits whose place in a sample is known.
	sampleKnown = 1<<25 - 1
)

// ReadFormat is attr.read_format: what read(2) and SampleRead give.
type ReadFormat uint64

// Parts of what is read (enum perf_event_read_format).
const (
	FormatTotalTimeEnabled ReadFormat = 1 << iota
	FormatTotalTimeRunning
	FormatID
	FormatGroup
	FormatLost // Linux 6.0
)

// BranchSampleType is attr.branch_sample_type.
type BranchSampleType uint64

// The bits of branch_sample_type that change the layout of a sample.
const (
	BranchHWIndex  BranchSampleType = 1 << 17 // Linux 5.7
	BranchCounters BranchSampleType = 1 << 19 // 6.8
)

// AttrFlags are the bit-fields of struct perf_event_attr.
type AttrFlags uint64

// The bits of an attr; precise_ip (15, 16) has methods instead.
const (
	AttrDisabled               AttrFlags = 1 << 0
	AttrInherit                AttrFlags = 1 << 1
	AttrPinned                 AttrFlags = 1 << 2
	AttrExclusive              AttrFlags = 1 << 3
	AttrExcludeUser            AttrFlags = 1 << 4
	AttrExcludeKernel          AttrFlags = 1 << 5
	AttrExcludeHV              AttrFlags = 1 << 6
	AttrExcludeIdle            AttrFlags = 1 << 7
	AttrMmap                   AttrFlags = 1 << 8
	AttrComm                   AttrFlags = 1 << 9
	AttrFreq                   AttrFlags = 1 << 10
	AttrInheritStat            AttrFlags = 1 << 11
	AttrEnableOnExec           AttrFlags = 1 << 12
	AttrTask                   AttrFlags = 1 << 13
	AttrWatermark              AttrFlags = 1 << 14
	AttrMmapData               AttrFlags = 1 << 17
	AttrSampleIDAll            AttrFlags = 1 << 18
	AttrExcludeHost            AttrFlags = 1 << 19
	AttrExcludeGuest           AttrFlags = 1 << 20
	AttrExcludeCallchainKernel AttrFlags = 1 << 21
	AttrExcludeCallchainUser   AttrFlags = 1 << 22
	AttrMmap2                  AttrFlags = 1 << 23
	AttrCommExec               AttrFlags = 1 << 24
	AttrUseClockID             AttrFlags = 1 << 25
	AttrContextSwitch          AttrFlags = 1 << 26
	AttrWriteBackward          AttrFlags = 1 << 27
	AttrNamespaces             AttrFlags = 1 << 28 // Linux 4.12
	AttrKsymbol                AttrFlags = 1 << 29 // 5.1
	AttrBPFEvent               AttrFlags = 1 << 30 // 5.1
	AttrAuxOutput              AttrFlags = 1 << 31
	AttrCgroup                 AttrFlags = 1 << 32 // 5.7
	AttrTextPoke               AttrFlags = 1 << 33 // 5.9
	AttrBuildID                AttrFlags = 1 << 34 // 5.12
	AttrInheritThread          AttrFlags = 1 << 35 // 5.13
	AttrRemoveOnExec           AttrFlags = 1 << 36 // 5.13
	AttrSigtrap                AttrFlags = 1 << 37 // 5.13
	AttrDeferCallchain         AttrFlags = 1 << 38 // 6.19
	AttrDeferOutput            AttrFlags = 1 << 39 // 6.19
)

// Marks in a callchain (enum perf_callchain_context): each says where the
// addresses behind it belong.
const (
	ContextHV           = ^uint64(32 - 1)
	ContextKernel       = ^uint64(128 - 1)
	ContextUser         = ^uint64(512 - 1)
	ContextUserDeferred = ^uint64(640 - 1) // Linux 6.19
	ContextGuest        = ^uint64(2048 - 1)
	ContextGuestKernel  = ^uint64(2176 - 1)
	ContextGuestUser    = ^uint64(2560 - 1)
	// ContextMax is the lowest value that is a mark and not an address.
	ContextMax = ^uint64(4095 - 1)
)

// Kinds of kernel symbol, Ksymbol.KsymType (enum perf_record_ksymbol_type).
const (
	KsymbolUnknown uint16 = iota
	KsymbolBPF
	KsymbolOOL // out of line: kprobe slots, ftrace trampolines
)

// KsymbolUnregister in Ksymbol.Flags: the symbol goes away.
const KsymbolUnregister uint16 = 1

// Kinds of BPF event, BPFEvent.EventType (enum perf_bpf_event_type).
const (
	BPFEventUnknown uint16 = iota
	BPFEventProgLoad
	BPFEventProgUnload
)

// Indexes into Namespaces.Links (the NS_INDEX enum).
const (
	NSNet = iota
	NSUTS
	NSIPC
	NSPID
	NSUser
	NSMnt
	NSCgroup
)
