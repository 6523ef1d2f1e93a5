// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"io"
	"io/fs"

	"github.com/gantry-tools/gantry/perf"
)

// ReaderOptions change how a [Reader] works. nil and the zero value mean the
// defaults.
type ReaderOptions struct {
	// MaxRoundBytes bounds the memory that [Reader.Ordered] fills with the
	// records of one round; 0 is 256 MiB. Beyond it, a file is read a second
	// time, and a stream is delivered early.
	MaxRoundBytes int64
	// BlockSize is the size of a read; 0 is 256 KiB. It is at least 128 KiB.
	BlockSize int
}

const (
	defaultRoundBytes = 256 << 20
	defaultBlockSize  = 256 << 10
	minBlockSize      = 128 << 10
)

func (o *ReaderOptions) withDefaults() ReaderOptions {
	var v ReaderOptions
	if o != nil {
		v = *o
	}
	if v.MaxRoundBytes <= 0 {
		v.MaxRoundBytes = defaultRoundBytes
	}
	if v.BlockSize <= 0 {
		v.BlockSize = defaultBlockSize
	}
	v.BlockSize = max(v.BlockSize, minBlockSize)
	return v
}

// A Record is one record of the data. It and Raw are valid until the next
// call of the reader that returned it.
type Record struct {
	perf.Header
	// Raw is the whole record with its header. The payload that follows
	// AUXTRACE and HEADER_TRACING_DATA records is not in it.
	Raw []byte
	// Offset is where the record is in the input. For records that were
	// compressed, it is where a COMPRESSED record near them is.
	Offset int64
	// Event is the event that the record belongs to, nil for records of perf
	// itself and for those with an unknown id.
	Event *perf.Event
	// Time is when the record was written, in ns of the recording's clock.
	// Records that perf made up about what already ran have none.
	Time    uint64
	HasTime bool
}

// A Reader reads perf.data. It is not safe for concurrent use.
type Reader struct {
	opts     ReaderOptions
	order    perf.Order
	pipe     bool
	names    nameSources
	events   *perf.Events
	features Features
	warns    warnings
	closer   io.Closer

	in      input
	recover bool // the size of the data is not known: garbage ends it

	gantryDone    bool // the features had gantry's section
	gantryChanges int
	blocks        blocks
	cur           *cursor // raw or unpacked
	raw           cursor
	unpacked      cursor
	zstd          *unpacker

	replay   []replayed // the start of a stream, read in advance
	replayed *block     // of rec, if it is from replay
	rec      Record
	err      error // sticky
	ids      int   // of all events
}

// replayed is a record that was read in advance. Its block is nil if it has no
// time.
type replayed struct {
	Record
	block *block
}

// NewReader reads a file of size bytes: one that perf record wrote, or one that
// holds a stream.
func NewReader(r io.ReaderAt, size int64, o *ReaderOptions) (*Reader, error) {
	rd := &Reader{opts: o.withDefaults()}
	var b [headerSize]byte
	n := int(min(size, headerSize))
	if err := readAt(r, b[:n], 0, "read header"); err != nil {
		return nil, err
	}
	var err error
	if rd.order, err = magicOrder(b[:n]); err != nil {
		return nil, err
	}
	if n < pipeHeaderSize {
		return nil, errAt(int64(n), "read header", ErrTruncated)
	}
	rd.in = input{file: r, end: size}
	if rd.order.Uint64(b[8:]) == pipeHeaderSize {
		return rd.startPipe()
	}
	h, err := parseFileHeader(&b, rd.order)
	if err != nil {
		return nil, err
	}
	if uint64(n) < h.size {
		return nil, errAt(int64(n), "read header", ErrTruncated)
	}
	if err := rd.startFile(h, size); err != nil {
		return nil, err
	}
	return rd, nil
}

func (r *Reader) startFile(h *fileHeader, size int64) error {
	list, err := readEvents(r.in.file, size, h)
	if err != nil {
		return err
	}
	r.setEvents(list)
	if h.data.off > uint64(size) {
		return errAt(40, "read header",
			fmt.Errorf("%w: data at %d, the file ends at %d", ErrTruncated, h.data.off, size))
	}
	start, end := int64(h.data.off), size
	switch left := uint64(size - start); {
	case h.data.size == 0:
		r.recover = true
		r.warn(WarnUnfinished, 0, dataSizeAt, "the recorder did not finish this file: the size of the data is missing")
	case h.data.size > left:
		r.warn(WarnTruncated, 0, size, "the file is cut short: %d bytes of data are missing", h.data.size-left)
	default:
		end = start + int64(h.data.size)
		r.readFeatures(h, end, size)
		r.gantryDone = len(r.features.Gantry) > 0
	}
	r.in.pos, r.in.end = start, end
	r.nameEvents()
	r.startBlocks(end - start)
	return nil
}

// NewPipeReader reads a stream, as perf record writes to a pipe. It blocks until
// the first record that is not about the stream itself.
func NewPipeReader(r io.Reader, o *ReaderOptions) (*Reader, error) {
	rd := &Reader{opts: o.withDefaults(), in: input{stream: r}}
	var b [pipeHeaderSize]byte
	n, err := io.ReadFull(r, b[:])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = ErrTruncated
	}
	order, magicErr := magicOrder(b[:n])
	switch {
	case n >= 8 && magicErr != nil:
		return nil, magicErr
	case err != nil:
		return nil, errAt(int64(n), "read header", err)
	case order.Uint64(b[8:]) != pipeHeaderSize:
		return nil, errAt(8, "read header", fmt.Errorf("%w: a perf.data file, which is no stream", ErrUnsupported))
	}
	rd.order = order
	return rd.startPipe()
}

// startPipe begins behind the header of a stream.
func (r *Reader) startPipe() (*Reader, error) {
	r.pipe = true
	r.in.pos = pipeHeaderSize
	r.setEvents(nil)
	left := int64(r.opts.BlockSize)
	if r.in.file != nil {
		left = r.in.end - r.in.pos
	}
	r.startBlocks(left)
	r.readAhead()
	return r, nil
}

func (r *Reader) startBlocks(data int64) {
	size := int(min(int64(r.opts.BlockSize), max(data, 64)))
	r.raw.block = r.blocks.get(max(size, 16))
	r.raw.base = r.in.pos
	r.cur = &r.raw
}

// Close closes the file that Open opened. It may be called twice.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = fs.ErrClosed
	}
	r.replay = nil
	r.zstd.close()
	if r.closer == nil {
		return nil
	}
	c := r.closer
	r.closer = nil
	return c.Close()
}

// Events returns the events of the recording. In a stream, more may come.
func (r *Reader) Events() *perf.Events { return r.events }

// Order returns the byte order of the input.
func (r *Reader) Order() perf.Order { return r.order }

// Features returns what the input says about the recording. The value belongs
// to the reader. In a stream, it grows.
func (r *Reader) Features() *Features { return &r.features }

// GantryChanges counts how often [Features.Gantry] has changed since the
// reader was made.
func (r *Reader) GantryChanges() int { return r.gantryChanges }

// Warnings returns what was odd so far, in the order it was found.
func (r *Reader) Warnings() []Warning { return r.warns.list }

func (r *Reader) warn(kind WarningKind, sub uint32, off int64, format string, args ...any) {
	r.warns.add(warnKey{kind, sub}, off, func() string { return fmt.Sprintf(format, args...) })
}
