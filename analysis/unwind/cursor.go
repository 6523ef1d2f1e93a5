// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// errCFI is wrapped by the errors of what a section of CFI holds.
var errCFI = errors.New("malformed call frame information")

// cursor reads little-endian values. After the first that is not there, all
// are zero and bad is set.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

func (c *cursor) left() int { return len(c.b) - c.at }

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b)-c.at {
		c.bad = true
		return nil
	}
	c.at += n
	return c.b[c.at-n : c.at]
}

func (c *cursor) u8() uint8 {
	if c.at >= len(c.b) || c.bad {
		c.bad = true
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// uleb reads an unsigned LEB128 number; bits beyond 64 are an error.
func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := 0; ; shift += 7 {
		b := c.u8()
		if shift > 63 || shift == 63 && b > 1 {
			c.bad = true
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b&0x80 == 0 || c.bad {
			return v
		}
	}
}

// sleb reads a signed LEB128 number.
func (c *cursor) sleb() int64 {
	var v int64
	for shift := 0; ; {
		b := c.u8()
		if shift > 63 {
			c.bad = true
			return 0
		}
		v |= int64(b&0x7f) << shift
		shift += 7
		if b&0x80 == 0 || c.bad {
			if b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
}

// text reads a string that ends with a zero byte.
func (c *cursor) text() string {
	for i, v := range c.b[min(c.at, len(c.b)):] {
		if v == 0 {
			s := string(c.b[c.at : c.at+i])
			c.at += i + 1
			return s
		}
	}
	c.bad = true
	return ""
}

// Encodings of pointers (DW_EH_PE_*), from the Linux Standard Base, "DWARF
// Extensions".
const (
	peAbs     = 0x00
	peULEB    = 0x01
	peU2      = 0x02
	peU4      = 0x03
	peU8      = 0x04
	peSLEB    = 0x09
	peS2      = 0x0a
	peS4      = 0x0b
	peS8      = 0x0c
	peFormat  = 0x0f
	pePCRel   = 0x10
	peDataRel = 0x30
	peBase    = 0x70
	peMemory  = 0x80 // the value is the address of the pointer
	peOmit    = 0xff
)

// value reads the bits of a pointer, without what they are relative to.
func (c *cursor) value(enc uint8) uint64 {
	switch enc & peFormat {
	case peAbs, peU8, peS8:
		return c.u64()
	case peULEB:
		return c.uleb()
	case peU2:
		return uint64(c.u16())
	case peU4:
		return uint64(c.u32())
	case peSLEB:
		return uint64(c.sleb())
	case peS2:
		return uint64(int64(int16(c.u16())))
	case peS4:
		return uint64(int64(int32(c.u32())))
	}
	c.bad = true
	return 0
}

// pointer reads a pointer of a section that begins at addr; data is what data
// relative pointers are relative to.
func (c *cursor) pointer(enc uint8, addr, data uint64) uint64 {
	at := addr + uint64(c.at)
	v := c.value(enc)
	switch enc & peBase {
	case peAbs:
	case pePCRel:
		v += at
	case peDataRel:
		v += data
	default:
		c.bad = true
	}
	if enc&peMemory != 0 {
		c.bad = true
	}
	return v
}

func (c *cursor) err(what string) error {
	if !c.bad {
		return nil
	}
	return fmt.Errorf("%s at byte %#x: %w", what, c.at, errCFI)
}
