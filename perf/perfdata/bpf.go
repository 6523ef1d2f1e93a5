// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// A BPFProgram is one program of BPF_PROG_INFO: what the kernel told of it
// while it was loaded (struct bpf_prog_info of linux/bpf.h). What the kernel
// did not tell, for want of rights or of a newer kernel, is zero.
type BPFProgram struct {
	Type, ID     uint32 // Type is an enum bpf_prog_type
	Tag          [8]byte
	LoadTime     uint64 // ns of CLOCK_BOOTTIME
	UID          uint32 // of who loaded it
	Name         string // at most 15 bytes
	IfIndex      uint32
	GPL          bool
	NetnsDev     uint64
	NetnsIno     uint64
	BTFID        uint32 // of its own types, see [BPFBTF]; 0: none
	RunTimeNS    uint64 // while the kernel counted (BPF_ENABLE_STATS)
	RunCount     uint64
	Recursions   uint64 // runs that were left out
	Verified     uint32 // instructions that the verifier looked at
	AttachBTFID  uint32 // type within the BTF of AttachBTFObj
	AttachBTFObj uint32

	// JITed is the machine code of all subprograms, one behind the other,
	// Xlated the instructions it was made of.
	JITed, Xlated []byte
	MapIDs        []uint32
	// KSyms is where each subprogram was, FuncLens the bytes of its code,
	// Tags its tag, Funcs its first instruction and type. The main program
	// is the first. Each may be empty.
	KSyms    []uint64
	FuncLens []uint32
	Funcs    []BPFFunc
	Tags     [][8]byte
	// Lines are in the order of the instructions; JITedLines is the address
	// of the machine code of each.
	Lines      []BPFLine
	JITedLines []uint64
}

// A BPFFunc is where a subprogram begins (struct bpf_func_info).
type BPFFunc struct {
	Insn uint32 // index into the instructions of Xlated, 8 bytes each
	Type uint32 // in the program's BTF: a function, which has the name
}

// A BPFLine is where a line of source begins (struct bpf_line_info). File and
// Text are offsets of strings in the program's BTF.
type BPFLine struct {
	Insn       uint32
	File, Text uint32
	LineCol    uint32
}

// Line is the number of the line, from 1.
func (l BPFLine) Line() uint32 { return l.LineCol >> 10 }

// Column is the place in the line, from 1; 0 is unknown.
func (l BPFLine) Column() uint32 { return l.LineCol & 0x3ff }

// A BPFBTF is the types and strings that programs refer to, from the feature
// BPF_BTF. Data is as the kernel gave it (linux/btf.h), not checked.
type BPFBTF struct {
	ID   uint32
	Data []byte
}

// The arrays behind a program, in the order in which they follow: the bits of
// the mask in the section.
const (
	bpfJITed = iota
	bpfXlated
	bpfMapIDs
	bpfKSyms
	bpfFuncLens
	bpfFuncs
	bpfLines
	bpfJITedLines
	bpfTags
	bpfArrays
)

// A BPFArrayField is where a struct bpf_prog_info tells of an array: the offsets
// of its address (u64; in a file the offset behind the struct), of the number of its
// elements (u32) and of their size (u32). If SizeAt is 0, the size is fixed; else
// it is Size at least.
type BPFArrayField struct {
	AddrAt, CountAt, SizeAt, Size int
}

// BPFArrayFields are the arrays of a struct bpf_prog_info: bit i of the mask in
// BPF_PROG_INFO is for BPFArrayPlaces()[i].
func BPFArrayFields() []BPFArrayField { return bpfArrayAt[:len(bpfArrayAt):len(bpfArrayAt)] }

var bpfArrayAt = [bpfArrays]BPFArrayField{
	bpfJITed:      {24, 16, 0, 1},
	bpfXlated:     {32, 20, 0, 1},
	bpfMapIDs:     {56, 52, 0, 4},
	bpfKSyms:      {112, 104, 0, 8},
	bpfFuncLens:   {120, 108, 0, 4},
	bpfFuncs:      {136, 144, 132, bpfFuncSize},
	bpfLines:      {152, 148, 172, bpfLineSize},
	bpfJITedLines: {160, 168, 176, 8},
	bpfTags:       {184, 180, 0, 8},
}

// BPFInfoSize is the size of struct bpf_prog_info as of Linux 6.0.
const BPFInfoSize = 232

// Sizes of struct bpf_func_info and bpf_line_info, and of what is before the
// struct bpf_prog_info in the section.
const (
	bpfFuncSize = 8
	bpfLineSize = 16
	bpfHeadSize = 16
)

