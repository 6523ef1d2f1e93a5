// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// HeaderSize is the size of struct perf_event_header in bytes.
const HeaderSize = 8

// MaxRecordSize is the largest record: its size field has 16 bits.
const MaxRecordSize = math.MaxUint16

// Header is struct perf_event_header, the start of every record.
type Header struct {
	Type RecordType
	Misc Misc
	Size uint16 // of the whole record in bytes, header included
}

// ParseHeader reads the header at the start of b, which must hold HeaderSize
// bytes.
func ParseHeader(b []byte, o Order) Header {
	v := binary.LittleEndian.Uint64(b) // one load, and short enough to be inlined
	if o != LittleEndian {
		v = swapHeader(v)
	}
	return Header{Type: RecordType(uint32(v)), Misc: Misc(v >> 32), Size: uint16(v >> 48)}
}

// swapHeader turns around each field of a header.
func swapHeader(v uint64) uint64 {
	v = bits.ReverseBytes64(v) // type, misc, size
	return v>>32 | v>>16&0xffff<<32 | v<<48
}

// Append encodes h.
func (h Header) Append(dst []byte, o Order) []byte {
	dst = o.AppendUint32(dst, uint32(h.Type))
	dst = o.AppendUint16(dst, uint16(h.Misc))
	return o.AppendUint16(dst, h.Size)
}

// Misc is the misc field of a header: how to take the record.
type Misc uint16

// Bits of Misc. Some have one meaning per record type.
const (
	MiscCPUModeMask Misc = 7
	MiscCPUUnknown  Misc = 0
	MiscKernel      Misc = 1
	MiscUser        Misc = 2
	MiscHypervisor  Misc = 3
	MiscGuestKernel Misc = 4
	MiscGuestUser   Misc = 5

	// MiscStatusOnly marks a status record: a state found by a snapshot,
	// not a change. Proposed for the kernel in 2023 as bit 11; readers
	// that do not know it are not disturbed.
	MiscStatusOnly         Misc = 1 << 11
	MiscProcMapParseTimout Misc = 1 << 12
	MiscMmapData           Misc = 1 << 13 // Mmap, Mmap2
	MiscCommExec           Misc = 1 << 13 // Comm
	MiscForkExec           Misc = 1 << 13 // Fork, perf's own
	MiscSwitchOut          Misc = 1 << 13 // Switch, SwitchCPUWide
	MiscExactIP            Misc = 1 << 14 // Sample
	MiscSwitchOutPreempt   Misc = 1 << 14 // Switch, SwitchCPUWide
	MiscMmapBuildID        Misc = 1 << 14 // Mmap2
	MiscBuildIDSize        Misc = 1 << 15 // BuildID
)

// CPUMode is where the cpu was: MiscKernel, MiscUser, ...
func (m Misc) CPUMode() Misc { return m & MiscCPUModeMask }

// RecordType is the type of a record.
type RecordType uint32

// Records of the kernel (enum perf_event_type).
const (
	RecordMmap RecordType = 1 + iota
	RecordLost
	RecordComm
	RecordExit
	RecordThrottle
	RecordUnthrottle
	RecordFork
	RecordRead
	RecordSample
	RecordMmap2
	RecordAux
	RecordItraceStart
	RecordLostSamples
	RecordSwitch
	RecordSwitchCPUWide
	RecordNamespaces
	RecordKsymbol
	RecordBPFEvent
	RecordCgroup
	RecordTextPoke
	RecordAuxOutputHWID
	RecordCallchainDeferred // Linux 6.19

	recordKernelEnd
)

// Records of perf itself, found in files and pipes only.
const (
	RecordHeaderAttr RecordType = 64 + iota
	RecordHeaderEventType
	RecordHeaderTracingData
	RecordHeaderBuildID
	RecordFinishedRound
	RecordIDIndex
	RecordAuxtraceInfo
	RecordAuxtrace
	RecordAuxtraceError
	RecordThreadMap
	RecordCPUMap
	RecordStatConfig
	RecordStat
	RecordStatRound
	RecordEventUpdate
	RecordTimeConv
	RecordHeaderFeature
	RecordCompressed
	RecordFinishedInit
	RecordCompressed2
	RecordBPFMetadata

	recordUserEnd
)

// Kernel reports whether records of this type come from the kernel and so may
// end with a SampleIDInfo.
func (t RecordType) Kernel() bool { return t < RecordHeaderAttr }

// Known reports whether this package knows the type.
func (t RecordType) Known() bool {
	return t >= RecordMmap && t < recordKernelEnd || t >= RecordHeaderAttr && t < recordUserEnd
}

// Record is one decoded record; the concrete types are pointers to the
// structs of this package.
type Record interface {
	// RecordType is the type in the record's header.
	RecordType() RecordType
	misc() *Misc
}

// body is a record whose fields are walked by a codec.
type body interface {
	Record
	code(c *codec)
}

// kernelRecord is a body that may be followed by a sample_id.
type kernelRecord interface {
	body
	sampleID() *SampleIDInfo
}

// RecordMisc is the misc field of a decoded record.
type RecordMisc struct{ Misc Misc }

func (m *RecordMisc) misc() *Misc { return &m.Misc }

// Trailer is what every record of the kernel has beside its body.
type Trailer struct {
	RecordMisc
	SampleID SampleIDInfo
}

func (t *Trailer) sampleID() *SampleIDInfo { return &t.SampleID }

// MiscOf gives the misc field of rec.
func MiscOf(rec Record) Misc { return *rec.misc() }

