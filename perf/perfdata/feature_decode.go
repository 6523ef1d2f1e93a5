// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// Layouts are those of perf's tools/perf/Documentation/perf.data-file-format.txt.

// decode puts the section of one feature into its field. b is not kept. On an
// error, f is unchanged but for the section in f.Raw.
func (f *Features) decode(id FeatureID, b []byte, o perf.Order, base int64) error {
	p := &parser{b: b, order: o, base: base}
	if dst := f.stringField(id); dst != nil {
		if s := p.string(); p.err == nil {
			*dst = s
		}
	} else if dst := f.bytesField(id); dst != nil {
		*dst = bytes.Clone(b)
	} else if !f.decodeList(id, p) && !f.decodeNumbers(id, p) {
		f.setRaw(id, b)
	}
	if p.err != nil {
		f.setRaw(id, b)
		return fmt.Errorf("feature %s: %w", id, p.err)
	}
	return nil
}

func (f *Features) setRaw(id FeatureID, b []byte) {
	if f.Raw == nil {
		f.Raw = make(map[FeatureID][]byte)
	}
	f.Raw[id] = append([]byte{}, b...)
}

// decodeNumbers handles the features of fixed size.
func (f *Features) decodeNumbers(id FeatureID, p *parser) bool {
	switch id {
	case FeatureNrCPUs:
		// The number of CPUs that can be comes first.
		avail, online := p.u32(), p.u32()
		set(p, &f.NrCPUsAvail, avail)
		set(p, &f.NrCPUsOnline, online)
	case FeatureTotalMem:
		set(p, &f.TotalMem, p.u64())
	case FeatureSampleTime:
		set(p, &f.SampleTime, [2]uint64{p.u64(), p.u64()})
	case FeatureClockID:
		set(p, &f.ClockRes, p.u64())
	case FeatureClockData:
		if v := p.u32(); v != 1 && p.err == nil {
			p.fail(fmt.Errorf("%w: version %d", ErrUnsupported, v))
		}
		set(p, &f.ClockData, &ClockData{ClockID: p.u32(), WallNS: p.u64(), ClockNS: p.u64()})
	case FeatureCompressed:
		p.u32() // version, 0 in every perf that exists
		set(p, &f.Compressed, &Compression{Type: p.u32(), Level: p.u32(), Ratio: p.u32(), MmapLen: p.u32()})
	default:
		return false
	}
	return true
}

// decodeList handles the features that are lists.
func (f *Features) decodeList(id FeatureID, p *parser) bool {
	switch id {
	case FeatureCmdLine:
		set(p, &f.CmdLine, p.strings())
	case FeatureEventDesc:
		set(p, &f.EventDesc, decodeEventDesc(p))
	case FeatureBuildID:
		set(p, &f.BuildIDs, decodeBuildIDs(p))
	case FeatureCPUTopology:
		set(p, &f.CPUTopology, decodeCPUTopology(p, f.NrCPUsAvail))
	case FeatureNUMATopology:
		set(p, &f.NUMATopology, list(p, 24, func() NUMANode {
			return NUMANode{Node: p.u32(), MemTotal: p.u64(), MemFree: p.u64(), CPUs: p.string()}
		}))
	case FeaturePMUMappings:
		set(p, &f.PMUMappings, list(p, 8, func() PMU { return PMU{Type: p.u32(), Name: p.string()} }))
	case FeatureGroupDesc:
		set(p, &f.GroupDesc, list(p, 12, func() GroupDesc {
			return GroupDesc{Name: p.string(), Leader: p.u32(), Members: p.u32()}
		}))
	default:
		return false
	}
	return true
}

func set[T any](p *parser, dst *T, v T) {
	if p.err == nil {
		*dst = v
	}
}

// list reads a count and as many items of at least size bytes.
func list[T any](p *parser, size int, item func() T) []T {
	n := p.count(size)
	var l []T
	for i := 0; i < n && p.err == nil; i++ {
		l = append(l, item())
	}
	return l
}

