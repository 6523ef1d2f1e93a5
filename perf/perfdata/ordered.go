// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"io"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// An OrderedReader delivers records by time.
//
// The recorder reads its rings in turn, one round after the other, and marks
// the end of a round with FINISHED_ROUND. A record can be older than others of
// its round and of the round before, not of earlier ones. So at the end of a
// round, everything up to the latest time of the round before can go, sorted.
// Records of equal time stay in file order. Records without a time are delivered
// when they are met, and FINISHED_ROUND behind what it released.
//
// A round is a few runs that are sorted already, one per ring: merging them is
// cheaper than sorting. Records stay where they were read; what is merged is
// their times and places.
type OrderedReader struct {
	r    *Reader
	pend []recordOffset // sorted runs, one behind the other
	runs []int          // where each run starts in pend

	out     []recordOffset // being delivered
	outPos  int
	scratch []recordOffset
	bounds  []int
	held    *Record // to be delivered behind out

	max   uint64 // latest time seen
	tail  uint64 // last time in pend
	limit uint64 // latest time of the rounds before this one
	last  uint64 // time delivered last
	far   farCache
	rec   Record
	err   error // of the reader, due when out is delivered

	samples []RawSample
}

// A recordOffset is where a record is: in a block, or with farBit set at an offset in
// the file.
type recordOffset struct {
	time uint64
	ref  uint64
}

const (
	farBit           = 1 << 63
	slotShift        = 32
	recordOffsetSize = 3 * 16 // in pend, out and scratch
)

// Ordered returns a reader of the records that r has not delivered yet, by time.
// It reads from r: do not call r.Next any more.
func (r *Reader) Ordered() *OrderedReader { return &OrderedReader{r: r} }

// Next returns the next record; io.EOF at the end. The record is valid until the
// next call.
func (d *OrderedReader) Next() (*Record, error) {
	for {
		if d.outPos < len(d.out) {
			p := d.out[d.outPos]
			d.outPos++
			return d.deliver(p)
		}
		if rec := d.held; rec != nil {
			d.held = nil
			return rec, nil
		}
		if d.err != nil {
			return nil, d.err
		}
		if rec := d.collect(); rec != nil {
			return rec, nil
		}
	}
}

// A RawSample is a sample record.
type RawSample struct {
	Raw    []byte // the whole record with its header
	Event  *perf.Event
	Time   uint64
	Offset int64 // as that of [Record]
}

// maxSamples is how many samples come at a time.
const maxSamples = 128

// Samples returns the samples that Next would return next, as far as they are
// in memory and nothing else comes between; none if there is something else
// to do first, which Next does. They are valid until the next call of either.
func (d *OrderedReader) Samples() []RawSample {
	r := d.r
	d.samples = slices.Grow(d.samples[:0], maxSamples)
	for ; d.outPos < len(d.out) && len(d.samples) < maxSamples; d.outPos++ {
		p := d.out[d.outPos]
		if p.ref&farBit != 0 || p.time < d.last {
			break
		}
		blk, pos := r.blocks.all[p.ref>>slotShift], int(uint32(p.ref))
		b := blk.buf[pos:]
		h := perf.ParseHeader(b, r.order)
		if h.Type != perf.RecordSample {
			break
		}
		b = b[:h.Size:h.Size]
		ev := r.events.Of(b, r.order)
		if ev == nil {
			break
		}
		d.samples = append(d.samples, RawSample{Raw: b, Event: ev, Time: p.time, Offset: d.release(blk, pos)})
		d.last = p.time
	}
	return d.samples
}

// release takes the record at pos from a block, and says where it was.
func (d *OrderedReader) release(blk *block, pos int) int64 {
	r := d.r
	if blk.waiting--; blk.waiting == 0 && blk != r.raw.block && blk != r.unpacked.block {
		r.blocks.put(blk)
	}
	if blk.unpacked {
		return blk.base
	}
	return blk.base + int64(pos)
}

// collect reads until a record can be delivered that has no time, or until
// out is filled.
func (d *OrderedReader) collect() *Record {
	for {
		if d.scan() {
			return nil
		}
		rec, err := d.r.Next()
		if err != nil {
			d.err = err
			d.flush(^uint64(0))
			return nil
		}
		switch {
		case rec.HasTime:
			b, pos := d.r.place()
			if d.push(rec.Time, b, pos) {
				return nil
			}
		case rec.Type == perf.RecordFinishedRound:
			limit := d.limit
			d.limit = d.max
			d.held = rec
			d.flush(limit)
			return nil
		default:
			return rec
		}
	}
}