// SampleIDOf gives the sample_id of rec; nil for records that are not the
// kernel's, and for samples, which carry these fields themselves.
func SampleIDOf(rec Record) *SampleIDInfo {
	if k, ok := rec.(kernelRecord); ok {
		return k.sampleID()
	}
	return nil
}

// recordError names the record that an error is about.
func recordError(t RecordType, err error) error {
	return fmt.Errorf("%v record: %w", t, err)
}

// checkHeader checks that raw is exactly one record.
func checkHeader(raw []byte, o Order) (Header, error) {
	if len(raw) < HeaderSize {
		return Header{}, fmt.Errorf("record of %d bytes: %w", len(raw), ErrShort)
	}
	h := ParseHeader(raw, o)
	if int(h.Size) != len(raw) {
		return h, recordError(h.Type, fmt.Errorf("size field %d in %d bytes: %w", h.Size, len(raw), ErrLength))
	}
	return h, nil
}

// Decode gives the record in raw, which is a whole record with its header.
// ev is the event that the record belongs to; nil means that no sample_id
// follows, and then a sample cannot be decoded. The value shares no memory
// with raw. Types that this package does not know come as *Unknown.
func Decode(raw []byte, o Order, ev *Event) (Record, error) {
	h, err := checkHeader(raw, o)
	if err != nil {
		return nil, err
	}
	if h.Type == RecordSample {
		if ev == nil {
			return nil, recordError(h.Type, fmt.Errorf("of no known event: %w", ErrUnsupported))
		}
		s := new(Sample)
		if err := s.Decode(raw, o, &ev.Layout); err != nil {
			return nil, err
		}
		s.own()
		return s, nil
	}
	rec := newBody(h.Type)
	*rec.misc() = h.Misc
	if h.Type == RecordMmap2 && ev != nil && !ev.buildIDs() {
		*rec.misc() &^= MiscMmapBuildID
	}
	c := codec{dec: true, order: o, b: raw[HeaderSize:]}
	if ev != nil {
		c.b = ev.ungrown(raw, o)[HeaderSize:]
	}
	if err := decodeTrailer(rec, &c, ev); err != nil {
		return nil, recordError(h.Type, err)
	}
	rec.code(&c)
	if c.err != nil {
		return nil, recordError(h.Type, fmt.Errorf("at byte %d of %d: %w", HeaderSize+c.off, len(raw), c.err))
	}
	return rec, nil
}

// decodeTrailer reads the sample_id off the end of c's bytes.
func decodeTrailer(rec body, c *codec, ev *Event) error {
	k, ok := rec.(kernelRecord)
	if r, isRead := rec.(*Read); isRead && ev != nil {
		r.format = ev.Attr.ReadFormat
	}
	if !ok || ev == nil {
		return nil
	}
	n := ev.Layout.sidSize
	if n > len(c.b) {
		return fmt.Errorf("sample_id of %d bytes in %d: %w", n, len(c.b), ErrShort)
	}
	*k.sampleID() = ev.Layout.decodeSampleID(c.b[len(c.b)-n:], c.order)
	c.b = c.b[:len(c.b)-n]
	return nil
}

// anySize reports whether records of type t are not padded to 8 bytes.
func anySize(t RecordType) bool { return t == RecordCompressed || !t.Known() }

// Append encodes rec as the kernel or perf would write it for event ev,
// padded to a multiple of 8 bytes. It fails with ErrValue if the record would
// be larger than MaxRecordSize.
func Append(dst []byte, rec Record, o Order, ev *Event) ([]byte, error) {
	start := len(dst)
	if s, ok := rec.(*Sample); ok {
		if ev == nil {
			return dst, recordError(RecordSample, fmt.Errorf("of no known event: %w", ErrUnsupported))
		}
		dst = s.append(dst, o, &ev.Layout)
	} else {
		dst = appendBody(dst, rec, o, ev)
	}
	size := len(dst) - start
	if size > MaxRecordSize {
		return dst[:start], recordError(rec.RecordType(), fmt.Errorf("%d bytes: %w", size, ErrValue))
	}
	o.PutUint16(dst[start+6:], uint16(size))
	return dst, nil
}

// encoders are codecs to use again: they are on the heap, since the records'
// code is called through an interface.
var encoders = sync.Pool{New: func() any { return new(codec) }}

// appendBody encodes rec, which is no sample, but for the size in its header.
func appendBody(dst []byte, rec Record, o Order, ev *Event) []byte {
	if r, isRead := rec.(*Read); isRead && ev != nil {
		r.format = ev.Attr.ReadFormat
	}
	dst = Header{Type: rec.RecordType(), Misc: *rec.misc()}.Append(dst, o)
	if m, ok := rec.(*Mmap2); ok { // most records of a snapshot
		dst = m.append(dst, o)
		if ev == nil {
			return dst
		}
		return ev.Layout.appendSampleID(dst, m.sampleID(), o)
	}
	c := encoders.Get().(*codec)
	*c = codec{order: o, b: dst, start: len(dst)}
	rec.(body).code(c)
	if !anySize(rec.RecordType()) {
		c.align8()
	}
	dst = c.b
	*c = codec{} // the bytes are the caller's
	encoders.Put(c)
	return appendTrailer(dst, rec, o, ev)
}

// appendTrailer appends the sample_id, if there is any.
func appendTrailer(dst []byte, rec Record, o Order, ev *Event) []byte {
	if k, ok := rec.(kernelRecord); ok && ev != nil {
		dst = ev.Layout.appendSampleID(dst, k.sampleID(), o)
	}
	return dst
}
