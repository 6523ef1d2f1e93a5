// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"time"
)

// PprofOptions selects what WritePprof writes. Nil is the default.
type PprofOptions struct {
	// Keep selects samples; nil keeps all.
	Keep func(Sample) bool
}

// Field numbers of pprof's profile.proto.
const (
	pprofSampleType, pprofSample, pprofMapping, pprofLocation = 1, 2, 3, 4
	pprofFunctionField, pprofString                           = 5, 6
	pprofTime, pprofDuration, pprofPeriodType, pprofPeriod    = 9, 10, 11, 12
	pprofComment, pprofDefaultType                            = 13, 14
)

// WritePprof writes p as a gzipped profile.proto, in one pass and with memory
// for the tables only. Each event has two sample types, its number of samples
// and its value; for a clock event alone they are samples/count and
// cpu/nanoseconds.
//
// The first mapping is that of Meta.Main or, if that is not set, of the program
// that the threads of most samples are named after, as they are from their exec
// on; if there is none, of the first user-space object. Frames without a name keep mapping and address, so that a
// back end can finish them.
func WritePprof(w io.Writer, p *Profile, o *PprofOptions) error {
	if o == nil {
		o = &PprofOptions{}
	}
	zip := gzip.NewWriter(w)
	e := newPprofEncoder(p, zip)
	e.header()
	for s := range p.Samples() {
		if o.Keep == nil || o.Keep(s) {
			e.sample(s)
		}
	}
	e.tables()
	if e.err != nil {
		return fmt.Errorf("write pprof: %w", e.err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}

type pprofEncoder struct {
	p   *Profile
	w   io.Writer
	err error

	strings   []string
	stringIDs map[string]uint64

	functionList []pprofFunction
	functionIDs  map[pprofFunction]uint64

	locations *pprofLocations
	labels    []message // by LabelsID, encoded once
	counts    []uint64  // by LabelsID, samples written

	msg, inner, scratch message
	ids, values         []uint64
}

func newPprofEncoder(p *Profile, w io.Writer) *pprofEncoder {
	e := &pprofEncoder{
		p: p, w: w, strings: []string{""}, stringIDs: map[string]uint64{"": 0},
		functionIDs: map[pprofFunction]uint64{},
		locations:   newPprofLocations(p),
		labels:      make([]message, p.NumLabels()),
		counts:      make([]uint64, p.NumLabels()),
		values:      make([]uint64, 2*len(p.Events)),
	}
	return e
}

func (e *pprofEncoder) str(s string) uint64 {
	id, ok := e.stringIDs[s]
	if !ok {
		// A protocol buffer string is UTF-8; readers refuse all else.
		clean := strings.ToValidUTF8(s, "\uFFFD")
		id, ok = e.stringIDs[clean]
		if !ok {
			id = uint64(len(e.strings))
			e.strings = append(e.strings, clean)
			e.stringIDs[clean] = id
		}
		e.stringIDs[s] = id
	}
	return id
}

// emit writes e.msg as a field of the profile.
func (e *pprofEncoder) emit(field int) {
	e.scratch.reset()
	e.scratch.bytes(field, e.msg)
	e.write(e.scratch)
}

func (e *pprofEncoder) write(b []byte) {
	if e.err == nil {
		_, e.err = e.w.Write(b)
	}
}

func (e *pprofEncoder) valueType(field int, name, unit string) {
	e.msg.reset()
	e.msg.uint(1, e.str(name))
	e.msg.uint(2, e.str(unit))
	e.emit(field)
}

func (e *pprofEncoder) scalar(field int, v uint64) {
	e.msg.reset()
	e.msg.uint(field, v)
	e.write(e.msg)
}

// typeNames are the sample types of an event.
func (p *Profile) typeNames(i int) (samples, value, unit string) {
	ev := &p.Events[i]
	unit = ev.Unit
	if unit == "" {
		unit = "count"
	}
	switch {
	case len(p.Events) > 1:
		return ev.Name + "_samples", ev.Name, unit
	case unit == "nanoseconds":
		return "samples", "cpu", unit
	}
	return "samples", ev.Name, unit
}

func (e *pprofEncoder) header() {
	m := &e.p.Meta
	for i := range e.p.Events {
		samples, value, unit := e.p.typeNames(i)
		e.valueType(pprofSampleType, samples, "count")
		e.valueType(pprofSampleType, value, unit)
	}
	if len(e.p.Events) > 0 {
		ev := &e.p.Events[0]
		_, value, unit := e.p.typeNames(0)
		e.valueType(pprofPeriodType, value, unit)
		period := ev.Period
		if period == 0 && ev.Freq > 0 && unit == "nanoseconds" {
			period = uint64(time.Second) / ev.Freq
		}
		e.scalar(pprofPeriod, period)
		e.scalar(pprofDefaultType, e.str(value))
	}
	if !m.Start.IsZero() {
		e.scalar(pprofTime, uint64(m.Start.UnixNano()))
	}
	e.scalar(pprofDuration, uint64(m.Duration))
	if len(m.CmdLine) > 0 {
		e.scalar(pprofComment, e.str("command: "+Printable(strings.Join(m.CmdLine, " "))))
	}
	if lost := e.p.TotalLost(""); lost > 0 {
		e.scalar(pprofComment, e.str(fmt.Sprintf("lost samples: %d", lost)))
	}
}

func (e *pprofEncoder) sample(s Sample) {
	e.ids = e.locations.of(e.ids[:0], e.p.Stack(s.Stack))
	clear(e.values)
	e.counts[s.Labels] += s.Count
	e.values[2*s.Event], e.values[2*s.Event+1] = s.Count, s.Value
	e.msg.reset()
	e.msg.packed(1, &e.inner, e.ids)
	e.msg.packed(2, &e.inner, e.values)
	e.msg = append(e.msg, e.labelsOf(s.Labels)...)
	e.emit(pprofSample)
}

func (e *pprofEncoder) labelsOf(id LabelsID) message {
	if e.labels[id] == nil {
		e.labels[id] = e.encodeLabels(e.p.Labels(id))
	}
	return e.labels[id]
}

func (e *pprofEncoder) encodeLabels(l *Labels) message {
	m := message{} // not nil: known, even when empty
	label := func(key, value string) {
		if value != "" {
			e.inner.reset()
			e.inner.uint(1, e.str(key))
			e.inner.uint(2, e.str(value))
			m.bytes(3, e.inner)
		}
	}
	for _, t := range []struct{ key, value string }{
		{"container", l.Container}, {"container_id", l.ContainerID}, {"pod", l.Pod},
		{"namespace", l.Namespace}, {"image", l.Image}, {"cgroup", l.Cgroup},
		{"node", e.p.Meta.Hostname}, {"comm", l.Comm},
	} {
		label(t.key, t.value)
	}
	for i := range l.Identities.All() {
		label(i.Definition, i.Text())
	}
	known := e.p.Meta.Fields
	for _, n := range []struct {
		key   string
		value int32
		field Fields
	}{{"pid", l.PID, FieldPID}, {"tid", l.TID, FieldTID}, {"cpu", l.CPU, FieldCPU}} {
		if known.Has(n.field) || known == 0 && n.value != 0 {
			e.inner.reset()
			e.inner.uint(1, e.str(n.key))
			e.inner.uint(3, uint64(int64(n.value)))
			e.inner.uint(4, e.str(n.key))
			m.bytes(3, e.inner)
		}
	}
	return m
}
