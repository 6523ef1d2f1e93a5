// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// flushSize is how much text is gathered before it is written.
const flushSize = 128 << 10

// plan is what is printed of the samples of an event.
type plan struct {
	fields Field
	chain  bool   // frames have lines of their own
	style  uint8  // number of this choice of frame columns
	title  string // the event's name, in its column
	trace  *tracer
}

// printer prints one recording.
type printer struct {
	w     io.Writer
	s     *analysis.Session
	r     *perfdata.Reader
	o     Options
	plans []plan // by perf.Event.Index
	width int    // of event names
	buf   []byte

	frames   frames
	tracing  *tracing
	labels   labelCache
	filtered profile.Fields
	// byIdentity: identities are selected, too.
	byIdentity bool
	tally      *Tally
}

// ErrNoField says that the recording has no values for a column that was asked
// for.
var ErrNoField = errors.New("not in the recording")

// Write prints all samples of the recording that r reads, which s analyses.
// Nothing may have been read from either. What was odd is told by s.Warnings
// afterwards.
func Write(w io.Writer, r *perfdata.Reader, s *analysis.Session, o *Options) error {
	p := &printer{w: w, s: s, r: r}
	if o != nil {
		p.o = *o
	}
	if p.tally = p.o.Tally; p.tally == nil {
		p.tally = new(Tally)
	}
	p.frames.init(p)
	defer func() { p.tally.Nameless = p.frames.nameless.byPath() }()
	p.labels.init(s, &p.o)
	p.filtered, p.byIdentity = p.o.Filter.Fields(), len(p.o.Filter.Identities) > 0
	if err := p.check(r.Events().List()); err != nil {
		return err
	}
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			s.KeepLines()
			return p.flush()
		}
		if err != nil {
			return errors.Join(err, p.flush())
		}
		if it.Sample != nil {
			p.samples(it)
		} else if p.o.Show != 0 {
			p.sideband(it)
		}
		if len(p.buf) >= flushSize {
			if err := p.flush(); err != nil {
				return err
			}
		}
	}
}

