// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// PprofOptions selects what WritePprof writes. Nil is the default.
type PprofOptions struct {
	// Keep selects samples; nil keeps all.
	Keep func(Sample) bool
}

// WritePprof writes p as a gzipped profile.proto. Each event has two sample
// types, its number of samples and its value; for a clock event alone they are
// samples/count and cpu/nanoseconds.
//
// The first mapping is that of Meta.Main or, if that is not set, of the program
// that the threads of most samples are named after, as they are from their exec
// on; if there is none, of the first user-space object. Frames without a name
// keep mapping and address, so that a back end can finish them.
func WritePprof(w io.Writer, p *Profile, o *PprofOptions) error {
	if o == nil {
		o = &PprofOptions{}
	}
	b := newPprofBuilder(p)
	b.header()
	for s := range p.Samples() {
		if o.Keep == nil || o.Keep(s) {
			b.sample(s)
		}
	}
	b.out.Mapping = b.mappings()
	if err := b.out.Write(w); err != nil {
		return fmt.Errorf("write pprof: %w", err)
	}
	return nil
}

// pprofBuilder fills in a pprof profile from a Profile.
type pprofBuilder struct {
	p   *Profile
	out *profile.Profile

	objects   []pprofObject // by the number of the object
	locations map[string]*profile.Location
	functions map[profile.Function]*profile.Function
	labels    []*profile.Sample // by LabelsID: its labels, shared by samples
	counts    []uint64          // by LabelsID: samples written

	key     []byte // scratch
	grouped []bool // by FrameID: the objects know of the frame
}

func newPprofBuilder(p *Profile) *pprofBuilder {
	return &pprofBuilder{
		p: p, out: new(profile.Profile),
		objects:   make([]pprofObject, len(p.frames.objects)),
		locations: make(map[string]*profile.Location),
		functions: make(map[profile.Function]*profile.Function),
		labels:    make([]*profile.Sample, p.NumLabels()),
		counts:    make([]uint64, p.NumLabels()),
		grouped:   make([]bool, p.NumFrames()),
	}
}

// utf8 replaces what is not UTF-8: readers of protocol buffers refuse it.
func utf8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

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

func (b *pprofBuilder) header() {
	m, out := &b.p.Meta, b.out
	for i := range b.p.Events {
		samples, value, unit := b.p.typeNames(i)
		out.SampleType = append(out.SampleType,
			&profile.ValueType{Type: utf8(samples), Unit: "count"},
			&profile.ValueType{Type: utf8(value), Unit: utf8(unit)})
	}
	if len(b.p.Events) > 0 {
		ev := &b.p.Events[0]
		_, value, unit := b.p.typeNames(0)
		out.PeriodType = &profile.ValueType{Type: utf8(value), Unit: utf8(unit)}
		out.Period = int64(ev.Period)
		if ev.Period == 0 && ev.Freq > 0 && unit == "nanoseconds" {
			out.Period = int64(uint64(time.Second) / ev.Freq)
		}
		out.DefaultSampleType = utf8(value)
	}
	if !m.Start.IsZero() {
		out.TimeNanos = m.Start.UnixNano()
	}
	out.DurationNanos = int64(m.Duration)
	if len(m.CmdLine) > 0 {
		out.Comments = append(out.Comments, utf8("command: "+Printable(strings.Join(m.CmdLine, " "))))
	}
	if lost := b.p.TotalLost(""); lost > 0 {
		out.Comments = append(out.Comments, fmt.Sprintf("lost samples: %d", lost))
	}
}

func (b *pprofBuilder) sample(s Sample) {
	b.counts[s.Labels] += s.Count
	values := make([]int64, 2*len(b.p.Events))
	values[2*s.Event], values[2*s.Event+1] = int64(s.Count), int64(s.Value)
	labels := b.labelsOf(s.Labels)
	b.out.Sample = append(b.out.Sample, &profile.Sample{
		Location: b.stack(b.p.Stack(s.Stack)), Value: values,
		// The library may change the maps of a sample, but does not while it writes.
		Label: labels.Label, NumLabel: labels.NumLabel, NumUnit: labels.NumUnit,
	})
}

// labelsOf returns a Sample with nothing but labels. The caller does not change it.
func (b *pprofBuilder) labelsOf(id LabelsID) *profile.Sample {
	if b.labels[id] == nil {
		b.labels[id] = b.makeLabels(b.p.Labels(id))
	}
	return b.labels[id]
}

func (b *pprofBuilder) makeLabels(l *Labels) *profile.Sample {
	s := &profile.Sample{Label: make(map[string][]string), NumLabel: make(map[string][]int64),
		NumUnit: make(map[string][]string)}
	text := map[string]string{
		"container": l.Container, "container_id": l.ContainerID, "pod": l.Pod,
		"namespace": l.Namespace, "image": l.Image, "cgroup": l.Cgroup,
		"node": b.p.Meta.Hostname, "comm": l.Comm,
	}
	for i := range l.Identities.All() {
		text[i.Definition] = i.Text()
	}
	maps.DeleteFunc(text, func(_, value string) bool { return value == "" })
	for key, value := range text {
		s.Label[utf8(key)] = []string{utf8(value)}
	}
	known := b.p.Meta.Fields
	for _, n := range []struct {
		key   string
		value int32
		field Fields
	}{{"pid", l.PID, FieldPID}, {"tid", l.TID, FieldTID}, {"cpu", l.CPU, FieldCPU}} {
		if known.Has(n.field) || known == 0 && n.value != 0 {
			s.NumLabel[n.key], s.NumUnit[n.key] = []int64{int64(n.value)}, []string{n.key}
		}
	}
	return s
}