// DecodeBPFPrograms reads the section BPF_PROG_INFO ([Features.BPFProgInfo]).
// With an error come the programs before the damaged one. Errors wrap ErrFormat
// or ErrTruncated, with an offset in the section. No section has no programs.
func DecodeBPFPrograms(section []byte, o perf.Order) ([]BPFProgram, error) {
	if len(section) == 0 {
		return nil, nil
	}
	p := &parser{b: section, order: o}
	n := p.count(bpfHeadSize)
	var list []BPFProgram
	for i := 0; i < n && p.err == nil; i++ {
		var prog BPFProgram
		if decodeBPFProgram(p, &prog); p.err == nil {
			list = append(list, prog)
		}
	}
	if p.err != nil {
		return list, fmt.Errorf("BPF program %d: %w", len(list), p.err)
	}
	return list, nil
}

func decodeBPFProgram(p *parser, prog *BPFProgram) {
	infoLen, dataLen := p.u32(), p.u32()
	arrays := p.u64()
	at := p.offset()
	// Newer kernels tell more, older ones less.
	info := make([]byte, BPFInfoSize)
	copy(info, p.bytes(int(infoLen)))
	data := p.bytes(int(dataLen))
	if p.err != nil {
		return
	}
	prog.scalars(info, p.order)
	for i, a := range bpfArrayAt {
		if arrays&(1<<i) == 0 {
			continue
		}
		size := a.Size
		if a.SizeAt != 0 {
			size = int(p.order.Uint32(info[a.SizeAt:]))
		}
		addr, count := p.order.Uint64(info[a.AddrAt:]), p.order.Uint32(info[a.CountAt:])
		if count == 0 {
			continue
		}
		if size < a.Size || addr > uint64(len(data)) || uint64(count) > (uint64(len(data))-addr)/uint64(size) {
			p.fail(fmt.Errorf("%w: array %d: %d of %d bytes at %d of %d bytes behind offset %d", ErrFormat, i, count,
				size, addr, len(data), at))
			return
		}
		prog.array(i, &parser{b: data[addr : addr+uint64(count)*uint64(size)], order: p.order}, int(count), size)
	}
}

// array decodes count elements of size bytes, which are there.
func (b *BPFProgram) array(which int, p *parser, count, size int) {
	words := func() (l []uint32) {
		for range count {
			l = append(l, p.u32())
		}
		return l
	}
	longs := func() (l []uint64) {
		for range count {
			l = append(l, p.u64())
			p.bytes(size - 8)
		}
		return l
	}
	switch which {
	case bpfJITed:
		b.JITed = bytes.Clone(p.b)
	case bpfXlated:
		b.Xlated = bytes.Clone(p.b)
	case bpfMapIDs:
		b.MapIDs = words()
	case bpfFuncLens:
		b.FuncLens = words()
	case bpfKSyms:
		b.KSyms = longs()
	case bpfJITedLines:
		b.JITedLines = longs()
	case bpfFuncs:
		for range count {
			b.Funcs = append(b.Funcs, BPFFunc{Insn: p.u32(), Type: p.u32()})
			p.bytes(size - bpfFuncSize)
		}
	case bpfLines:
		for range count {
			b.Lines = append(b.Lines, BPFLine{Insn: p.u32(), File: p.u32(), Text: p.u32(), LineCol: p.u32()})
			p.bytes(size - bpfLineSize)
		}
	case bpfTags:
		for range count {
			b.Tags = append(b.Tags, [8]byte(p.bytes(8)))
		}
	}
}

// scalars decodes what is no array. info has BPFInfoSize bytes.
func (b *BPFProgram) scalars(info []byte, o perf.Order) {
	u32 := func(at int) uint32 { return o.Uint32(info[at:]) }
	u64 := func(at int) uint64 { return o.Uint64(info[at:]) }
	b.Type, b.ID, b.Tag = u32(0), u32(4), [8]byte(info[8:16])
	b.LoadTime, b.UID, b.Name = u64(40), u32(48), cstring(info[64:80])
	b.IfIndex, b.GPL = u32(80), info[84]&1 != 0
	b.NetnsDev, b.NetnsIno, b.BTFID = u64(88), u64(96), u32(128)
	b.RunTimeNS, b.RunCount, b.Recursions = u64(192), u64(200), u64(208)
	b.Verified, b.AttachBTFObj, b.AttachBTFID = u32(216), u32(220), u32(224)
}

