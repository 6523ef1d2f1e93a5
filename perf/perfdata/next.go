// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/perf"
)

// Next returns the next record in file order; io.EOF at the end. Records that
// were compressed come unpacked. The record is valid until the next call.
func (r *Reader) Next() (*Record, error) {
	if r.replay != nil {
		if len(r.replay) > 0 {
			r.rec, r.replayed = r.replay[0].Record, r.replay[0].block
			r.replay = r.replay[1:]
			return &r.rec, nil
		}
		r.replay, r.replayed = nil, nil
	}
	return r.next()
}

// place returns where r.rec is, which is a record of the kernel.
func (r *Reader) place() (b *block, pos int) {
	if r.replayed != nil {
		return r.replayed, 0
	}
	return r.cur.block, r.cur.pos - len(r.rec.Raw)
}

func (r *Reader) next() (*Record, error) {
	for {
		c := r.cur
		if len(c.buf)-c.pos >= perf.HeaderSize {
			b := c.buf[c.pos:]
			h := perf.ParseHeader(b, r.order)
			size := int(h.Size)
			if size <= len(b) && size >= perf.HeaderSize {
				r.set(c, h, b[:size:size])
				c.pos += size
				if h.Type < perf.RecordHeaderAttr {
					return &r.rec, nil
				}
				if deliver, err := r.user(); err != nil {
					r.err = err
				} else if deliver {
					return &r.rec, nil
				}
				continue
			}
		}
		if r.err != nil {
			return nil, r.err
		}
		if err := r.more(); err != nil {
			r.err = err
			return nil, err
		}
	}
}

// set fills r.rec with the record raw, which begins at c.
func (r *Reader) set(c *cursor, h perf.Header, raw []byte) {
	rec := &r.rec
	rec.Header, rec.Raw, rec.Offset = h, raw, c.offset()
	rec.Event, rec.Time, rec.HasTime = nil, 0, false
	if h.Type >= perf.RecordHeaderAttr {
		return
	}
	if t, ok := r.events.Time(raw, r.order); ok && isTime(t) {
		rec.Time, rec.HasTime = t, true
	}
	r.setEvent(rec)
}

// isTime reports whether t is a time: 0 and -1 are in records that perf made up.
func isTime(t uint64) bool { return t+1 > 1 }

func (r *Reader) setEvent(rec *Record) {
	rec.Event = r.events.Of(rec.Raw, r.order)
	if rec.Event == nil {
		r.warnNoEvent(rec)
	}
}

func (r *Reader) warnNoEvent(rec *Record) {
	r.warn(WarnUnknownID, 0, rec.Offset, "records with an id that belongs to no event")
}

// more gets more bytes for the cursor, or changes it. It fails at the end.
func (r *Reader) more() error {
	c := r.cur
	want := 1
	if b := c.buf[c.pos:]; len(b) >= perf.HeaderSize {
		size := int(perf.ParseHeader(b, r.order).Size)
		if size < perf.HeaderSize {
			return r.badSize(c, size)
		}
		want = size - len(b)
	}
	if c == &r.unpacked {
		return r.unpack()
	}
	at := r.in.pos
	c.room(&r.blocks, want, at)
	n, err := r.in.read(c.buf[len(c.buf):cap(c.buf)])
	c.buf = c.buf[:len(c.buf)+n]
	if err == io.EOF {
		return r.atEnd()
	}
	if err != nil {
		return errAt(at, "read records", err)
	}
	return nil
}

func (r *Reader) badSize(c *cursor, size int) error {
	if r.recover {
		r.warn(WarnTruncated, 1, c.offset(), "the data ends with something that is no record")
		return io.EOF
	}
	return formatErr(c.offset(), "read record", "it says its size is %d", size)
}

// atEnd says what the end of the input cuts off.
func (r *Reader) atEnd() error {
	for _, c := range []*cursor{&r.raw, &r.unpacked} {
		if c.block != nil && c.pos < len(c.buf) {
			r.warn(WarnTruncated, 2, c.offset(), "the last record is cut short")
			c.pos = len(c.buf)
		}
	}
	if r.zstd.pending() {
		r.warn(WarnTruncated, 3, r.unpacked.offset(), "the last compressed block is cut short")
	}
	return io.EOF
}

// startUnpack switches to what is in the COMPRESSED record r.rec.
func (r *Reader) startUnpack() error {
	rec := &r.rec
	if r.cur == &r.unpacked {
		return formatErr(rec.Offset, "read record", "a compressed record in a compressed record")
	}
	payload := rec.Raw[perf.HeaderSize:]
	if rec.Type == perf.RecordCompressed2 {
		if len(payload) < 8 || r.order.Uint64(payload) > uint64(len(payload)-8) {
			return formatErr(rec.Offset, "read record", "compressed data of impossible size")
		}
		payload = payload[8:][:r.order.Uint64(payload)]
	}
	if r.zstd == nil {
		z, err := newUnpacker()
		if err != nil {
			return errAt(rec.Offset, "unpack record", err)
		}
		r.zstd = z
		r.unpacked.block = r.blocks.get(r.opts.BlockSize + maxZstdBlock)
		r.unpacked.unpacked = true
	}
	r.zstd.add(payload)
	if r.unpacked.waiting == 0 || r.unpacked.pos == len(r.unpacked.buf) {
		r.unpacked.base = rec.Offset
	}
	r.cur = &r.unpacked
	return nil
}

// unpack gets one more block out of the COMPRESSED record, or goes back to the
// records behind it.
func (r *Reader) unpack() error {
	c := &r.unpacked
	at := r.raw.offset() // behind the record
	c.room(&r.blocks, maxZstdBlock, c.base)
	var err error
	c.buf, err = r.zstd.next(c.buf)
	if errors.Is(err, errNoBlock) {
		r.cur = &r.raw
		return nil
	}
	if err != nil {
		return errAt(at, "unpack the record before", fmt.Errorf("%w: %w", ErrFormat, err))
	}
	return nil
}
