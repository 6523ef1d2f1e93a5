// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// File is what [NewWriter] writes to, an *os.File as a rule: Write goes on where
// the last one ended, whatever WriteAt has written there, and what is written
// can be changed. If it has a method
//
//	Writev([][]byte) (int, error)
//
// records are written with it, without being put together first.
type File interface {
	io.Writer
	io.WriterAt
}

type vectorWriter interface {
	Writev(b [][]byte) (int, error)
}

// WriterOptions change how a [Writer] works. nil and the zero value mean the
// defaults.
type WriterOptions struct {
	// Order is the byte order of the records and of everything else.
	Order perf.Order
	// Compress is a zstd level from 1 (fast) to 22; 0 is no compression.
	Compress int
	// Features to be written before the data. A file has all its features
	// from Close; these it has also if its writer is killed, between two
	// calls of FinishRound, WriteRound or Commit.
	Features *Features
}

// A Writer writes perf.data. It is not safe for concurrent use. An error of a
// method is returned by all that follow, but Close still completes the file
// with the records that were written whole.
type Writer struct {
	w      io.Writer
	file   io.WriterAt // nil for a stream
	opts   WriterOptions
	order  perf.Order
	events []*perf.Event
	header fileHeader

	pos     int64   // bytes written
	whole   int64   // up to the end of the last whole record
	rounds  []int64 // where the last rounds ended
	buf     []byte  // small records, to be written together
	vec     [][]byte
	pack    *packer
	sent    map[FeatureID]string // features of a stream
	early   *earlyFeatures       // of a file; nil: none
	omitted []FeatureID
	err     error
	closed  bool
}

// bufSize is how much is gathered before it is written.
const bufSize = 64 << 10

// maxRounds bounds how many ends of rounds are remembered.
const maxRounds = 4096

// NewWriter starts a file of the given events. f must be empty. The Writer does
// not close it.
func NewWriter(f File, events []*perf.Event, o *WriterOptions) (*Writer, error) {
	w, err := newWriter(f, events, o)
	if err != nil {
		return nil, err
	}
	w.file = f
	b, err := w.fileStart()
	if err != nil {
		return nil, err
	}
	if err := w.writeRaw(b); err != nil {
		return nil, fmt.Errorf("write header: %w", err)
	}
	return w, nil
}

func newWriter(f io.Writer, events []*perf.Event, o *WriterOptions) (*Writer, error) {
	w := &Writer{w: f}
	if o != nil {
		w.opts = *o
	}
	w.order = w.opts.Order
	for _, ev := range events {
		c := *ev
		c.Attr = compact(ev.Attr, w.order)
		w.events = append(w.events, &c)
	}
	if w.opts.Compress > 0 {
		var err error
		if w.pack, err = newPacker(w.opts.Compress); err != nil {
			return nil, fmt.Errorf("start compression: %w", err)
		}
	}
	return w, nil
}