// scan does what collect does, for the records of the kernel that are in
// memory and have a time: nearly all. It says whether out was filled.
func (d *OrderedReader) scan() bool {
	r := d.r
	if r.replay != nil {
		return false
	}
	c, o := r.cur, r.order
	buf, pos := c.buf, c.pos
	for len(buf)-pos >= perf.HeaderSize {
		h := perf.ParseHeader(buf[pos:], o)
		size := int(h.Size)
		if h.Type >= perf.RecordHeaderAttr || size < perf.HeaderSize || size > len(buf)-pos {
			break
		}
		t, ok := r.events.Time(buf[pos:pos+size], o)
		if !ok || !isTime(t) {
			break
		}
		at := pos
		pos += size
		c.pos = pos
		if d.push(t, c.block, at) {
			return true
		}
	}
	return false
}

// push keeps the place of a record. It says whether memory ran out, so that
// out was filled.
func (d *OrderedReader) push(t uint64, b *block, pos int) bool {
	var ref uint64
	full := d.r.blocks.held > d.r.opts.MaxRoundBytes
	if full && d.r.in.file != nil && !b.unpacked {
		ref = farBit | uint64(b.base+int64(pos))
		full = false
	} else {
		b.waiting++
		ref = uint64(b.slot)<<slotShift | uint64(pos)
	}
	if t < d.tail || len(d.pend) == 0 {
		d.runs = append(d.runs, len(d.pend))
	}
	d.pend = append(d.pend, recordOffset{t, ref})
	d.tail = t
	d.max = max(d.max, t)
	if full || int64(len(d.pend))*recordOffsetSize > d.r.opts.MaxRoundBytes {
		d.runOut(b.base + int64(pos))
		return true
	}
	return false
}

// runOut delivers a part of a round that does not fit in memory.
func (d *OrderedReader) runOut(off int64) {
	r := d.r
	r.warn(WarnMemory, 0, off, "a round takes more than %d bytes: delivered before it is complete",
		r.opts.MaxRoundBytes)
	d.flushHalf()
}

// flush moves everything up to limit from pend to out and merges it.
func (d *OrderedReader) flush(limit uint64) {
	d.out, d.outPos, d.bounds = d.out[:0], 0, d.bounds[:0]
	runs, kept := d.runs[:0], 0
	for i, start := range d.runs {
		end := len(d.pend)
		if i+1 < len(d.runs) {
			end = d.runs[i+1]
		}
		run := d.pend[start:end]
		n := upTo(run, limit)
		if n > 0 {
			d.bounds = append(d.bounds, len(d.out))
			d.out = append(d.out, run[:n]...)
		}
		if n < len(run) {
			runs = append(runs, kept)
			kept += copy(d.pend[kept:], run[n:])
		}
	}
	d.pend, d.runs = d.pend[:kept], runs
	d.setTail()
	d.merge()
}

// flushHalf moves the older half of pend to out.
func (d *OrderedReader) flushHalf() {
	d.flush(^uint64(0))
	half := (len(d.out) + 1) / 2
	d.pend = append(d.pend, d.out[half:]...)
	d.out = d.out[:half]
	if len(d.pend) > 0 {
		d.runs = append(d.runs, 0)
	}
	d.setTail()
}

func (d *OrderedReader) setTail() {
	if n := len(d.pend); n > 0 {
		d.tail = d.pend[n-1].time
	}
}

// upTo counts the places of a sorted run that are not later than limit.
func upTo(run []recordOffset, limit uint64) int {
	if run[len(run)-1].time <= limit {
		return len(run)
	}
	n, _ := slices.BinarySearchFunc(run, limit, func(p recordOffset, limit uint64) int {
		if p.time <= limit {
			return -1
		}
		return 1
	})
	return n
}

