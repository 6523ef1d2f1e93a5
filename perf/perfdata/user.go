// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/gantry-tools/gantry/perf"
)

// maxReplay bounds what is read ahead at the start of a stream.
const maxReplay = 16 << 20

// user handles r.rec, a record of perf itself. It says whether the record is
// to be delivered.
func (r *Reader) user() (deliver bool, err error) {
	switch r.rec.Type {
	case perf.RecordFinishedRound:
		return true, nil
	case perf.RecordCompressed, perf.RecordCompressed2:
		return false, r.startUnpack()
	case perf.RecordAuxtrace:
		return true, r.auxtrace()
	case perf.RecordHeaderTracingData:
		return true, r.tracingData()
	case perf.RecordHeaderAttr:
		return true, r.headerAttr()
	case perf.RecordHeaderFeature, perf.RecordEventUpdate, perf.RecordHeaderBuildID, perf.RecordHeaderEventType:
		if err := r.metadata(); err != nil {
			r.badRecord(err)
		}
	default:
		if t := r.rec.Type; !t.Known() {
			r.warn(WarnUnknownRecord, uint32(min(t, 1000)), r.rec.Offset, "records of the unknown type %d, passed over",
				uint32(t))
		}
	}
	return true, nil
}

func (r *Reader) badRecord(err error) {
	r.warn(WarnBadRecord, uint32(r.rec.Type), r.rec.Offset, "%v record: %v", r.rec.Type, err)
}

// metadata takes what a record says about the recording.
func (r *Reader) metadata() error {
	if r.rec.Type == perf.RecordHeaderBuildID {
		if len(r.features.BuildIDs) >= maxIDs {
			return ErrTooLarge
		}
		e, err := decodeBuildID(r.rec.Raw, r.order)
		if err == nil {
			r.features.BuildIDs = append(r.features.BuildIDs, e)
		}
		return err
	}
	rec, err := perf.Decode(r.rec.Raw, r.order, nil)
	if err != nil {
		return err
	}
	switch rec := rec.(type) {
	case *perf.EventUpdate:
		if rec.Kind == perf.EventUpdateName {
			r.names.update(r.events.ByID(rec.ID), rec.Text)
		}
	case *perf.HeaderFeature:
		return r.headerFeature(rec)
	case *perf.Unknown:
		return r.gantryPiece(rec.Data)
	}
	return nil
}

// gantryPiece takes a piece of gantry's section out of the data. That of a
// file's features is newer and stays. What else has the type HEADER_EVENT_TYPE
// is of no use since Linux 3.x.
func (r *Reader) gantryPiece(b []byte) error {
	b, ours := bytes.CutPrefix(b, []byte(gantryMark))
	if !ours || len(b) == 0 || r.gantryDone {
		return nil
	}
	kind, b := b[0], bytes.TrimRight(b[1:], "\x00") // records are padded
	f := &r.features
	switch {
	case kind == gantryFirst:
		f.Gantry = nil
	case kind != gantryMore:
		return nil
	case len(f.Gantry)+len(b) > maxSection:
		return ErrTooLarge
	}
	f.Gantry = append(f.Gantry, b...)
	r.gantryChanges++
	return nil
}

// headerFeature takes a feature out of a stream. An empty one of a number
// that has no name marks the end of the features.
func (r *Reader) headerFeature(rec *perf.HeaderFeature) error {
	id := FeatureID(min(rec.Feature, math.MaxUint32))
	if !r.pipe || id == 0 || id >= featureBits {
		return fmt.Errorf("%w: feature %d", ErrFormat, rec.Feature)
	}
	if len(rec.Data) == 0 {
		return nil
	}
	at := r.rec.Offset + perf.HeaderSize + 8
	err := r.features.decode(id, rec.Data, r.order, at)
	if id == FeatureEventDesc || id == FeaturePMUMappings {
		r.nameEvents()
	}
	return err
}

// headerAttr adds an event. Without it the samples cannot be read, so an error
// here ends the reading.
func (r *Reader) headerAttr() error {
	if !r.pipe {
		r.badRecord(fmt.Errorf("%w: an event in the data of a file", ErrFormat))
		return nil
	}
	rec, err := perf.Decode(r.rec.Raw, r.order, nil)
	if err != nil {
		return errAt(r.rec.Offset, "read event", fmt.Errorf("%w: %w", ErrFormat, err))
	}
	h := rec.(*perf.HeaderAttr)
	r.ids += len(h.IDs)
	if len(r.events.List()) >= maxEvents || r.ids > maxIDs {
		return errAt(r.rec.Offset, "read event",
			fmt.Errorf("%w: more than %d events or %d ids", ErrTooLarge, maxEvents, maxIDs))
	}
	ev := perf.NewEvent(h.Attr, "", h.IDs...)
	r.events.Add(ev)
	ev.Name = attrName(&ev.Attr, r.tracing(), r.features.PMUMappings)
	return nil
}

