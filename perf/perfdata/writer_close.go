// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gantry-tools/gantry/perf"
)

// Close writes the features and completes the header; f may be nil. EventDesc
// and Compressed are filled in if they are missing. After an error, Close
// completes the file as far as it goes and returns that error. It does not
// close the file.
func (w *Writer) Close(f *Features) error {
	if w.closed {
		return nil
	}
	if w.err == nil {
		w.Flush() // its error is w.err
	}
	w.closed = true
	if w.pack != nil {
		defer w.pack.close()
	}
	feats := w.complete(f)
	if w.file == nil {
		if w.err != nil {
			return w.err
		}
		return w.closePipe(feats)
	}
	failed := w.err
	w.err = nil
	size, err := w.closeFile(feats)
	if err != nil && size > 0 && w.preallocate(size) {
		// The disk is full: rather a file without its last records than
		// one without its features, which perf may refuse.
		_, again := w.closeFile(feats)
		err = errors.Join(err, again)
	}
	if failed != nil {
		return failed
	}
	return err
}

// preallocate takes back the last records, to have that many bytes for features.
func (w *Writer) preallocate(size int64) bool {
	limit, end := w.whole-size, int64(w.header.data.off)
	for _, round := range slices.Backward(w.rounds) {
		if round <= limit {
			end = round
			break
		}
	}
	if limit < end {
		return false
	}
	w.whole = w.lastWhole(end, limit)
	return true
}

// lastWhole walks the records from the offset on and returns where the last
// one ends that ends before limit.
func (w *Writer) lastWhole(at, limit int64) int64 {
	r, ok := w.file.(io.ReaderAt)
	if !ok {
		return at
	}
	b := make([]byte, perf.HeaderSize)
	for {
		if _, err := r.ReadAt(b, at); err != nil {
			return at
		}
		next := at + int64(perf.ParseHeader(b, w.order).Size)
		if next-at < perf.HeaderSize || next > limit {
			return at
		}
		at = next
	}
}

// complete adds to the features what the writer knows itself.
func (w *Writer) complete(f *Features) *Features {
	var c Features
	if f != nil {
		c = *f
	}
	if c.EventDesc == nil {
		for _, ev := range w.events {
			c.EventDesc = append(c.EventDesc, EventDesc{Attr: ev.Attr, Name: ev.Name, IDs: ev.IDs})
		}
	} else {
		c.EventDesc = append([]EventDesc(nil), c.EventDesc...)
		for i := range c.EventDesc {
			c.EventDesc[i].Attr = compact(c.EventDesc[i].Attr, w.order)
		}
	}
	if w.pack != nil {
		c.Compressed = w.pack.describe()
	}
	return &c
}

// closeFile writes the features behind the last whole record, and says how
// many bytes they take.
func (w *Writer) closeFile(f *Features) (size int64, err error) {
	w.header.features = [featureBits / 64]uint64{}
	w.header.data.size = uint64(w.whole) - w.header.data.off
	if err := w.patchHeader(); err != nil {
		w.err = nil // it is returned
		return 0, err
	}
	b, err := w.featureSections(f)
	if err != nil {
		return 0, err
	}
	size = int64(len(b))
	if _, err := w.file.WriteAt(b, w.whole); err != nil {
		return size, fmt.Errorf("write features: %w", err)
	}
	w.pos = w.whole + size
	if _, err := w.file.WriteAt(w.header.append(nil), 0); err != nil {
		return size, fmt.Errorf("write header: %w", err)
	}
	return size, nil
}

// featureSections encodes table and sections, and sets the bits in the header.
func (w *Writer) featureSections(f *Features) ([]byte, error) {
	ids := f.IDs()
	b := make([]byte, sectionSize*len(ids))
	for i, id := range ids {
		if id == 0 || id >= featureBits {
			return nil, fmt.Errorf("write feature %d: %w: no such bit", uint32(id), ErrUnsupported)
		}
		start := len(b)
		var err error
		if b, err = f.encode(b, id, w.order); err != nil {
			return nil, fmt.Errorf("write feature %s: %w", id, err)
		}
		at := section{uint64(w.whole) + uint64(start), uint64(len(b) - start)}
		if early, ok := w.early.find(id, b[start:]); ok {
			at, b = early, b[:start]
		}
		entry := b[sectionSize*i:]
		w.order.PutUint64(entry, at.off)
		w.order.PutUint64(entry[8:], at.size)
		w.header.set(id)
	}
	return b, nil
}