func (p *printer) flush() error {
	_, err := p.w.Write(p.buf)
	p.buf = p.buf[:0]
	if err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// check makes the plans, and fails if a column that the user named is empty
// for all events.
func (p *printer) check(list []*perf.Event) error {
	var have, want Field
	for _, ev := range list {
		if isDummy(&ev.Attr) {
			continue
		}
		f, named := p.o.Columns.of(&ev.Attr)
		want |= named
		have |= available(f, ev.Attr.SampleType)
	}
	if len(list) > 0 && want&^have != 0 {
		return fmt.Errorf("field %v: %w: its events did not record it", want&^have, ErrNoField)
	}
	p.addPlans(list)
	return nil
}

// isDummy reports whether the event is there for other records than samples.
func isDummy(a *perf.Attr) bool {
	return a.Type == perf.TypeSoftware && a.Config == perf.SWDummy
}

// addPlans makes the plans of events that are new.
func (p *printer) addPlans(list []*perf.Event) {
	for _, ev := range list {
		p.width = max(p.width, len(profile.Printable(ev.Name)))
	}
	p.plans = p.plans[:0]
	for _, ev := range list {
		f, _ := p.o.Columns.of(&ev.Attr)
		f = available(f, ev.Attr.SampleType)
		pl := plan{fields: f}
		pl.chain = f&IP != 0 && ev.Attr.SampleType&perf.SampleCallchain != 0 && !p.o.HideCallGraph
		pl.style = p.frames.style(f & frame)
		if dumped := ev.Attr.SampleType&perf.SampleStackUser != 0; pl.chain && !p.o.NoInline && (p.o.Inline || dumped) {
			pl.style |= inlineStyle
		}
		pl.title = string(append(appendText(nil, ev.Name, p.width), ": "...))
		if f&Trace != 0 {
			pl.trace = p.newTracer(ev)
		}
		p.plans = append(p.plans, pl)
	}
}

// plan is the plan of ev; in a stream, events may be new.
func (p *printer) plan(ev *perf.Event) *plan {
	if ev.Index >= len(p.plans) {
		p.addPlans(p.r.Events().List())
	}
	return &p.plans[ev.Index]
}

// samples prints a sample, once for each event that it counts for.
func (p *printer) samples(it *analysis.Item) {
	leader, period := it.Event, it.Sample.Period
	p.s.GroupCounts(leader, it.Sample, func(ev *perf.Event, moved uint64) {
		it.Event, it.Sample.Period = ev, moved
		p.sample(it)
	})
	it.Event, it.Sample.Period = leader, period
}

// sample prints a sample.
func (p *printer) sample(it *analysis.Item) {
	pl := p.plan(it.Event)
	s := it.Sample
	p.tally.Samples++
	if !p.selected(it, s.PID, s.TID, s.CPU, it.Time) {
		return
	}
	p.tally.Printed++
	if pl.fields == 0 {
		return
	}
	th := threadID{pid: s.PID, tid: s.TID, cpu: s.CPU, time: s.Time, misc: s.Misc, typ: perf.RecordSample}
	if it.Thread != nil {
		th.comm = it.Thread.Comm
	}
	dst := p.head(p.buf, pl, &th)
	dst = p.values(dst, pl, it)
	if pl.fields&IP != 0 {
		if pl.chain {
			dst = p.chain(append(dst, '\n'), pl, it)
		} else {
			dst = p.leaf(dst, pl, it)
		}
	}
	if pl.fields&(PhysAddr|DataPageSize|CodePageSize) != 0 {
		dst = tailValues(dst, pl.fields, s)
	}
	p.buf = append(dst, '\n')
}

// threadID is the start of a line.
type threadID struct {
	comm     string
	pid, tid int32
	cpu      uint32
	time     uint64
	misc     perf.Misc
	typ      perf.RecordType
}

// head prints what all lines begin with.
func (p *printer) head(dst []byte, pl *plan, t *threadID) []byte {
	f := pl.fields
	if f&Comm != 0 {
		width := 16
		if pl.chain {
			width = 0
		}
		dst = append(appendText(dst, t.comm, width), ' ')
	}
	switch f & (PID | TID) {
	case PID | TID:
		dst = append(appendInt(dst, t.pid, 5), '/')
		dst = append(appendInt(dst, t.tid, -5), ' ')
	case PID:
		dst = append(appendInt(dst, t.pid, 5), ' ')
	case TID:
		dst = append(appendInt(dst, t.tid, 5), ' ')
	}
	if f&CPU != 0 {
		dst = appendUint(append(dst, '['), uint64(t.cpu), 3, '0')
		dst = append(dst, "] "...)
	}
	if f&Misc != 0 {
		n := len(dst)
		dst = appendMisc(dst, t.misc, t.typ)
		dst = append(spaces(dst, 5-(len(dst)-n)), ' ')
	}
	if f&Time != 0 {
		dst = p.appendTime(dst, t.time)
	}
	return dst
}

func (p *printer) appendTime(dst []byte, t uint64) []byte {
	dst = append(appendUint(dst, t/1_000_000_000, 5, ' '), '.')
	if p.o.Nanoseconds {
		dst = appendUint(dst, t%1_000_000_000, 9, '0')
	} else {
		dst = appendUint(dst, t%1_000_000_000/1000, 6, '0')
	}
	return append(dst, ": "...)
}

// appendMisc prints the misc field as letters.
func appendMisc(dst []byte, m perf.Misc, t perf.RecordType) []byte {
	switch m.CPUMode() {
	case perf.MiscKernel:
		dst = append(dst, 'K')
	case perf.MiscUser:
		dst = append(dst, 'U')
	case perf.MiscHypervisor:
		dst = append(dst, 'H')
	case perf.MiscGuestKernel:
		dst = append(dst, 'G')
	case perf.MiscGuestUser:
		dst = append(dst, 'g')
	}
	if m&perf.MiscMmapData == 0 {
		return dst
	}
	switch t {
	case perf.RecordMmap, perf.RecordMmap2:
		dst = append(dst, 'M')
	case perf.RecordComm:
		dst = append(dst, 'E')
	case perf.RecordSwitch, perf.RecordSwitchCPUWide:
		dst = append(dst, 'S')
		if m&perf.MiscSwitchOutPreempt != 0 {
			dst = append(dst, 'p')
		}
	}
	return dst
}

// values prints what stands between the head of a line and the address.
func (p *printer) values(dst []byte, pl *plan, it *analysis.Item) []byte {
	f, s := pl.fields, it.Sample
	if f&Period != 0 {
		dst = append(appendUint(dst, s.Period, 10, ' '), ' ')
	}
	if f&Event != 0 {
		dst = append(dst, pl.title...)
	}
	if f&labels != 0 {
		dst = p.labels.append(dst, f, it)
	}
	if pl.trace != nil {
		dst = pl.trace.append(dst, s.Raw, p.r.Order())
	}
	if f&Addr != 0 {
		if s.Addr>>60 != 0 && len(dst) > 0 && dst[len(dst)-1] != ' ' {
			dst = append(dst, ' ') // perf lets the two run together
		}
		dst = appendHex(dst, s.Addr, 16)
	}
	if f&Weight != 0 {
		dst = appendUint(dst, s.Weight, 16, ' ')
	}
	return dst
}

// tailValues prints what stands behind the address.
func tailValues(dst []byte, f Field, s *perf.Sample) []byte {
	if f&PhysAddr != 0 {
		dst = appendHex(dst, s.PhysAddr, 16)
	}
	if f&DataPageSize != 0 {
		dst = appendPageSize(dst, s.DataPage)
	}
	if f&CodePageSize != 0 {
		dst = appendPageSize(dst, s.CodePage)
	}
	return dst
}

func appendPageSize(dst []byte, n uint64) []byte {
	for _, u := range []struct {
		shift uint
		unit  byte
	}{{30, 'G'}, {20, 'M'}, {10, 'K'}} {
		if n>>u.shift != 0 {
			return append(appendUint(append(dst, ' '), n>>u.shift, 0, ' '), u.unit)
		}
	}
	if n == 0 {
		return append(dst, " N/A"...)
	}
	return append(appendUint(append(dst, ' '), n, 0, ' '), 'B')
}

// selected reports whether the filter takes a record.
func (p *printer) selected(it *analysis.Item, pid, tid int32, cpu uint32, time uint64) bool {
	if !p.o.Span.has(time) {
		return false
	}
	if p.filtered == 0 && !p.byIdentity {
		return true
	}
	l := profile.Labels{PID: pid, TID: tid, CPU: int32(cpu)}
	if it.Thread != nil {
		l.Comm = it.Thread.Comm
	}
	if it.Sample != nil && (p.byIdentity || p.filtered&labelFields != 0) {
		p.labels.fill(&l, it)
	}
	return p.o.Filter.Selects(&l)
}

// labelFields are the labels of the container.
const labelFields = profile.FieldContainer | profile.FieldPod | profile.FieldNamespace | profile.FieldImage |
	profile.FieldCgroup
