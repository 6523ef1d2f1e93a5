// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gantry-tools/gantry/perf/perfdata"
)

// A Program is a program as it was when it was loaded.
type Program struct {
	perfdata.BPFProgram
	BTF    []byte
	Loader perfdata.BPFLoader // pids are those of the first pid namespace
	// Incomplete: all the code is there, but a record of something else was lost,
	// or the translated instructions cannot be sanitized as the kernel does.
	Incomplete bool
}

// ErrRecord is a record that makes no sense.
var ErrRecord = errors.New("malformed record of a BPF load")

// The kinds of records, as in loads.bpf.c.
const (
	kindLoad = 1 + iota
	kindCode
	kindMaps
	kindFuncs
	kindLines
	kindJITedLines
	kindBTF
	kindInsns
	kindEnd
)

// Sizes of struct head and struct load, and of what is in them.
const (
	headSize, loadSize, mapSize = 40, 144, 32
	nsCount, nameSize           = 8, 16
	// maxParts bounds the programs that are put together at once, maxWhole
	// the size of one array.
	maxParts, maxWhole = 256, 4 << 20
)

var nsNames = [nsCount]string{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup", "time"}

// partial is a program that is not whole yet.
type partial struct {
	load Program
	subs int
	want counts
	maps []kernelMap
	data []byte
}

// counts is how much there is of each array beside the code.
type counts struct {
	maps, funcs, lines, jitedLines, insns uint32
	btf                                   uint64
}

// parser puts programs together from records. Those of several CPUs may be
// mixed.
type parser struct {
	parts map[uint32]*partial
}

// parse takes one record. It returns a program with the last one of it.
func (p *parser) parse(b []byte) (*Program, error) {
	if len(b) < headSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrRecord, len(b))
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	kind, id, index := u32(0), u32(4), int(u32(8))
	offset, size, whole := int(u32(12)), int(u32(16)), int(u32(20))
	data := b[headSize:]
	if size < 0 || size > len(data) {
		return nil, fmt.Errorf("%w: %d bytes of data in %d", ErrRecord, size, len(data))
	}
	data = data[:size]
	if kind == kindLoad {
		return nil, p.begin(id, b[32:40], data)
	}
	x := p.parts[id]
	if x == nil {
		return nil, nil // its begin was lost
	}
	if kind == kindEnd {
		delete(p.parts, id)
		return x.finish(), nil
	}
	if offset == 0 {
		x.data = x.data[:0:0]
	}
	if whole < 0 || whole > maxWhole || offset != len(x.data) || offset+size > whole {
		delete(p.parts, id)
		return nil, fmt.Errorf("%w: program %d: %d bytes at %d of %d", ErrRecord, id, size, offset, whole)
	}
	x.data = append(x.data, data...)
	if len(x.data) == whole {
		x.array(kind, index, binary.LittleEndian.Uint64(b[24:]), b[32:40])
		x.data = nil
	}
	return nil, nil
}

func (p *parser) begin(id uint32, tag, data []byte) error {
	if len(data) < loadSize {
		return fmt.Errorf("%w: program %d: %d bytes", ErrRecord, id, len(data))
	}
	if len(p.parts) >= maxParts {
		clear(p.parts) // their ends were lost
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	x := &partial{}
	l := &x.load
	l.ID, l.Tag = id, [8]byte(tag)
	l.LoadTime, l.Loader.Cgroup = u64(0), u64(8)
	l.Type, l.UID, l.GPL, l.Verified = u32(16), u32(20), u32(24) != 0, u32(28)
	l.BTFID, x.subs = u32(32), int(u32(36))
	l.Loader.PID, l.Loader.TID = int32(u32(40)), int32(u32(44))
	l.Loader.Namespaces = make(map[string]uint64, nsCount)
	for i, name := range nsNames {
		if ino := u32(48 + 4*i); ino != 0 {
			l.Loader.Namespaces[name] = uint64(ino)
		}
	}
	l.Name = text(data[80 : 80+nameSize])
	l.Loader.Comm = text(data[80+nameSize : 80+2*nameSize])
	x.want = counts{maps: u32(112), funcs: u32(116), lines: u32(120), jitedLines: u32(124), btf: u64(128),
		insns: u32(136)}
	if p.parts == nil {
		p.parts = make(map[uint32]*partial)
	}
	p.parts[id] = x
	return nil
}

func text(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}

// array takes an array that is whole.
func (x *partial) array(kind uint32, index int, address uint64, tag []byte) {
	l, b := &x.load, x.data
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	switch kind {
	case kindCode:
		if index != len(l.KSyms) {
			return // one before it was lost
		}
		l.KSyms, l.FuncLens = append(l.KSyms, address), append(l.FuncLens, uint32(len(b)))
		l.Tags = append(l.Tags, [8]byte(tag))
		l.JITed = append(l.JITed, b...)
	case kindMaps:
		for at := 0; at+mapSize <= len(b); at += mapSize {
			m := parseMap(b[at : at+mapSize])
			x.maps, l.MapIDs = append(x.maps, m), append(l.MapIDs, m.id)
		}
	case kindFuncs:
		for at := 0; at+8 <= len(b); at += 8 {
			l.Funcs = append(l.Funcs, perfdata.BPFFunc{Insn: u32(at), Type: u32(at + 4)})
		}
	case kindLines:
		for at := 0; at+16 <= len(b); at += 16 {
			l.Lines = append(l.Lines,
				perfdata.BPFLine{Insn: u32(at), File: u32(at + 4), Text: u32(at + 8), LineCol: u32(at + 12)})
		}
	case kindJITedLines:
		for at := 0; at+8 <= len(b); at += 8 {
			l.JITedLines = append(l.JITedLines, binary.LittleEndian.Uint64(b[at:]))
		}
	case kindBTF:
		l.BTF = bytes.Clone(b)
	case kindInsns:
		l.Xlated = bytes.Clone(b)
	}
}

// finish is the program, or nil if some of its code was lost.
func (x *partial) finish() *Program {
	if len(x.load.KSyms) != x.subs {
		return nil
	}
	l := &x.load
	got := counts{
		maps: uint32(len(l.MapIDs)), funcs: uint32(len(l.Funcs)), insns: uint32(len(l.Xlated) / insnSize),
		lines: uint32(len(l.Lines)), jitedLines: uint32(len(l.JITedLines)), btf: uint64(len(l.BTF)),
	}
	l.Incomplete = got != x.want
	if got.maps != x.want.maps || got.insns != x.want.insns || !sanitize(l.Xlated, x.maps) {
		l.Xlated, l.Incomplete = nil, true
	}
	return l
}