func (p *parser) strings() []string { return list(p, 4, p.string) }

func decodeEventDesc(p *parser) []EventDesc {
	n := p.u32()
	size := p.u32()
	var l []EventDesc
	for i := uint32(0); i < n && p.err == nil; i++ {
		b := p.bytes(int(size))
		if p.err != nil {
			break
		}
		a, err := perf.DecodeAttr(b, p.order)
		if err != nil {
			p.fail(fmt.Errorf("%w: attribute of event %d: %w", ErrFormat, i, err))
			break
		}
		ids := p.u32()
		d := EventDesc{Attr: a, Name: p.string()}
		if p.err == nil && int64(ids)*8 > int64(p.left()) {
			p.fail(fmt.Errorf("%w: %d ids at offset %d, %d bytes left", ErrFormat, ids, p.offset(), p.left()))
			break
		}
		d.IDs = decodeIDs(p.bytes(int(ids)*8), p.order)
		l = append(l, d)
	}
	return l
}

func decodeIDs(b []byte, o perf.Order) []uint64 {
	if len(b) < 8 {
		return nil
	}
	ids := make([]uint64, 0, len(b)/8)
	for ; len(b) >= 8; b = b[8:] {
		ids = append(ids, o.Uint64(b))
	}
	return ids
}

func decodeCPUTopology(p *parser, cpus uint32) *CPUTopology {
	t := &CPUTopology{Cores: p.strings(), Threads: p.strings()}
	if p.err != nil || p.left() == 0 {
		return t
	}
	if int64(cpus)*8 > int64(p.left()) {
		p.fail(fmt.Errorf("%w: %d CPUs do not fit in %d bytes", ErrFormat, cpus, p.left()))
		return t
	}
	for range cpus {
		t.CPUs = append(t.CPUs, CPULocation{Core: p.u32(), Socket: p.u32()})
	}
	if p.left() > 0 {
		t.Dies = p.strings()
		for i := range t.CPUs {
			t.CPUs[i].Die = p.u32()
		}
	}
	return t
}

// Sizes of a build-id entry: struct perf_record_header_build_id. The byte after
// the id is its size, if perf.MiscBuildIDSize is set.
const (
	buildIDMax  = 20
	buildIDHead = perf.HeaderSize + 4 + 24
)

func decodeBuildIDs(p *parser) []BuildIDEntry {
	var l []BuildIDEntry
	for p.left() > 0 && p.err == nil {
		h := p.b[p.pos:]
		if len(h) < buildIDHead {
			p.fail(fmt.Errorf("%w: %d bytes of a build-id at offset %d", ErrTruncated, len(h), p.offset()))
			break
		}
		size := int(perf.ParseHeader(h, p.order).Size)
		at := p.offset()
		e, err := decodeBuildID(p.bytes(size), p.order)
		if p.err == nil && err != nil {
			p.fail(fmt.Errorf("at offset %d: %w", at, err))
		}
		l = append(l, e)
	}
	return l
}

// decodeBuildID reads one entry: a HEADER_BUILD_ID record, or an item of the
// BUILD_ID section, which looks the same.
func decodeBuildID(raw []byte, o perf.Order) (BuildIDEntry, error) {
	if len(raw) < buildIDHead {
		return BuildIDEntry{}, fmt.Errorf("%w: a build-id of %d bytes", ErrFormat, len(raw))
	}
	h := perf.ParseHeader(raw, o)
	id := raw[perf.HeaderSize+4:]
	size := buildIDMax
	if h.Misc&perf.MiscBuildIDSize != 0 {
		size = min(int(id[buildIDMax]), buildIDMax)
	}
	return BuildIDEntry{
		PID:  int32(o.Uint32(raw[perf.HeaderSize:])),
		Misc: h.Misc &^ perf.MiscBuildIDSize,
		ID:   slices.Clone(id[:size]),
		Path: cstring(raw[buildIDHead:]),
	}, nil
}