// auxtrace moves over the payload behind an AUXTRACE record.
func (r *Reader) auxtrace() error {
	rec, err := perf.Decode(r.rec.Raw, r.order, nil)
	if err != nil {
		return errAt(r.rec.Offset, "read AUXTRACE", fmt.Errorf("%w: %w", ErrFormat, err))
	}
	size := rec.(*perf.Auxtrace).Size
	if r.cur == &r.unpacked || size > math.MaxInt64 {
		return formatErr(r.rec.Offset, "read AUXTRACE", "a payload of %d bytes", size)
	}
	c := &r.raw
	here := min(size, uint64(len(c.buf)-c.pos))
	c.pos += int(here)
	err = r.in.skip(int64(size - here))
	return r.payloadError(err)
}

// tracingData takes the payload behind a HEADER_TRACING_DATA record.
func (r *Reader) tracingData() error {
	rec, err := perf.Decode(r.rec.Raw, r.order, nil)
	if err != nil {
		return errAt(r.rec.Offset, "read tracing data", fmt.Errorf("%w: %w", ErrFormat, err))
	}
	size := int64(rec.(*perf.TracingData).Size)
	padded := (size + 7) &^ 7
	if r.cur == &r.unpacked || padded > maxSection {
		return errAt(r.rec.Offset, "read tracing data", fmt.Errorf("%w: %d bytes", ErrTooLarge, size))
	}
	c := &r.raw
	here := min(int(padded), len(c.buf)-c.pos)
	b := append([]byte(nil), c.buf[c.pos:c.pos+here]...)
	c.pos += here
	b, err = r.in.readFull(b, int(padded)-here)
	if err == nil {
		r.features.TracingData = b[:size]
		r.nameEvents()
	}
	return r.payloadError(err)
}

// payloadError turns the end of the input into a warning.
func (r *Reader) payloadError(err error) error {
	if errors.Is(err, ErrTruncated) {
		r.warn(WarnTruncated, 4, r.rec.Offset, "what follows the last %v record is cut short", r.rec.Type)
		return nil
	}
	if err != nil {
		return errAt(r.rec.Offset, "read payload", err)
	}
	return nil
}

// readAhead reads the start of a stream, up to the first record that is not
// about the stream itself, so that events and features are known.
func (r *Reader) readAhead() {
	size := 0
	for size < maxReplay {
		rec, err := r.next()
		if err != nil {
			return // it is sticky; Next returns it behind the replay
		}
		c := replayed{Record: *rec}
		if rec.HasTime {
			c.block = r.blocks.get(len(rec.Raw))
			c.block.base, c.block.unpacked = rec.Offset, r.cur.block.unpacked
			c.block.buf = append(c.block.buf, rec.Raw...)
			c.Raw = c.block.buf
		} else {
			c.Raw = append([]byte(nil), rec.Raw...)
		}
		r.replay = append(r.replay, c)
		size += len(c.Raw)
		if !aboutStream(c.Type) {
			return
		}
	}
}

func aboutStream(t perf.RecordType) bool {
	switch t {
	case perf.RecordHeaderAttr, perf.RecordHeaderEventType, perf.RecordHeaderTracingData, perf.RecordHeaderBuildID,
		perf.RecordHeaderFeature, perf.RecordEventUpdate, perf.RecordIDIndex, perf.RecordThreadMap, perf.RecordCPUMap,
		perf.RecordTimeConv:
		return true
	}
	return false
}

// readFeatures reads the sections behind the data. A damaged one costs no more
// than itself.
func (r *Reader) readFeatures(h *fileHeader, table, size int64) {
	left := uint64(size) // sections that overlap could make much of a small file
	any := false
	for id := FeatureID(1); id < featureBits; id++ {
		if !h.has(id) {
			continue
		}
		any = true
		if err := r.readFeature(id, table, size, &left); err != nil {
			r.warn(WarnFeature, uint32(id), table, "feature %s: %v", id, err)
		}
		table += sectionSize
	}
	if !any && table < size {
		r.warn(WarnUnfinished, 1, table,
			"the recorder did not finish this file: %d bytes behind the last round are left out", size-table)
	}
}

func (r *Reader) readFeature(id FeatureID, at, size int64, left *uint64) error {
	if size-at < sectionSize {
		return fmt.Errorf("%w: the file ends before its entry", ErrTruncated)
	}
	var b [sectionSize]byte
	if err := readAt(r.in.file, b[:], at, "read entry"); err != nil {
		return err
	}
	s := section{r.order.Uint64(b[:]), r.order.Uint64(b[8:])}
	if !s.in(size) {
		return fmt.Errorf("%w: it ends at %d+%d, the file at %d", ErrTruncated, s.off, s.size, size)
	}
	if s.size > *left {
		return fmt.Errorf("%w: sections overlap", ErrFormat)
	}
	*left -= s.size
	sec, err := readSection(r.in.file, s, "read section")
	if err != nil {
		return err
	}
	return r.features.decode(id, sec, r.order, int64(s.off))
}
