// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"io"
)

// input is where the bytes of the data come from: a range of a file, or a
// stream.
type input struct {
	file   io.ReaderAt // nil for a stream
	stream io.Reader
	pos    int64 // offset of the next byte to read
	end    int64 // end of the range; unknown for a stream
}

// read reads some bytes, at least one unless it fails; io.EOF at the end.
func (in *input) read(p []byte) (int, error) {
	n, err := in.readSome(p)
	in.pos += int64(n)
	if n > 0 {
		return n, nil
	}
	return 0, err
}

func (in *input) readSome(p []byte) (int, error) {
	if in.file == nil {
		return readStream(in.stream, p)
	}
	if left := in.end - in.pos; int64(len(p)) > left {
		p = p[:left]
	}
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := in.file.ReadAt(p, in.pos)
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	return n, err
}

// readStream is r.Read, but for readers that return nothing without an error.
func readStream(r io.Reader, p []byte) (int, error) {
	for range 100 {
		if n, err := r.Read(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.ErrNoProgress
}

// skip moves over n bytes. At the end of the input it fails with ErrTruncated.
func (in *input) skip(n int64) error {
	if in.file != nil {
		if n > in.end-in.pos {
			in.pos = in.end
			return ErrTruncated
		}
		in.pos += n
		return nil
	}
	done, err := io.CopyN(io.Discard, in.stream, n)
	in.pos += done
	if err == io.EOF {
		return ErrTruncated
	}
	return err
}

// readFull reads n bytes and appends them to dst, growing it as they come.
func (in *input) readFull(dst []byte, n int) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		at := len(dst)
		dst = append(dst, make([]byte, min(step, n))...)
		got, err := in.read(dst[at:])
		dst, n = dst[:at+got], n-got
		if err == io.EOF {
			return dst, ErrTruncated
		}
		if err != nil {
			return dst, fmt.Errorf("read: %w", err)
		}
	}
	return dst, nil
}

// A block is a piece of the data in memory. Ordered keeps blocks for as long as
// records in them wait, so their bytes never move; otherwise one is enough.
type block struct {
	buf  []byte // cap is fixed
	base int64  // offset in the input of buf[0]
	// unpacked says that buf was decompressed from a record at base.
	unpacked bool
	slot     int // index in blocks.all
	waiting  int // records of this block that Ordered holds
}

// blocks hands out blocks and takes them back.
type blocks struct {
	all  []*block
	free []*block
	held int64 // bytes in blocks not free
}

func (bs *blocks) get(size int) *block {
	for i := len(bs.free) - 1; i >= 0; i-- {
		if b := bs.free[i]; cap(b.buf) >= size {
			bs.free = append(bs.free[:i], bs.free[i+1:]...)
			b.buf = b.buf[:0]
			bs.held += int64(cap(b.buf))
			return b
		}
	}
	b := &block{buf: make([]byte, 0, size), slot: len(bs.all)}
	bs.all = append(bs.all, b)
	bs.held += int64(cap(b.buf))
	return b
}

func (bs *blocks) put(b *block) {
	bs.held -= int64(cap(b.buf))
	bs.free = append(bs.free, b)
}

// A cursor is a place in a block.
type cursor struct {
	*block
	pos int
}

// room makes sure that n more bytes, which come from offset at of the input,
// fit behind those the cursor has not read yet, by moving these to the start
// of this block or of a new one.
func (c *cursor) room(bs *blocks, n int, at int64) {
	left := c.buf[c.pos:]
	joins := c.unpacked || at == c.base+int64(len(c.buf))
	switch {
	case len(left) > 0 && cap(c.buf)-len(c.buf) >= n:
		return
	case c.waiting == 0:
		c.base = c.offset()
		c.buf = c.buf[:copy(c.buf, left)]
	case joins && cap(c.buf)-len(c.buf) >= n:
		return
	default:
		next := bs.get(cap(c.buf))
		next.base, next.unpacked = c.offset(), c.unpacked
		next.buf = append(next.buf, left...)
		c.block = next
	}
	c.pos = 0
	if len(left) == 0 {
		c.base = at
	}
}

// offset is where in the input the next byte comes from.
func (c *cursor) offset() int64 {
	if c.unpacked {
		return c.base
	}
	return c.base + int64(c.pos)
}