// NewPipeWriter starts a stream of the given events, with their names and the
// features of the options. The Writer does not close w.
func NewPipeWriter(w io.Writer, events []*perf.Event, o *WriterOptions) (*Writer, error) {
	pw, err := newWriter(w, events, o)
	if err != nil {
		return nil, err
	}
	pw.sent = make(map[FeatureID]string)
	b := pw.order.AppendUint64(nil, perf.LittleEndian.Uint64([]byte(magicLE)))
	b = pw.order.AppendUint64(b, pipeHeaderSize)
	for _, ev := range pw.events {
		rec := &perf.HeaderAttr{Attr: ev.Attr, IDs: ev.IDs}
		if b, err = perf.Append(b, rec, pw.order, nil); err != nil {
			return nil, fmt.Errorf("write event %q: %w", ev.Name, err)
		}
	}
	if b, err = pw.appendFeatures(b, pw.complete(pw.opts.Features)); err != nil {
		return nil, err
	}
	for _, ev := range pw.events {
		if ev.Name == "" || len(ev.IDs) == 0 {
			continue
		}
		rec := &perf.EventUpdate{Kind: perf.EventUpdateName, ID: ev.IDs[0], Text: ev.Name}
		if b, err = perf.Append(b, rec, pw.order, nil); err != nil {
			return nil, fmt.Errorf("write name of event %q: %w", ev.Name, err)
		}
	}
	if err := pw.writeRaw(b); err != nil {
		return nil, fmt.Errorf("write header: %w", err)
	}
	return pw, nil
}

// closePipe writes the features that are new since the start of the stream.
func (w *Writer) closePipe(f *Features) error {
	b, err := w.appendFeatures(nil, f)
	if err != nil {
		return err
	}
	if err := w.writeRaw(b); err != nil {
		return fmt.Errorf("write features: %w", err)
	}
	return nil
}

// appendFeatures appends the features that were not sent yet. perf sends a mark
// behind them: an empty feature with the number after its last one. Perfs of
// other versions take that for a feature and give up, but none needs it.
func (w *Writer) appendFeatures(dst []byte, f *Features) ([]byte, error) {
	for _, id := range f.IDs() {
		b, err := f.encode(nil, id, w.order)
		if err != nil {
			return nil, fmt.Errorf("write feature %s: %w", id, err)
		}
		if w.sent[id] == string(b) {
			continue
		}
		w.sent[id] = string(b)
		if dst, err = w.appendFeature(dst, f, id, b); err != nil {
			return nil, fmt.Errorf("write feature %s: %w", id, err)
		}
	}
	return dst, nil
}

// appendFeature appends the records for one feature, of which b is the section.
func (w *Writer) appendFeature(dst []byte, f *Features, id FeatureID, b []byte) (_ []byte, err error) {
	switch id {
	case FeatureTracingData:
		// perf's size counts the padding in.
		dst, err = perf.Append(dst, &perf.TracingData{Size: uint32((len(b) + 7) &^ 7)}, w.order, nil)
		if err != nil || len(b) > maxSection {
			return nil, fmt.Errorf("%w: %d bytes: %v", ErrTooLarge, len(b), err)
		}
		return append(append(dst, b...), make([]byte, -len(b)&7)...), nil
	case FeatureBuildID:
		for i := range f.BuildIDs {
			if dst, err = appendBuildID(dst, w.order, perf.RecordHeaderBuildID, &f.BuildIDs[i]); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	const most = perf.MaxRecordSize&^7 - perf.HeaderSize - 8
	if id == FeatureGantry {
		return w.appendGantry(dst, b, most)
	}
	if len(b) > most {
		w.omitted = append(w.omitted, id)
		return dst, nil
	}
	return perf.Append(dst, &perf.HeaderFeature{Feature: uint64(id), Data: b}, w.order, nil)
}

// gantryMark begins the records that carry gantry's section among the data,
// with gantryFirst or gantryMore behind it. perf report refuses a stream with a
// feature that it does not know; the records of type HEADER_EVENT_TYPE every
// version ignores since perf wrote them last, in Linux 3.x.
const (
	gantryMark  = "gantry\x00"
	gantryFirst = '\x01' // a section begins, in place of the one before
	gantryMore  = '\x02'
)

// WriteGantry writes gantry's section among the data, where it counts from
// there on: in a stream, and in a file whose recorder is killed before Close
// writes the features.
func (w *Writer) WriteGantry(section []byte) error {
	const most = perf.MaxRecordSize&^7 - perf.HeaderSize - 8
	b, err := w.appendGantry(nil, section, most)
	if err != nil {
		return err
	}
	return w.Write(b)
}

// appendGantry appends gantry's section, in pieces of at most the given size.
func (w *Writer) appendGantry(dst, b []byte, most int) (_ []byte, err error) {
	kind := byte(gantryFirst)
	for len(b) > 0 && err == nil {
		n := min(len(b), most)
		rec := &perf.Unknown{Type: perf.RecordHeaderEventType, Data: append(append([]byte(gantryMark), kind), b[:n]...)}
		dst, err = perf.Append(dst, rec, w.order, nil)
		b, kind = b[n:], gantryMore
	}
	return dst, err
}
