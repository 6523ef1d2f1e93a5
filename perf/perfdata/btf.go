// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// A BTF is what is needed of a program's BTF (linux/btf.h): the names of
// functions, and strings such as lines of source. It refers to the bytes it was
// parsed from.
type BTF struct {
	strings []byte
	funcs   map[uint32]uint32 // type to offset of the name
}

const (
	btfMagic     = 0xeb9f
	btfHeader    = 24
	btfTypeSize  = 12
	btfFunc      = 12
	btfMaxString = 4096
)

// btfBehind is how many bytes follow a type of each kind: in all, and for each
// of its members.
var btfBehind = [...]struct{ fixed, each int }{
	1: {4, 0}, 2: {}, 3: {12, 0}, 4: {0, 12}, 5: {0, 12}, 6: {0, 8}, 7: {}, 8: {}, 9: {}, 10: {}, 11: {},
	btfFunc: {}, 13: {0, 8}, 14: {4, 0}, 15: {0, 12}, 16: {}, 17: {4, 0}, 18: {}, 19: {0, 12},
}

// ParseBTF reads the functions and strings of a BTF. Errors wrap ErrFormat or
// ErrTruncated. Types behind one of an unknown kind are left out.
func ParseBTF(b []byte, o perf.Order) (*BTF, error) {
	p := &parser{b: b, order: o}
	head := p.bytes(8)
	if p.err != nil {
		return nil, p.err
	}
	if o.Uint16(head) != btfMagic {
		return nil, fmt.Errorf("%w: not BTF: magic %#x", ErrFormat, o.Uint16(head))
	}
	size := o.Uint32(head[4:])
	typeOff, typeLen, strOff, strLen := p.u32(), p.u32(), p.u32(), p.u32()
	part := func(off, n uint32) []byte {
		from := uint64(size) + uint64(off)
		if size < btfHeader || from+uint64(n) > uint64(len(b)) {
			p.fail(fmt.Errorf("%w: %d bytes of BTF at %d of %d", ErrTruncated, n, from, len(b)))
			return nil
		}
		return b[from : from+uint64(n)]
	}
	types := part(typeOff, typeLen)
	f := &BTF{strings: part(strOff, strLen), funcs: make(map[uint32]uint32)}
	if p.err != nil {
		return nil, p.err
	}
	f.index(types, o)
	return f, nil
}

func (f *BTF) index(types []byte, o perf.Order) {
	for id := uint32(1); len(types) >= btfTypeSize; id++ {
		info := o.Uint32(types[4:])
		kind, members := int(info>>24&0x1f), int(info&0xffff)
		if kind == 0 || kind >= len(btfBehind) {
			return
		}
		if kind == btfFunc {
			f.funcs[id] = o.Uint32(types)
		}
		n := btfTypeSize + btfBehind[kind].fixed + members*btfBehind[kind].each
		if n > len(types) {
			return
		}
		types = types[n:]
	}
}

// Func is the name of the function that a type is, "" if it is none.
func (f *BTF) Func(id uint32) string {
	if f == nil {
		return ""
	}
	off, ok := f.funcs[id]
	if !ok {
		return ""
	}
	return f.String(off)
}

// String is the string at an offset, "" if there is none. It may have any bytes
// but is not longer than 4096.
func (f *BTF) String(off uint32) string {
	if f == nil || uint64(off) >= uint64(len(f.strings)) {
		return ""
	}
	s := f.strings[off:]
	return cstring(s[:min(len(s), btfMaxString)])
}
