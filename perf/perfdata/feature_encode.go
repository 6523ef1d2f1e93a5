// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// encode appends the section of one feature to dst.
func (f *Features) encode(dst []byte, id FeatureID, o perf.Order) ([]byte, error) {
	if raw, ok := f.Raw[id]; ok {
		return append(dst, raw...), nil
	}
	if s := f.stringField(id); s != nil {
		return appendString(dst, o, *s), nil
	}
	if b := f.bytesField(id); b != nil {
		return append(dst, *b...), nil
	}
	switch id {
	case FeatureNrCPUs:
		return o.AppendUint32(o.AppendUint32(dst, f.NrCPUsAvail), f.NrCPUsOnline), nil
	case FeatureTotalMem:
		return o.AppendUint64(dst, f.TotalMem), nil
	case FeatureSampleTime:
		return o.AppendUint64(o.AppendUint64(dst, f.SampleTime[0]), f.SampleTime[1]), nil
	case FeatureClockID:
		return o.AppendUint64(dst, f.ClockRes), nil
	case FeatureClockData:
		dst = o.AppendUint32(o.AppendUint32(dst, 1), f.ClockData.ClockID)
		return o.AppendUint64(o.AppendUint64(dst, f.ClockData.WallNS), f.ClockData.ClockNS), nil
	case FeatureCompressed:
		c := f.Compressed
		for _, v := range []uint32{0, c.Type, c.Level, c.Ratio, c.MmapLen} {
			dst = o.AppendUint32(dst, v)
		}
		return dst, nil
	}
	return f.encodeList(dst, id, o)
}

func (f *Features) encodeList(dst []byte, id FeatureID, o perf.Order) ([]byte, error) {
	switch id {
	case FeatureCmdLine:
		return appendStrings(dst, o, f.CmdLine), nil
	case FeatureEventDesc:
		return appendEventDesc(dst, o, f.EventDesc), nil
	case FeatureBuildID:
		for i := range f.BuildIDs {
			var err error
			if dst, err = appendBuildID(dst, o, 0, &f.BuildIDs[i]); err != nil {
				return nil, err
			}
		}
	case FeatureCPUTopology:
		return appendCPUTopology(dst, o, f.CPUTopology), nil
	case FeatureNUMATopology:
		dst = o.AppendUint32(dst, uint32(len(f.NUMATopology)))
		for _, n := range f.NUMATopology {
			dst = o.AppendUint64(o.AppendUint64(o.AppendUint32(dst, n.Node), n.MemTotal), n.MemFree)
			dst = appendString(dst, o, n.CPUs)
		}
	case FeaturePMUMappings:
		dst = o.AppendUint32(dst, uint32(len(f.PMUMappings)))
		for _, m := range f.PMUMappings {
			dst = appendString(o.AppendUint32(dst, m.Type), o, m.Name)
		}
	case FeatureGroupDesc:
		dst = o.AppendUint32(dst, uint32(len(f.GroupDesc)))
		for _, g := range f.GroupDesc {
			dst = appendString(dst, o, g.Name)
			dst = o.AppendUint32(o.AppendUint32(dst, g.Leader), g.Members)
		}
	}
	return dst, nil
}

func appendStrings(dst []byte, o perf.Order, l []string) []byte {
	dst = o.AppendUint32(dst, uint32(len(l)))
	for _, s := range l {
		dst = appendString(dst, o, s)
	}
	return dst
}

// appendEventDesc gives all attributes the size of the largest; perf reads
// them with one stride.
func appendEventDesc(dst []byte, o perf.Order, l []EventDesc) []byte {
	stride := 0
	for i := range l {
		stride = max(stride, len(l[i].Attr.Append(nil, o)))
	}
	dst = o.AppendUint32(dst, uint32(len(l)))
	dst = o.AppendUint32(dst, uint32(stride))
	for i := range l {
		dst = appendAttr(dst, o, &l[i].Attr, stride)
		dst = o.AppendUint32(dst, uint32(len(l[i].IDs)))
		dst = appendString(dst, o, l[i].Name)
		for _, id := range l[i].IDs {
			dst = o.AppendUint64(dst, id)
		}
	}
	return dst
}

// appendAttr appends a, padded with zeros to size bytes.
func appendAttr(dst []byte, o perf.Order, a *perf.Attr, size int) []byte {
	start := len(dst)
	dst = a.Append(dst, o)
	if n := size - (len(dst) - start); n > 0 {
		dst = append(dst, make([]byte, n)...)
	}
	return dst
}

func appendCPUTopology(dst []byte, o perf.Order, t *CPUTopology) []byte {
	dst = appendStrings(dst, o, t.Cores)
	dst = appendStrings(dst, o, t.Threads)
	for _, c := range t.CPUs {
		dst = o.AppendUint32(o.AppendUint32(dst, c.Core), c.Socket)
	}
	if len(t.Dies) == 0 {
		return dst
	}
	dst = appendStrings(dst, o, t.Dies)
	for _, c := range t.CPUs {
		dst = o.AppendUint32(dst, c.Die)
	}
	return dst
}

// appendBuildID appends an entry of the BUILD_ID section (typ 0) or a
// HEADER_BUILD_ID record.
func appendBuildID(dst []byte, o perf.Order, typ perf.RecordType, e *BuildIDEntry) ([]byte, error) {
	name := align(len(e.Path)+1, nameAlign)
	if len(e.ID) > buildIDMax {
		return nil, fmt.Errorf("build-id of %q has %d bytes: %w", e.Path, len(e.ID), ErrTooLarge)
	}
	if buildIDHead+name > perf.MaxRecordSize {
		return nil, fmt.Errorf("path with a build-id has %d bytes: %w", len(e.Path), ErrTooLarge)
	}
	h := perf.Header{Type: typ, Misc: e.Misc | perf.MiscBuildIDSize, Size: uint16(buildIDHead + name)}
	dst = h.Append(dst, o)
	dst = o.AppendUint32(dst, uint32(e.PID))
	id := [24]byte{buildIDMax: byte(len(e.ID))}
	copy(id[:], e.ID)
	dst = append(dst, id[:]...)
	return appendPadded(dst, e.Path, name), nil
}