// merge sorts out, which is sorted runs starting at bounds.
func (d *OrderedReader) merge() {
	if len(d.bounds) < 2 {
		return
	}
	d.scratch = slices.Grow(d.scratch[:0], len(d.out))[:len(d.out)]
	src, dst := d.out, d.scratch
	for len(d.bounds) > 1 {
		bounds := d.bounds[:0]
		for i := 0; i < len(d.bounds); i += 2 {
			start, mid, end := d.bounds[i], len(src), len(src)
			if i+1 < len(d.bounds) {
				mid = d.bounds[i+1]
			}
			if i+2 < len(d.bounds) {
				end = d.bounds[i+2]
			}
			mergeRuns(dst[start:end], src[start:mid], src[mid:end])
			bounds = append(bounds, start)
		}
		d.bounds = bounds
		src, dst = dst, src
	}
	d.out, d.scratch = src, dst
}

// mergeRuns merges a and b into dst, which has room for both; at equal times,
// a goes first.
func mergeRuns(dst, a, b []recordOffset) {
	for len(a) > 0 && len(b) > 0 {
		if b[0].time < a[0].time {
			dst[0] = b[0]
			b = b[1:]
		} else {
			dst[0] = a[0]
			a = a[1:]
		}
		dst = dst[1:]
	}
	copy(dst[copy(dst, a):], b)
}

// deliver returns the record at p.
func (d *OrderedReader) deliver(p recordOffset) (*Record, error) {
	r, rec := d.r, &d.rec
	var b []byte
	if p.ref&farBit != 0 {
		rec.Offset = int64(p.ref &^ farBit)
		var err error
		if b, err = d.readAgain(rec.Offset); err != nil {
			d.err, d.outPos, d.held = err, len(d.out), nil
			return nil, err
		}
	} else {
		blk, pos := r.blocks.all[p.ref>>slotShift], int(uint32(p.ref))
		b = blk.buf[pos:]
		rec.Offset = d.release(blk, pos)
	}
	rec.Header = perf.ParseHeader(b, r.order)
	rec.Raw = b[:rec.Size:rec.Size]
	rec.Time, rec.HasTime = p.time, true
	r.setEvent(rec)
	if p.time < d.last {
		r.warn(WarnOutOfOrder, 0, rec.Offset, "records older than the one delivered before them")
		return rec, nil
	}
	d.last = p.time
	return rec, nil
}

// readAgain returns bytes that start with the record at off.
func (d *OrderedReader) readAgain(off int64) ([]byte, error) {
	b, err := d.far.at(&d.r.in, off)
	if err != nil {
		return nil, err
	}
	if len(b) >= perf.HeaderSize {
		if size := int(perf.ParseHeader(b, d.r.order).Size); size >= perf.HeaderSize && size <= len(b) {
			return b, nil
		}
	}
	return nil, errAt(off, "read record again", fmt.Errorf("%w: the file changed meanwhile", ErrTruncated))
}

// farCache keeps pieces of the file that records are read from a second time.
// The runs of a round take turns, so there are several pieces.
type farCache struct {
	pieces []farPiece
	next   int // piece to be replaced
	hit    int // piece used last
}

type farPiece struct {
	start int64
	buf   []byte
}

const (
	farPieces = 64
	farStep   = 128 << 10
	farSize   = farStep + perf.MaxRecordSize // a record may begin anywhere in the step
)

// at returns the bytes from off on, at least the record there.
func (f *farCache) at(in *input, off int64) ([]byte, error) {
	start := off &^ (farStep - 1)
	if f.hit < len(f.pieces) && f.pieces[f.hit].start == start {
		return f.pieces[f.hit].from(off), nil
	}
	f.hit = slices.IndexFunc(f.pieces, func(p farPiece) bool { return p.start == start })
	if f.hit < 0 {
		if len(f.pieces) < farPieces {
			f.pieces = append(f.pieces, farPiece{buf: make([]byte, 0, farSize)})
			f.next = len(f.pieces) - 1
		} else {
			f.next = (f.next + 1) % farPieces
		}
		f.hit = f.next
		p := &f.pieces[f.hit]
		p.start = start
		n, err := in.file.ReadAt(p.buf[:min(farSize, in.end-start)], start)
		p.buf = p.buf[:n]
		if err != nil && err != io.EOF {
			p.start = -1
			return nil, errAt(start, "read records again", err)
		}
	}
	return f.pieces[f.hit].from(off), nil
}

func (p *farPiece) from(off int64) []byte {
	return p.buf[min(off-p.start, int64(len(p.buf))):]
}
