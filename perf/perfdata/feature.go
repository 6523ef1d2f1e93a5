// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// A FeatureID is a bit of the file header: which feature sections follow the
// data, and the number of a HEADER_FEATURE record.
type FeatureID uint32

// The features perf knows (HEADER_* in its file format description), and gantry's.
const (
	FeatureTracingData    FeatureID = 1
	FeatureBuildID        FeatureID = 2
	FeatureHostname       FeatureID = 3
	FeatureOSRelease      FeatureID = 4
	FeatureVersion        FeatureID = 5
	FeatureArch           FeatureID = 6
	FeatureNrCPUs         FeatureID = 7
	FeatureCPUDesc        FeatureID = 8
	FeatureCPUID          FeatureID = 9
	FeatureTotalMem       FeatureID = 10
	FeatureCmdLine        FeatureID = 11
	FeatureEventDesc      FeatureID = 12
	FeatureCPUTopology    FeatureID = 13
	FeatureNUMATopology   FeatureID = 14
	FeatureBranchStack    FeatureID = 15
	FeaturePMUMappings    FeatureID = 16
	FeatureGroupDesc      FeatureID = 17
	FeatureAuxtrace       FeatureID = 18
	FeatureStat           FeatureID = 19
	FeatureCache          FeatureID = 20
	FeatureSampleTime     FeatureID = 21
	FeatureMemTopology    FeatureID = 22
	FeatureClockID        FeatureID = 23
	FeatureDirFormat      FeatureID = 24
	FeatureBPFProgInfo    FeatureID = 25
	FeatureBPFBTF         FeatureID = 26
	FeatureCompressed     FeatureID = 27
	FeatureCPUPMUCaps     FeatureID = 28
	FeatureClockData      FeatureID = 29
	FeatureHybridTopology FeatureID = 30
	FeaturePMUCaps        FeatureID = 31
	// FeatureGantry holds gantry's own data, as JSON. perf skips it.
	FeatureGantry FeatureID = 200

	featureBits = 256
)

func featureName(id FeatureID) string {
	names := [...]string{1: "TRACING_DATA", "BUILD_ID", "HOSTNAME", "OSRELEASE", "VERSION", "ARCH", "NRCPUS", "CPUDESC",
		"CPUID", "TOTAL_MEM", "CMDLINE", "EVENT_DESC", "CPU_TOPOLOGY", "NUMA_TOPOLOGY", "BRANCH_STACK", "PMU_MAPPINGS",
		"GROUP_DESC", "AUXTRACE", "STAT", "CACHE", "SAMPLE_TIME", "MEM_TOPOLOGY", "CLOCKID", "DIR_FORMAT",
		"BPF_PROG_INFO",
		"BPF_BTF", "COMPRESSED", "CPU_PMU_CAPS", "CLOCK_DATA", "HYBRID_TOPOLOGY", "PMU_CAPS"}
	switch {
	case id == FeatureGantry:
		return "GANTRY"
	case id > 0 && int(id) < len(names):
		return names[id]
	}
	return fmt.Sprintf("FEATURE_%d", uint32(id))
}

// String returns perf's name of the feature, as BUILD_ID.
func (id FeatureID) String() string { return featureName(id) }

// Features is what a perf.data file says about the machine and the recording.
// A zero field is a feature that is absent.
type Features struct {
	Hostname, OSRelease, Version, Arch string
	NrCPUsOnline, NrCPUsAvail          uint32
	CPUDesc, CPUID                     string
	TotalMem                           uint64 // kB
	CmdLine                            []string
	EventDesc                          []EventDesc
	CPUTopology                        *CPUTopology
	NUMATopology                       []NUMANode
	PMUMappings                        []PMU
	GroupDesc                          []GroupDesc
	BuildIDs                           []BuildIDEntry
	SampleTime                         [2]uint64 // of the first and the last sample, ns of the recording's clock
	ClockRes                           uint64    // CLOCKID: resolution of the chosen clock in ns
	ClockData                          *ClockData
	Compressed                         *Compression

	// TracingData is the formats of the tracepoints, see [ParseTracingData].
	TracingData []byte
	// BPFProgInfo and BPFBTF are the sections as perf writes them.
	BPFProgInfo, BPFBTF []byte
	// Gantry is gantry's own section, JSON. In a stream, and in a file that
	// its recorder did not finish, it comes among the data, whole or in
	// pieces: see [Reader.GantryChanges].
	Gantry []byte
	// Raw holds the sections that have no field above, and damaged ones.
	Raw map[FeatureID][]byte
}