// compact makes the attr no larger than needed, down to the version of Linux
// 5.13: perf refuses files with attributes larger than it knows.
func compact(a perf.Attr, o perf.Order) perf.Attr {
	if b := a.Append(nil, o); len(b) > perf.AttrSizeVer7 && allZero(b[perf.AttrSizeVer7:]) {
		a.Size = perf.AttrSizeVer7
		a.Extra = nil
	}
	return a
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// fileStart lays out what precedes the data: header, ids, attributes, features.
func (w *Writer) fileStart() ([]byte, error) {
	o := w.order
	size := 0
	for _, ev := range w.events {
		size = max(size, len(ev.Attr.Append(nil, o)))
	}
	b := make([]byte, headerSize)
	var ids []section
	for _, ev := range w.events {
		ids = append(ids, section{uint64(len(b)), uint64(8 * len(ev.IDs))})
		for _, id := range ev.IDs {
			b = o.AppendUint64(b, id)
		}
	}
	attrs := len(b)
	for i, ev := range w.events {
		b = appendAttr(b, o, &ev.Attr, size)
		b = o.AppendUint64(o.AppendUint64(b, ids[i].off), ids[i].size)
	}
	end := len(b)
	if w.opts.Features != nil {
		var err error
		if b, err = w.earlySections(b, w.complete(w.opts.Features)); err != nil {
			return nil, err
		}
	}
	w.header = fileHeader{
		order:    o,
		size:     headerSize,
		attrSize: uint64(max(size, perf.AttrSizeVer0) + sectionSize),
		attrs:    section{uint64(attrs), uint64(end - attrs)},
		data:     section{uint64(len(b)), 0},
	}
	w.header.append(b[:0])
	return b, nil
}

// Write appends whole records with their headers. The slices are taken together:
// a record may go from one to the next. They are not kept.
func (w *Writer) Write(records ...[]byte) error {
	if err := w.ready(); err != nil {
		return err
	}
	if w.pack != nil {
		for _, b := range records {
			w.pack.add(b)
		}
		if !w.pack.full() {
			return nil
		}
		return w.packAll(false)
	}
	size := 0
	for _, b := range records {
		size += len(b)
	}
	if size >= bufSize/4 {
		return w.flush(records...)
	}
	for _, b := range records {
		w.buf = append(w.buf, b...)
	}
	if len(w.buf) >= bufSize {
		return w.flush()
	}
	return nil
}

func (w *Writer) ready() error {
	if w.closed {
		return fmt.Errorf("write perf.data: %w", fs.ErrClosed)
	}
	return w.err
}

// WriteRecord encodes rec for the event ev and appends it. ev may be nil for
// records of perf itself.
func (w *Writer) WriteRecord(rec perf.Record, ev *perf.Event) error {
	if err := w.ready(); err != nil {
		return err
	}
	if w.pack != nil && rec.RecordType().Kernel() {
		b, err := perf.Append(nil, rec, w.order, ev)
		if err != nil {
			return err
		}
		return w.Write(b)
	}
	if err := w.packAll(true); err != nil {
		return err
	}
	b, err := perf.Append(w.buf, rec, w.order, ev)
	if err != nil {
		return err
	}
	if w.buf = b; len(b) >= bufSize {
		return w.flush()
	}
	return nil
}

// WriteRound is Write and FinishRound, with one system call for both.
func (w *Writer) WriteRound(records ...[]byte) error {
	if w.pack != nil {
		if err := w.Write(records...); err != nil {
			return err
		}
		return w.FinishRound()
	}
	if err := w.ready(); err != nil {
		return err
	}
	end, err := perf.Append(nil, &perf.FinishedRound{}, w.order, nil)
	if err != nil {
		return err
	}
	if err := w.flush(append(slices.Clip(records), end)...); err != nil {
		return err
	}
	return w.endRound()
}

// FinishRound says that every ring has been read once, and makes what was
// written so far a valid file. [OrderedReader] says what a round is for.
func (w *Writer) FinishRound() error {
	if err := w.WriteRecord(&perf.FinishedRound{}, nil); err != nil {
		return err
	}
	if err := w.flush(); err != nil {
		return err
	}
	return w.endRound()
}

// endRound notes that a round has been written.
func (w *Writer) endRound() error {
	w.rounds = append(w.rounds, w.whole)
	if len(w.rounds) >= maxRounds {
		w.rounds = append(w.rounds[:0], w.rounds[maxRounds/2:]...)
	}
	return w.patchSize()
}

// Commit makes what was written so far a valid file within a round, whose end
// is yet to come.
func (w *Writer) Commit() error {
	if err := w.Flush(); err != nil {
		return err
	}
	return w.patchSize()
}

// Flush writes what is gathered in memory.
func (w *Writer) Flush() error {
	if err := w.ready(); err != nil {
		return err
	}
	if err := w.packAll(true); err != nil {
		return err
	}
	return w.flush()
}

// Size returns how many bytes have been written or gathered so far.
func (w *Writer) Size() int64 { return w.pos + int64(len(w.buf)) }

// Omitted returns the features that did not fit into a record of a stream and
// were left out.
func (w *Writer) Omitted() []FeatureID { return w.omitted }

// patchSize makes the header say that the data ends with the last whole record.
func (w *Writer) patchSize() error {
	if w.file == nil {
		return nil
	}
	w.header.data.size = uint64(w.whole) - w.header.data.off
	if w.early != nil {
		return w.showEarly()
	}
	b := w.order.AppendUint64(nil, w.header.data.size)
	if _, err := w.file.WriteAt(b, dataSizeAt); err != nil {
		w.err = fmt.Errorf("write header: %w", err)
	}
	return w.err
}

// packAll compresses what waits, all of it or whole chunks, into buf.
func (w *Writer) packAll(all bool) error {
	if w.pack == nil {
		return nil
	}
	var err error
	if w.buf, err = w.pack.pack(w.buf, w.order, all); err != nil {
		w.err = fmt.Errorf("compress: %w", err)
		return w.err
	}
	if len(w.buf) >= bufSize {
		return w.flush()
	}
	return nil
}

// flush writes buf and the records behind it.
func (w *Writer) flush(records ...[]byte) error {
	if err := w.hideEarly(); err != nil {
		return err
	}
	w.vec = append(w.vec[:0], w.buf)
	w.vec = append(w.vec, records...)
	n, err := w.writeVec()
	w.pos += int64(n)
	if err == nil {
		w.whole = w.pos
	} else {
		w.whole += wholeRecords(append([][]byte{w.buf}, records...), int64(n), w.order)
		w.err = fmt.Errorf("write records: %w", err)
	}
	w.buf = w.buf[:0]
	return w.err
}

// writeVec writes w.vec, which it changes.
func (w *Writer) writeVec() (total int, err error) {
	v, vectored := w.w.(vectorWriter)
	for {
		for len(w.vec) > 0 && len(w.vec[0]) == 0 {
			w.vec = w.vec[1:]
		}
		if len(w.vec) == 0 {
			return total, nil
		}
		var n int
		if vectored {
			n, err = v.Writev(w.vec)
		} else if n, err = w.w.Write(w.vec[0]); err == nil && n < len(w.vec[0]) {
			err = io.ErrShortWrite
		}
		total += max(n, 0)
		if err == nil && n <= 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
		w.written(n)
	}
}

// written takes n bytes off the start of w.vec.
func (w *Writer) written(n int) {
	for n > 0 && len(w.vec) > 0 {
		k := min(n, len(w.vec[0]))
		w.vec[0] = w.vec[0][k:]
		n -= k
		if len(w.vec[0]) == 0 {
			w.vec = w.vec[1:]
		}
	}
}

// wholeRecords says how many of the first n bytes of vec are whole records.
func wholeRecords(vec [][]byte, n int64, o perf.Order) (whole int64) {
	var b []byte
	for _, v := range vec {
		b = append(b, v...)
	}
	for rest := b[:n]; len(rest) >= perf.HeaderSize; {
		size := int(perf.ParseHeader(rest, o).Size)
		if size < perf.HeaderSize || size > len(rest) {
			break
		}
		whole += int64(size)
		rest = rest[size:]
	}
	return whole
}

// writeRaw writes what is not records.
func (w *Writer) writeRaw(b []byte) error {
	n, err := w.w.Write(b)
	w.pos += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = err
		return err
	}
	w.whole = w.pos
	return nil
}
