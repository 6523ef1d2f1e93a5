// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Write writes the recording that r reads, from which nothing may have been read
// yet, as a file: in the order of time, without compression, with the paths of b
// in records of mappings, in the form without build-ids. What was left out is in
// the warnings.
func Write(f perfdata.File, r *perfdata.Reader, b *Binaries) (warnings []string, err error) {
	w, err := perfdata.NewWriter(f, events(r), &perfdata.WriterOptions{Order: r.Order()})
	if err != nil {
		return nil, err
	}
	s := analysis.NewSession(r, nil)
	c := &converter{w: w, s: s, b: b, order: r.Order()}
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = c.record(it)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close(r.Features()))
		}
	}
	warnings = s.Warnings()
	if c.aux > 0 {
		warnings = append(warnings, fmt.Sprintf("%d pieces of AUX area data were left out", c.aux))
	}
	return warnings, w.Close(c.features(r.Features()))
}

// events are those of the recording; their records have no build-ids.
func events(r *perfdata.Reader) []*perf.Event {
	var list []*perf.Event
	for _, ev := range r.Events().List() {
		c := *ev
		c.Attr.Flags &^= perf.AttrBuildID
		list = append(list, &c)
	}
	return list
}

type converter struct {
	w     *perfdata.Writer
	s     *analysis.Session
	b     *Binaries
	order perf.Order
	buf   []byte
	aux   int
}

// record writes a record.
func (c *converter) record(it *analysis.Item) error {
	switch rec := it.Other.(type) {
	case *perf.Mmap:
		if p, ok := c.place(rec, rec.PID, rec.Misc); ok {
			moved := *rec
			moved.Filename = p.path
			return c.write(&moved, it.Event)
		}
	case *perf.Mmap2:
		moved := *rec
		p, ok := c.place(rec, rec.PID, rec.Misc)
		if ok {
			moved.Filename = p.path
			moved.Maj, moved.Min, moved.Ino, moved.InoGen = 0, 0, p.number, 0
		}
		// The record's own bit: the kernel may set it for who did not ask.
		if ok || it.Misc&perf.MiscMmapBuildID != 0 {
			moved.Misc &^= perf.MiscMmapBuildID
			return c.write(&moved, it.Event)
		}
	case *perf.Auxtrace: // its data is not at hand
		c.aux++
		return nil
	}
	if inHeader(it.Type) {
		return nil
	}
	return c.w.Write(it.Raw)
}

// inHeader reports whether a record of a stream is in the header of a file.
func inHeader(t perf.RecordType) bool {
	switch t {
	case perf.RecordHeaderAttr, perf.RecordHeaderEventType, perf.RecordHeaderTracingData, perf.RecordHeaderBuildID,
		perf.RecordHeaderFeature:
		return true
	}
	return false
}

// place is where the file of a mapping is, if it was copied or missed.
func (c *converter) place(rec perf.Record, pid int32, misc perf.Misc) (uniquePath, bool) {
	if pid == -1 || misc.CPUMode() == perf.MiscKernel {
		return uniquePath{}, false
	}
	p, ok := c.b.files[c.b.known.Known(rec, c.s.Timeline.Process(pid))]
	return p, ok
}

func (c *converter) write(rec perf.Record, ev *perf.Event) (err error) {
	if c.buf, err = perf.Append(c.buf[:0], rec, c.order, ev); err != nil {
		return err
	}
	return c.w.Write(c.buf)
}

// features are those of the recording, with the build-ids of the new paths.
func (c *converter) features(f *perfdata.Features) *perfdata.Features {
	out := *f
	out.Compressed, out.EventDesc = nil, nil // the Writer's
	out.BuildIDs = append([]perfdata.BuildIDEntry(nil), f.BuildIDs...)
	for _, p := range c.b.sorted() {
		if !p.buildID.IsZero() {
			out.BuildIDs = append(out.BuildIDs,
				perfdata.BuildIDEntry{PID: -1, Misc: perf.MiscUser, ID: p.buildID.Bytes(), Path: p.path})
		}
	}
	return &out
}