// An EventDesc is one event of EVENT_DESC: its name and ids.
type EventDesc struct {
	Attr perf.Attr
	Name string
	IDs  []uint64
}

// CPUTopology is which CPUs are siblings, as lists like "0-3,8".
type CPUTopology struct {
	Cores, Threads []string
	CPUs           []CPULocation // indexed by CPU
	Dies           []string      // nil before perf 5.2
}

// A CPULocation says where a CPU sits.
type CPULocation struct{ Core, Socket, Die uint32 }

// A NUMANode is a node's memory in kB and its CPUs as a list like "0-3".
type NUMANode struct {
	Node              uint32
	MemTotal, MemFree uint64
	CPUs              string
}

// A PMU is a source of events and the Attr.Type that selects it.
type PMU struct {
	Type uint32
	Name string
}

// A GroupDesc is a group of events: Members counts the leader in; Leader is
// the index of the first event.
type GroupDesc struct {
	Name            string
	Leader, Members uint32
}

// A BuildIDEntry says which content a path had.
type BuildIDEntry struct {
	PID  int32 // -1 is the host, otherwise the guest's
	Misc perf.Misc
	ID   []byte
	Path string
}

// ClockData ties the recording's clock to the wall clock: both were read at
// the same moment.
type ClockData struct {
	ClockID         uint32 // a clockid_t
	WallNS, ClockNS uint64
}

// Compression describes COMPRESSED records.
type Compression struct {
	Type, Level, Ratio uint32 // Type 1 is zstd; Ratio is original to compressed size
	MmapLen            uint32 // no COMPRESSED record unpacks to more
}

// TypeZstd is the only [Compression] type there is.
const TypeZstd = 1

// Has reports whether the feature is there.
func (f *Features) Has(id FeatureID) bool {
	return slices.Contains(f.IDs(), id)
}

// IDs returns the features that are there, ascending.
func (f *Features) IDs() []FeatureID {
	ids := slices.Collect(maps.Keys(f.Raw))
	for id := FeatureID(1); id < featureBits; id++ {
		if _, raw := f.Raw[id]; !raw && f.present(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// present reports whether the field of the feature is not zero.
func (f *Features) present(id FeatureID) bool {
	switch id {
	case FeatureTracingData:
		return len(f.TracingData) > 0
	case FeatureBuildID:
		return len(f.BuildIDs) > 0
	case FeatureNrCPUs:
		return f.NrCPUsOnline != 0 || f.NrCPUsAvail != 0
	case FeatureTotalMem:
		return f.TotalMem != 0
	case FeatureCmdLine:
		return len(f.CmdLine) > 0
	case FeatureEventDesc:
		return len(f.EventDesc) > 0
	case FeatureCPUTopology:
		return f.CPUTopology != nil
	case FeatureNUMATopology:
		return len(f.NUMATopology) > 0
	case FeaturePMUMappings:
		return len(f.PMUMappings) > 0
	case FeatureGroupDesc:
		return len(f.GroupDesc) > 0
	case FeatureSampleTime:
		return f.SampleTime != [2]uint64{}
	case FeatureClockID:
		return f.ClockRes != 0
	case FeatureClockData:
		return f.ClockData != nil
	case FeatureCompressed:
		return f.Compressed != nil
	case FeatureBPFProgInfo:
		return len(f.BPFProgInfo) > 0
	case FeatureBPFBTF:
		return len(f.BPFBTF) > 0
	case FeatureGantry:
		return len(f.Gantry) > 0
	}
	if s := f.stringField(id); s != nil {
		return *s != ""
	}
	return false
}

// stringField returns the field of a feature that is one string, or nil.
func (f *Features) stringField(id FeatureID) *string {
	switch id {
	case FeatureHostname:
		return &f.Hostname
	case FeatureOSRelease:
		return &f.OSRelease
	case FeatureVersion:
		return &f.Version
	case FeatureArch:
		return &f.Arch
	case FeatureCPUDesc:
		return &f.CPUDesc
	case FeatureCPUID:
		return &f.CPUID
	}
	return nil
}

// bytesField returns the field of a feature that is kept as bytes, or nil.
func (f *Features) bytesField(id FeatureID) *[]byte {
	switch id {
	case FeatureTracingData:
		return &f.TracingData
	case FeatureBPFProgInfo:
		return &f.BPFProgInfo
	case FeatureBPFBTF:
		return &f.BPFBTF
	case FeatureGantry:
		return &f.Gantry
	}
	return nil
}
