// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"errors"
	"math"
)

// Errors of this package. Each is wrapped with the record it is about.
var (
	// ErrShort: the bytes end before the value does.
	ErrShort = errors.New("too short")
	// ErrLength: a length or a count does not fit what surrounds it.
	ErrLength = errors.New("impossible length")
	// ErrValue: a value cannot be encoded in its record.
	ErrValue = errors.New("value does not fit")
	// ErrUnsupported: a layout from the future that cannot be guessed.
	ErrUnsupported = errors.New("unknown to this version")
)

// codec walks the fields of a record once for both directions: with dec it
// fills them from b, otherwise it appends them to b. One walk per record type
// means that what is read is what is written.
type codec struct {
	dec   bool
	order Order
	b     []byte
	off   int
	start int // when encoding: where in b the body begins
	max   int // when encoding an attr: its size
	err   error
}

// take gives the next n bytes when decoding; nil after an error.
func (c *codec) take(n int) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 || n > len(c.b)-c.off {
		c.err = ErrShort
		return nil
	}
	c.off += n
	return c.b[c.off-n : c.off]
}

// more reports whether the attr version at hand has another field.
func (c *codec) more() bool {
	if c.dec {
		return c.err == nil && c.off < len(c.b)
	}
	return len(c.b) < c.max
}

func (c *codec) u8(v *uint8) {
	if !c.dec {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *codec) u16(v *uint16) {
	if !c.dec {
		c.b = c.order.AppendUint16(c.b, *v)
	} else if b := c.take(2); b != nil {
		*v = c.order.Uint16(b)
	}
}

func (c *codec) u32(v *uint32) {
	if !c.dec {
		c.b = c.order.AppendUint32(c.b, *v)
	} else if b := c.take(4); b != nil {
		*v = c.order.Uint32(b)
	}
}

func (c *codec) u64(v *uint64) {
	if !c.dec {
		c.b = c.order.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = c.order.Uint64(b)
	}
}

func (c *codec) i32(v *int32) {
	u := uint32(*v)
	c.u32(&u)
	*v = int32(u)
}

func (c *codec) f64(v *float64) {
	u := math.Float64bits(*v)
	c.u64(&u)
	*v = math.Float64frombits(u)
}

// bytes is a field of fixed size.
func (c *codec) bytes(p []byte) {
	if !c.dec {
		c.b = append(c.b, p...)
	} else if b := c.take(len(p)); b != nil {
		copy(p, b)
	}
}

// pad skips n bytes, or writes n zeros.
func (c *codec) pad(n int) {
	if !c.dec {
		c.b = append(c.b, make([]byte, n)...)
	} else {
		c.take(n)
	}
}

// str is the string that ends the body: up to the first NUL when decoding,
// padded with one to eight NULs to a multiple of 8 when encoding.
func (c *codec) str(s *string) {
	if !c.dec {
		c.b = append(c.b, *s...)
		c.b = append(c.b, make([]byte, 8-(len(c.b)-c.start)%8)...)
		return
	}
	*s = cString(c.take(len(c.b) - c.off))
}

// rest is what is left of the body. Decoding copies it.
func (c *codec) rest(p *[]byte) {
	if !c.dec {
		c.b = append(c.b, *p...)
	} else if b := c.take(len(c.b) - c.off); len(b) > 0 {
		*p = bytes.Clone(b)
	}
}

// align8 pads to the next multiple of 8 when encoding.
func (c *codec) align8() {
	for !c.dec && (len(c.b)-c.start)%8 != 0 {
		c.b = append(c.b, 0)
	}
}

// count checks that n elements of the given size can follow.
func (c *codec) count(n uint64, size int) bool {
	if !c.dec {
		return true
	}
	if c.err == nil && n > uint64(len(c.b)-c.off)/uint64(size) {
		c.err = ErrLength
	}
	return c.err == nil
}

// u64s is a list of n words.
func (c *codec) u64s(p *[]uint64, n uint64) {
	if !c.count(n, 8) {
		return
	}
	if c.dec && n > 0 {
		*p = make([]uint64, n)
	}
	for i := range *p {
		c.u64(&(*p)[i])
	}
}

// cString is b up to its first NUL.
func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