// AppendBPFPrograms appends the section BPF_PROG_INFO as perf writes it.
func AppendBPFPrograms(dst []byte, o perf.Order, list []BPFProgram) []byte {
	dst = o.AppendUint32(dst, uint32(len(list)))
	for i := range list {
		dst = list[i].append(dst, o)
	}
	return dst
}

func (b *BPFProgram) append(dst []byte, o perf.Order) []byte {
	var info [BPFInfoSize]byte
	u32 := func(at int, v uint32) { copy(info[at:], o.AppendUint32(nil, v)) }
	u64 := func(at int, v uint64) { copy(info[at:], o.AppendUint64(nil, v)) }
	u32(0, b.Type)
	u32(4, b.ID)
	copy(info[8:], b.Tag[:])
	u64(40, b.LoadTime)
	u32(48, b.UID)
	copy(info[64:79], b.Name)
	u32(80, b.IfIndex)
	if b.GPL {
		info[84] = 1
	}
	u64(88, b.NetnsDev)
	u64(96, b.NetnsIno)
	u32(128, b.BTFID)
	u64(192, b.RunTimeNS)
	u64(200, b.RunCount)
	u64(208, b.Recursions)
	u32(216, b.Verified)
	u32(220, b.AttachBTFObj)
	u32(224, b.AttachBTFID)

	var data []byte
	mask := uint64(0)
	for i, a := range bpfArrayAt {
		if a.SizeAt != 0 {
			u32(a.SizeAt, uint32(a.Size))
		}
		start := len(data)
		data = b.appendArray(data, o, i)
		if len(data) == start {
			continue
		}
		mask |= 1 << i
		u64(a.AddrAt, uint64(start))
		u32(a.CountAt, uint32((len(data)-start)/a.Size))
		data = append(data, make([]byte, align(len(data), 8)-len(data))...)
	}
	dst = o.AppendUint32(dst, BPFInfoSize)
	dst = o.AppendUint32(dst, uint32(len(data)))
	dst = o.AppendUint64(dst, mask)
	return append(append(dst, info[:]...), data...)
}

func (b *BPFProgram) appendArray(dst []byte, o perf.Order, which int) []byte {
	words := func(l ...uint32) {
		for _, v := range l {
			dst = o.AppendUint32(dst, v)
		}
	}
	switch which {
	case bpfJITed:
		return append(dst, b.JITed...)
	case bpfXlated:
		return append(dst, b.Xlated...)
	case bpfMapIDs:
		words(b.MapIDs...)
	case bpfFuncLens:
		words(b.FuncLens...)
	case bpfKSyms:
		return appendLongs(dst, o, b.KSyms)
	case bpfJITedLines:
		return appendLongs(dst, o, b.JITedLines)
	case bpfFuncs:
		for _, f := range b.Funcs {
			words(f.Insn, f.Type)
		}
	case bpfLines:
		for _, l := range b.Lines {
			words(l.Insn, l.File, l.Text, l.LineCol)
		}
	case bpfTags:
		for _, t := range b.Tags {
			dst = append(dst, t[:]...)
		}
	}
	return dst
}

func appendLongs(dst []byte, o perf.Order, l []uint64) []byte {
	for _, v := range l {
		dst = o.AppendUint64(dst, v)
	}
	return dst
}

// DecodeBPFBTF reads the section BPF_BTF ([Features.BPFBTF]), as
// DecodeBPFPrograms does with its.
func DecodeBPFBTF(section []byte, o perf.Order) ([]BPFBTF, error) {
	if len(section) == 0 {
		return nil, nil
	}
	p := &parser{b: section, order: o}
	n := p.count(8)
	var list []BPFBTF
	for range n {
		b := BPFBTF{ID: p.u32()}
		b.Data = bytes.Clone(p.bytes(p.count(1)))
		if p.err != nil {
			return list, fmt.Errorf("BTF %d: %w", len(list), p.err)
		}
		list = append(list, b)
	}
	return list, p.err
}

// AppendBPFBTF appends the section BPF_BTF as perf writes it.
func AppendBPFBTF(dst []byte, o perf.Order, list []BPFBTF) []byte {
	dst = o.AppendUint32(dst, uint32(len(list)))
	for _, b := range list {
		dst = o.AppendUint32(dst, b.ID)
		dst = o.AppendUint32(dst, uint32(len(b.Data)))
		dst = append(dst, b.Data...)
	}
	return dst
}
