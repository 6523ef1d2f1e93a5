// SPDX-License-Identifier: Apache-2.0

package perftext

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// Recording is what a text says.
type Recording struct {
	Order perf.Order
	// Pipe says that the recording is a stream.
	Pipe     bool
	Features perfdata.Features
	Events   []*perf.Event
	Records  []Record
}

// Record is a record and the event it belongs to, nil if there is none.
type Record struct {
	perf.Record
	Event *perf.Event
}

// maxLine bounds a line: the largest are features.
const maxLine = 64 << 20

// Parse reads a text. Its errors are *[Error], unless r fails.
func Parse(r io.Reader) (*Recording, error) {
	p := parser{rec: new(Recording)}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		p.line++
		if err := p.parseLine(sc.Text()); err != nil {
			return nil, p.position(err)
		}
	}
	if err := sc.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			p.line++
			return nil, p.position(syntaxError(1, "a line of more than %d bytes", maxLine))
		}
		return nil, fmt.Errorf("read text: %w", err)
	}
	if !p.started {
		return nil, p.position(syntaxError(1, "no line that starts with perfdata"))
	}
	p.tracing.finish(&p.rec.Features)
	return p.rec, nil
}

type parser struct {
	rec     *Recording
	events  perf.Events
	tracing tracing
	line    int
	started bool
}

func (p *parser) position(err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Line = max(p.line, 1)
	}
	return err
}

func (p *parser) parseLine(line string) error {
	toks, err := scan(line)
	if err != nil || len(toks) == 0 {
		return err
	}
	word := toks[0]
	f := &fields{parse: true, toks: toks[1:], end: len(line) + 1}
	switch {
	case word.key != "" || word.quoted:
		return syntaxError(word.col, "a line starts with perfdata, feature, event or the type of a record")
	case !p.started:
		if word.val != "perfdata" {
			return syntaxError(word.col, "the first line starts with perfdata, not %q", word.val)
		}
		p.started = true
		return p.header(f)
	case word.val == "feature":
		return p.feature(f)
	case word.val == "event":
		ev := new(perf.Event)
		f.event(ev)
		ev.Layout = perf.NewLayout(&ev.Attr)
		p.events.Add(ev)
		p.rec.Events = p.events.List()
		return f.done()
	}
	return p.record(word, f)
}

// header reads what follows perfdata: the byte order, and pipe.
func (p *parser) header(f *fields) error {
	for i := range f.toks {
		t := &f.toks[i]
		if t.key != "" || t.quoted {
			continue
		}
		t.used = true
		switch {
		case i == 0 && t.val == "little":
		case i == 0 && t.val == "big":
			p.rec.Order = perf.BigEndian
		case i == 1 && t.val == "pipe":
			p.rec.Pipe = true
		default:
			t.used = false
		}
	}
	if len(f.toks) == 0 {
		return syntaxError(f.end, "little or big is missing")
	}
	return f.done()
}

// record reads a record, of which word is the type.
func (p *parser) record(word token, f *fields) error {
	typ, ok := perf.RecordTypeOf(word.val)
	if !ok {
		return syntaxError(word.col, "no record is called %q", word.val)
	}
	rec := perf.New(typ)
	if f.has("bytes") {
		rec = &perf.Unknown{Type: typ}
	}
	ev, err := p.event(f, rec)
	if err != nil {
		return err
	}
	var m perf.Misc
	f.misc(typ, &m)
	perf.SetMisc(rec, m)
	f.record(rec, ev)
	p.rec.Records = append(p.rec.Records, Record{rec, ev})
	return f.done()
}

// event finds the event of a record.
func (p *parser) event(f *fields, rec perf.Record) (*perf.Event, error) {
	if !rec.RecordType().Kernel() || isUnknown(rec) || len(p.rec.Events) == 0 {
		return nil, nil
	}
	n := uint32(0)
	num(f, "ev", &n)
	if f.err != nil {
		return nil, f.err
	}
	if int64(n) >= int64(len(p.rec.Events)) {
		return nil, syntaxError(f.end, "ev=%d, but there are %d events so far", n, len(p.rec.Events))
	}
	return p.rec.Events[n], nil
}

func isUnknown(rec perf.Record) bool {
	_, ok := rec.(*perf.Unknown)
	return ok
}

// WriteText writes the text that Parse reads.
func (r *Recording) WriteText(w io.Writer) error {
	p := printer{w: bufio.NewWriter(w)}
	p.header(r.Order, r.Pipe)
	p.features(&r.Features)
	p.newEvents(r.Events)
	for i := range r.Records {
		p.record(r.Records[i].Record, r.Records[i].Event)
	}
	return p.finish()
}

// Write prints what is left in r, in the order of the file.
func Write(w io.Writer, r *perfdata.Reader) error {
	p := printer{w: bufio.NewWriterSize(w, 64<<10)}
	p.header(r.Order(), r.Pipe())
	if !r.Pipe() {
		p.features(r.Features())
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.w.Flush()
			return err
		}
		p.newEvents(r.Events().List())
		p.raw(rec, r.Order())
	}
	p.newEvents(r.Events().List())
	if r.Pipe() {
		p.features(r.Features())
	}
	return p.finish()
}

// printer prints line by line. The first error of w sticks in it.
type printer struct {
	w      *bufio.Writer
	f      fields
	events int // printed so far
}

func (p *printer) finish() error {
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("write text: %w", err)
	}
	return nil
}

// start begins a line.
func (p *printer) start(word string) *fields {
	p.f = fields{b: append(p.f.b[:0], word...)}
	return &p.f
}

func (p *printer) end() {
	p.f.b = append(p.f.b, '\n')
	p.w.Write(p.f.b)
}

func (p *printer) header(o perf.Order, pipe bool) {
	f := p.start("perfdata little")
	if o == perf.BigEndian {
		f = p.start("perfdata big")
	}
	if pipe {
		f.b = append(f.b, " pipe"...)
	}
	p.end()
}

// newEvents prints the events that were not there before.
func (p *printer) newEvents(list []*perf.Event) {
	for _, ev := range list[p.events:] {
		p.start("event").event(ev)
		p.end()
	}
	p.events = len(list)
}

// raw prints a record out of a file. Those that the header lines already say
// are left out.
func (p *printer) raw(rec *perfdata.Record, o perf.Order) {
	switch rec.Type {
	case perf.RecordHeaderAttr, perf.RecordHeaderFeature, perf.RecordHeaderTracingData, perf.RecordHeaderBuildID:
		return
	}
	if rec.Event != nil || !rec.Type.Kernel() {
		if v, err := perf.Decode(rec.Raw, o, rec.Event); err == nil {
			p.record(v, rec.Event)
			return
		}
	}
	u := &perf.Unknown{Type: rec.Type, Data: rec.Raw[perf.HeaderSize:]}
	u.Misc = rec.Misc
	p.record(u, nil)
}

func (p *printer) record(rec perf.Record, ev *perf.Event) {
	typ := rec.RecordType()
	f := p.start(typ.String())
	if isUnknown(rec) {
		ev = nil
	}
	if ev != nil && ev.Index > 0 {
		f.key("ev")
		f.b = strconv.AppendInt(f.b, int64(ev.Index), 10)
	}
	m := perf.MiscOf(rec)
	f.misc(typ, &m)
	f.record(rec, ev)
	p.end()
}
