// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/gantry-tools/gantry/perf"
)

// The zstd format (RFC 8878).
const (
	zstdMagic     = 0xFD2FB528
	zstdSkippable = 0x184D2A50 // low four bits are free
	maxZstdBlock  = 128 << 10
	maxZstdWindow = 128 << 20 // what level 22 uses
)

// errNoBlock says that no whole block is there.
var errNoBlock = errors.New("no whole zstd block")

// An unpacker unpacks the zstd stream that COMPRESSED records are pieces of.
// perf flushes the stream for every piece, so what is in it can be had before
// the next piece comes. The zstd package does not know that: it wants to read
// on. So the unpacker looks at the framing and asks only for blocks that are
// whole.
type unpacker struct {
	dec      *zstd.Decoder
	feed     feed
	buf      []byte // bytes not given to dec yet
	off      int
	inFrame  bool
	checksum bool
	skip     int64 // bytes of a skippable frame still to come
}

// feed gives dec what the unpacker releases.
type feed struct {
	b   []byte
	off int
}

func (f *feed) Read(p []byte) (int, error) {
	if f.off == len(f.b) {
		return 0, io.EOF
	}
	n := copy(p, f.b[f.off:])
	f.off += n
	return n, nil
}

// add appends b to what is unread.
func (f *feed) add(b []byte) {
	if f.off == len(f.b) {
		f.b, f.off = f.b[:0], 0
	}
	f.b = append(f.b, b...)
}

func newUnpacker() (*unpacker, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		return nil, err
	}
	return &unpacker{dec: dec}, nil
}

func (z *unpacker) close() {
	if z != nil {
		z.dec.Close()
	}
}

// pending reports whether there is the start of a block that did not end.
func (z *unpacker) pending() bool { return z != nil && z.off < len(z.buf) }

// add takes the payload of the next record. The blocks before were taken, so
// what is left is less than one block.
func (z *unpacker) add(payload []byte) {
	n := copy(z.buf, z.buf[z.off:])
	z.buf = append(z.buf[:n], payload...)
	z.off = 0
}

// next appends one unpacked block to dst, which has room for it, or returns
// errNoBlock.
func (z *unpacker) next(dst []byte) ([]byte, error) {
	for {
		if !z.inFrame {
			if err := z.frame(); err != nil {
				return dst, err
			}
		}
		size, last, empty, err := z.block()
		if err != nil {
			return dst, err
		}
		block := z.buf[z.off : z.off+size]
		z.off += size
		z.inFrame = !last
		if empty && !last {
			continue // dec would read on
		}
		z.feed.add(block)
		n, err := z.dec.Read(dst[len(dst):cap(dst)])
		if err != nil && !(err == io.EOF && last) {
			return dst, err
		}
		if z.feed.off < len(z.feed.b) {
			return dst, fmt.Errorf("%d bytes behind a block", len(z.feed.b))
		}
		return dst[:len(dst)+n], nil
	}
}

// frame moves over the header of a frame into the feed.
func (z *unpacker) frame() error {
	for {
		n := min(z.skip, int64(len(z.buf)-z.off))
		z.off += int(n)
		z.skip -= n
		b := z.buf[z.off:]
		if len(b) < 8 {
			return errNoBlock // no frame is shorter
		}
		switch magic := perf.LittleEndian.Uint32(b); {
		case magic == zstdMagic:
			return z.frameHeader(b)
		case magic&^0xf == zstdSkippable:
			z.skip = 8 + int64(perf.LittleEndian.Uint32(b[4:]))
		default:
			return fmt.Errorf("no zstd frame begins with %#x", magic)
		}
	}
}

func (z *unpacker) frameHeader(b []byte) error {
	flags := b[4]
	n := 5
	single := flags>>5&1 != 0
	if !single {
		n++ // window
	}
	n += [4]int{0, 1, 2, 4}[flags&3] // dictionary
	size := [4]int{0, 2, 4, 8}[flags>>6]
	if single && size == 0 {
		size = 1
	}
	if n += size; len(b) < n {
		return errNoBlock
	}
	z.feed = feed{b: append(z.feed.b[:0], b[:n]...)}
	if err := z.dec.Reset(&z.feed); err != nil {
		return err
	}
	z.off += n
	z.inFrame, z.checksum = true, flags>>2&1 != 0
	return nil
}

// block measures the next block: its size with the header and, behind the
// last one, the checksum; and whether nothing is in it.
func (z *unpacker) block() (size int, last, empty bool, err error) {
	b := z.buf[z.off:]
	if len(b) < 3 {
		return 0, false, false, errNoBlock
	}
	h := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	last = h&1 != 0
	kind, n := h>>1&3, h>>3
	if kind == 3 || kind == 2 && n == 0 || n > maxZstdBlock {
		return 0, false, false, fmt.Errorf("a zstd block of type %d and %d bytes", kind, n)
	}
	size, empty = 3+n, n == 0
	if kind == 1 { // one byte, repeated n times
		size = 4
	}
	if last && z.checksum {
		size += 4
	}
	if len(b) < size {
		return 0, false, false, errNoBlock
	}
	return size, last, empty, nil
}
