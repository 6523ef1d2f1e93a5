// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"bytes"
	"encoding/binary"
)

// buf reads the bytes of a section from off on. What lies behind its end reads as
// zero and makes it bad.
type buf struct {
	b   []byte
	off uint64
	big bool // the bytes of numbers, the highest first
	bad bool
}

// fail makes the buffer bad and moves to its end.
func (r *buf) fail() {
	r.bad = true
	r.off = uint64(len(r.b))
}

// more reports whether something is left to read.
func (r *buf) more() bool { return r.off < uint64(len(r.b)) }

// take returns n bytes, nil if there are less.
func (r *buf) take(n uint64) []byte {
	if n > uint64(len(r.b))-r.off {
		r.fail()
		return nil
	}
	b := r.b[r.off : r.off+n]
	r.off += n
	return b
}

// skip moves on by n bytes.
func (r *buf) skip(n uint64) {
	if n > uint64(len(r.b))-r.off {
		r.fail()
		return
	}
	r.off += n
}

// seek moves to an offset.
func (r *buf) seek(off uint64) {
	if off > uint64(len(r.b)) {
		r.fail()
		return
	}
	r.off = off
}

func (r *buf) u8() uint8 {
	if r.off >= uint64(len(r.b)) {
		r.bad = true
		return 0
	}
	v := r.b[r.off]
	r.off++
	return v
}

func (r *buf) u16() uint16 {
	b := r.take(2)
	switch {
	case b == nil:
		return 0
	case r.big:
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (r *buf) u24() uint32 {
	b := r.take(3)
	if b == nil {
		return 0
	}
	if r.big {
		return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
	}
	return uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
}

func (r *buf) u32() uint32 {
	b := r.take(4)
	switch {
	case b == nil:
		return 0
	case r.big:
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (r *buf) u64() uint64 {
	b := r.take(8)
	switch {
	case b == nil:
		return 0
	case r.big:
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// uint reads an unsigned number of 1, 2, 4 or 8 bytes.
func (r *buf) uint(size uint8) uint64 {
	switch size {
	case 1:
		return uint64(r.u8())
	case 2:
		return uint64(r.u16())
	case 4:
		return uint64(r.u32())
	case 8:
		return r.u64()
	}
	r.fail()
	return 0
}

// uleb reads an unsigned number of variable length. Bits above the 64th are lost.
func (r *buf) uleb() uint64 {
	if r.off < uint64(len(r.b)) && r.b[r.off] < 0x80 {
		r.off++
		return uint64(r.b[r.off-1])
	}
	var v uint64
	for shift := uint(0); ; shift += 7 {
		c := r.u8()
		if shift < 64 {
			v |= uint64(c&0x7f) << shift
		}
		if c < 0x80 {
			return v
		}
	}
}

// sleb reads a signed number of variable length.
func (r *buf) sleb() int64 {
	var v int64
	for shift := uint(0); ; {
		c := r.u8()
		if shift < 64 {
			v |= int64(c&0x7f) << shift
		}
		shift += 7
		if c < 0x80 {
			if shift < 64 && c&0x40 != 0 {
				v |= -1 << shift
			}
			return v
		}
	}
}

// str reads a text that ends with a NUL byte.
func (r *buf) str() []byte {
	rest := r.b[r.off:]
	n := bytes.IndexByte(rest, 0)
	if n < 0 {
		r.fail()
		return nil
	}
	r.off += uint64(n) + 1
	return rest[:n]
}

// length reads the length that begins a unit of most sections, and how many
// bytes offsets in it have: 4, or 8 in the 64-bit form.
func (r *buf) length() (n uint64, offsetSize uint8) {
	n = uint64(r.u32())
	switch {
	case n < 0xfffffff0:
		return n, 4
	case n == 0xffffffff:
		return r.u64(), 8
	}
	r.fail()
	return 0, 4
}

// textAt is the text at an offset of a section, nil if there is none.
func textAt(b []byte, off uint64) []byte {
	if off >= uint64(len(b)) {
		return nil
	}
	b = b[off:]
	n := bytes.IndexByte(b[:min(len(b), maxNameSize)], 0)
	return b[:max(n, 0)]
}
