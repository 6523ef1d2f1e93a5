// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"fmt"
	"math/bits"
)

// Sizes of struct perf_event_attr, one per ABI version.
const (
	AttrSizeVer0 = 64
	AttrSizeVer1 = 72  // Linux 2.6.33: Config2 (bp_len)
	AttrSizeVer2 = 80  // 3.4: BranchSampleType
	AttrSizeVer3 = 96  // 3.7: SampleRegsUser, SampleStackUser
	AttrSizeVer4 = 104 // 3.19: SampleRegsIntr
	AttrSizeVer5 = 112 // 4.1: AuxWatermark; 4.8: SampleMaxStack
	AttrSizeVer6 = 120 // 5.5: AuxSampleSize
	AttrSizeVer7 = 128 // 5.13: SigData
	AttrSizeVer8 = 136 // 6.3: Config3
	AttrSizeVer9 = 144 // 6.18: Config4

	// AttrSize is the newest version this package knows.
	AttrSize = AttrSizeVer9

	// maxAttrSize bounds an attr from the future: the kernel refuses more
	// than a page.
	maxAttrSize = 4096
)

// Attr is struct perf_event_attr: what is counted or sampled, and what each
// sample holds.
type Attr struct {
	Type EventType
	// Size is the size of the struct in bytes, and with it its version.
	// Zero means AttrSize when encoding and AttrSizeVer0 when decoding.
	Size   uint32
	Config uint64
	// SampleCount is sample_period, or sample_freq in Hz with AttrFreq.
	SampleCount uint64
	SampleType  SampleType
	ReadFormat  ReadFormat
	Flags       AttrFlags
	// Wakeup is wakeup_events, or wakeup_watermark in bytes with
	// AttrWatermark.
	Wakeup           uint32
	BPType           uint32
	Config1          uint64 // also bp_addr, kprobe_func, uprobe_path
	Config2          uint64 // also bp_len, kprobe_addr, probe_offset
	BranchSampleType BranchSampleType
	SampleRegsUser   uint64
	SampleStackUser  uint32 // bytes
	ClockID          int32
	SampleRegsIntr   uint64
	AuxWatermark     uint32
	SampleMaxStack   uint16 // frames
	Reserved2        uint16
	AuxSampleSize    uint32
	AuxAction        uint32 // 6.12: pause and resume of AUX
	SigData          uint64
	Config3          uint64
	Config4          uint64
	// Extra is what a kernel newer than this package appended.
	Extra []byte
}

// DecodeAttr reads an attr from the start of b; its size field says how much
// of b it takes. Attrs newer than this package keep their tail in Extra.
func DecodeAttr(b []byte, o Order) (Attr, error) {
	if len(b) < AttrSizeVer0 {
		return Attr{}, fmt.Errorf("attr of %d bytes, at least %d wanted: %w", len(b), AttrSizeVer0, ErrShort)
	}
	size := o.Uint32(b[4:])
	n := size
	if n == 0 {
		n = AttrSizeVer0
	}
	if n < AttrSizeVer0 || n > maxAttrSize || n%8 != 0 {
		return Attr{}, fmt.Errorf("attr says its size is %d: %w", size, ErrLength)
	}
	if int(n) > len(b) {
		return Attr{}, fmt.Errorf("attr of %d bytes in %d: %w", n, len(b), ErrShort)
	}
	var a Attr
	c := codec{dec: true, b: b[:n], order: o}
	a.code(&c)
	if c.err != nil {
		return Attr{}, fmt.Errorf("attr: %w", c.err)
	}
	a.Size = size
	return a, nil
}

// Append encodes a in a.Size bytes, or AttrSize if that is zero. Fields that
// a smaller version does not have are left out.
func (a *Attr) Append(dst []byte, o Order) []byte {
	v := *a
	if v.Size == 0 {
		v.Size = AttrSize
	}
	c := codec{order: o, max: int(v.Size)}
	v.code(&c)
	if pad := int(v.Size) - len(c.b); pad > 0 {
		c.b = append(c.b, make([]byte, pad)...)
	}
	return append(dst, c.b[:v.Size]...)
}

// code walks the fields in the order of the struct. Decoding stops where the
// bytes end: an older version simply has fewer fields.
func (a *Attr) code(c *codec) {
	typ, size := uint32(a.Type), a.Size
	st, rf, bt := uint64(a.SampleType), uint64(a.ReadFormat), uint64(a.BranchSampleType)
	clock := uint32(a.ClockID)
	flags := a.Flags.wire(c.order)
	c.u32(&typ)
	c.u32(&size)
	c.u64(&a.Config)
	c.u64(&a.SampleCount)
	c.u64(&st)
	c.u64(&rf)
	c.u64(&flags)
	c.u32(&a.Wakeup)
	c.u32(&a.BPType)
	c.u64(&a.Config1)
	for _, field := range []func(){ // one per 8 bytes after version 0
		func() { c.u64(&a.Config2) },
		func() { c.u64(&bt) },
		func() { c.u64(&a.SampleRegsUser) },
		func() { c.u32(&a.SampleStackUser); c.u32(&clock) },
		func() { c.u64(&a.SampleRegsIntr) },
		func() { c.u32(&a.AuxWatermark); c.u16(&a.SampleMaxStack); c.u16(&a.Reserved2) },
		func() { c.u32(&a.AuxSampleSize); c.u32(&a.AuxAction) },
		func() { c.u64(&a.SigData) },
		func() { c.u64(&a.Config3) },
		func() { c.u64(&a.Config4) },
	} {
		if !c.more() {
			break
		}
		field()
	}
	if c.more() {
		c.rest(&a.Extra)
	}
	if c.dec {
		a.Type, a.SampleType, a.ReadFormat = EventType(typ), SampleType(st), ReadFormat(rf)
		a.BranchSampleType, a.ClockID = BranchSampleType(bt), int32(clock)
		a.Flags = flagsFromWire(flags, c.order)
	}
}

// preciseShift is where precise_ip, the only field of two bits, starts.
const preciseShift = 15

// wire gives the flags as the 64-bit word of a file of the given order. C
// bit-fields start at the other end of each byte on big-endian machines.
func (f AttrFlags) wire(o Order) uint64 {
	if o == LittleEndian {
		return uint64(f)
	}
	return bits.Reverse64(swapPrecise(uint64(f)))
}

func flagsFromWire(v uint64, o Order) AttrFlags {
	if o == LittleEndian {
		return AttrFlags(v)
	}
	return AttrFlags(swapPrecise(bits.Reverse64(v)))
}

// swapPrecise exchanges the two bits of precise_ip, which reversing all bits
// of the word would leave in the wrong order.
func swapPrecise(v uint64) uint64 {
	lo, hi := v>>preciseShift&1, v>>(preciseShift+1)&1
	v &^= 3 << preciseShift
	return v | lo<<(preciseShift+1) | hi<<preciseShift
}

// PreciseIP is the skid constraint asked for, 0 to 3.
func (f AttrFlags) PreciseIP() int { return int(f >> preciseShift & 3) }

// WithPreciseIP gives f with the skid constraint n (0 to 3).
func (f AttrFlags) WithPreciseIP(n int) AttrFlags {
	return f&^(3<<preciseShift) | AttrFlags(n&3)<<preciseShift
}

// Has reports whether every flag of g is set.
func (f AttrFlags) Has(g AttrFlags) bool { return f&g == g }
