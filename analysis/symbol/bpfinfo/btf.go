// SPDX-License-Identifier: Apache-2.0

package bpfinfo

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// ErrFormat is returned for BTF that contradicts itself.
var ErrFormat = errors.New("bad BTF")

// Names is what of BTF (linux/btf.h) names functions and source lines: the
// strings, and the names of the types that are functions. References between
// types are not followed, so that those that lead nowhere, or in circles, do no
// harm. It refers to the bytes that it was read from.
type Names struct {
	strings []byte
	funcs   map[uint32]uint32 // offset of the name by number of the type
}

const (
	btfMagic   = 0xeb9f
	btfHead    = 24 // struct btf_header, as of the first version
	btfType    = 12 // struct btf_type
	kindFunc   = 12 // BTF_KIND_FUNC
	kindsKnown = 20
)

// behind is how many bytes follow a struct btf_type, by kind: fixed ones, and
// those for each of its vlen members.
var behind = [kindsKnown]struct{ fixed, each int }{
	1:  {fixed: 4},  // INT
	3:  {fixed: 12}, // ARRAY
	4:  {each: 12},  // STRUCT
	5:  {each: 12},  // UNION
	6:  {each: 8},   // ENUM
	13: {each: 8},   // FUNC_PROTO
	14: {fixed: 4},  // VAR
	15: {each: 12},  // DATASEC
	17: {fixed: 4},  // DECL_TAG
	19: {each: 12},  // ENUM64
}

// ReadNames reads BTF. Its own magic says in which order its bytes are. With an
// error come the names before what is damaged: strings can be right where types
// are not. Errors wrap ErrFormat, with an offset.
func ReadNames(b []byte) (*Names, error) {
	n := &Names{}
	if len(b) < btfHead {
		return n, fmt.Errorf("%w: %d bytes are no header", ErrFormat, len(b))
	}
	order := perf.LittleEndian
	if order.Uint16(b) != btfMagic {
		if order = perf.BigEndian; order.Uint16(b) != btfMagic {
			return n, fmt.Errorf("%w: no magic at offset 0", ErrFormat)
		}
	}
	u32 := func(at int) uint64 { return uint64(order.Uint32(b[at:])) }
	part := func(what string, at int) ([]byte, error) {
		start := u32(4) + u32(at)
		if size := u32(at + 4); start > uint64(len(b)) || size > uint64(len(b))-start {
			return nil, fmt.Errorf("%w: %d bytes of %s at offset %d of %d", ErrFormat, size, what, start, len(b))
		}
		return b[start : start+u32(at+4)], nil
	}
	types, errTypes := part("types", 8)
	var errStrings error
	if n.strings, errStrings = part("strings", 16); errStrings != nil {
		return n, errStrings
	}
	if errTypes != nil {
		return n, errTypes
	}
	return n, n.readTypes(types, order)
}

// readTypes finds the functions among the types. The first has number 1.
func (n *Names) readTypes(b []byte, order perf.Order) error {
	n.funcs = make(map[uint32]uint32)
	at := 0
	for id := uint32(1); at < len(b); id++ {
		if len(b)-at < btfType {
			return fmt.Errorf("%w: type %d is cut off at offset %d of the types", ErrFormat, id, at)
		}
		info := order.Uint32(b[at+4:])
		kind, vlen := info>>24&0x1f, int(info&0xffff)
		if kind == 0 || kind >= kindsKnown {
			return fmt.Errorf("%w: type %d at offset %d of the types is of kind %d", ErrFormat, id, at, kind)
		}
		if kind == kindFunc {
			n.funcs[id] = order.Uint32(b[at:])
		}
		at += btfType + behind[kind].fixed + behind[kind].each*vlen
	}
	if at > len(b) {
		return fmt.Errorf("%w: the last type ends at offset %d of %d", ErrFormat, at, len(b))
	}
	return nil
}

// maxString bounds a name, a path or a line of source; the kernel has no bound
// for lines.
const maxString = 4096

// String is the string at an offset, "" if there is none. Longer ones than
// 4,096 bytes are cut.
func (n *Names) String(off uint32) string {
	if n == nil || uint64(off) >= uint64(len(n.strings)) {
		return ""
	}
	s := n.strings[off:]
	s = s[:min(len(s), maxString)]
	if end := bytes.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	return string(s)
}

// Func is the name of the function that a type is, "" if it is none.
func (n *Names) Func(id uint32) string {
	if n == nil {
		return ""
	}
	off, ok := n.funcs[id]
	if !ok {
		return ""
	}
	return n.String(off)
}
