// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// nameAlign is what perf pads strings in feature sections to.
const nameAlign = 64

// A parser takes values from a byte slice. The first failure sticks; the
// values after it are zero.
type parser struct {
	b     []byte
	order perf.Order
	base  int64 // file offset of b[0], for errors
	pos   int
	err   error
}

func (p *parser) left() int { return len(p.b) - p.pos }

func (p *parser) offset() int64 { return p.base + int64(p.pos) }

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// bytes returns the next n bytes, not copied.
func (p *parser) bytes(n int) []byte {
	if p.err != nil {
		return nil
	}
	if n < 0 || n > p.left() {
		p.fail(fmt.Errorf("%w: %d bytes wanted at offset %d, %d left", ErrTruncated, n, p.offset(), p.left()))
		return nil
	}
	b := p.b[p.pos : p.pos+n : p.pos+n]
	p.pos += n
	return b
}

func (p *parser) u8() uint8 {
	if b := p.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (p *parser) u32() uint32 {
	if b := p.bytes(4); b != nil {
		return p.order.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.bytes(8); b != nil {
		return p.order.Uint64(b)
	}
	return 0
}

// count reads a number of items that take at least size bytes each, and
// fails if they cannot be there.
func (p *parser) count(size int) int {
	at := p.offset()
	n := p.u32()
	if p.err == nil && int64(n)*int64(size) > int64(p.left()) {
		p.fail(fmt.Errorf("%w: %d items of at least %d bytes at offset %d, %d bytes left", ErrFormat, n, size, at,
			p.left()))
		return 0
	}
	return int(n)
}

// string reads perf's string of a feature section: length, bytes, zeros.
func (p *parser) string() string {
	n := p.count(1)
	return cstring(p.bytes(n))
}

// cstringNext reads up to and over the next NUL byte.
func (p *parser) cstringNext() string {
	if p.err != nil {
		return ""
	}
	i := bytes.IndexByte(p.b[p.pos:], 0)
	if i < 0 {
		p.fail(fmt.Errorf("%w: no end of the string at offset %d", ErrTruncated, p.offset()))
		return ""
	}
	s := string(p.b[p.pos : p.pos+i])
	p.pos += i + 1
	return s
}

// cstring cuts b at its first NUL byte.
func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func align(n, to int) int { return (n + to - 1) / to * to }

// appendString appends s as perf does: length, s, at least one zero, all
// padded to nameAlign.
func appendString(dst []byte, o perf.Order, s string) []byte {
	n := align(len(s)+1, nameAlign)
	dst = o.AppendUint32(dst, uint32(n))
	return appendPadded(dst, s, n)
}

func appendPadded(dst []byte, s string, n int) []byte {
	dst = append(dst, s...)
	return append(dst, make([]byte, n-len(s))...)
}
