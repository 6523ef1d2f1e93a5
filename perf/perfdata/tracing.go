// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"fmt"

	"github.com/gantry-tools/gantry/perf"
)

// TracingData is the TRACING_DATA section: the formats of the tracepoints that
// were recorded, and the tables that turn them into text. perf takes its layout
// from trace.dat (see the manual page trace-cmd.dat.v6).
type TracingData struct {
	Version  string // "0.6" if empty
	Order    perf.Order
	LongSize uint8 // 8 if 0
	PageSize uint32
	// HeaderPage and HeaderEvent are the files of the same names in
	// tracefs/events.
	HeaderPage, HeaderEvent []byte
	// Ftrace are format files of the events in tracefs/events/ftrace.
	Ftrace [][]byte
	// Systems hold the format files of the recorded tracepoints.
	Systems []TracingSystem
	// Kallsyms is a list of kernel symbols; perf leaves it empty.
	Kallsyms []byte
	// Printk is tracefs/printk_formats, Cmdlines tracefs/saved_cmdlines.
	Printk, Cmdlines []byte

	byID map[uint64]*EventFormat
}

// A TracingSystem is a directory of tracefs/events, and format files in it.
type TracingSystem struct {
	Name    string
	Formats [][]byte
}

const tracingMagic = "\x17\x08\x44tracing"

// defaultPageSize is written when the page size is not known. Nothing in
// perf.data depends on it.
const defaultPageSize = 4096

// ParseTracingData reads a TRACING_DATA section. Formats that make no sense are
// left out of what Event finds. The value shares memory with b.
func ParseTracingData(b []byte) (*TracingData, error) {
	p := &parser{b: b}
	if string(p.bytes(len(tracingMagic))) != tracingMagic {
		return nil, errAt(0, "parse tracing data", fmt.Errorf("%w: the magic is missing", ErrFormat))
	}
	t := &TracingData{Version: p.cstringNext()}
	switch o := p.u8(); {
	case o == 1:
		t.Order = perf.BigEndian
	case o > 1:
		p.fail(fmt.Errorf("%w: byte order %d", ErrFormat, o))
	}
	p.order = t.Order
	t.LongSize = p.u8()
	if t.LongSize != 4 && t.LongSize != 8 {
		p.fail(fmt.Errorf("%w: a long of %d bytes", ErrFormat, t.LongSize))
	}
	t.PageSize = p.u32()
	t.HeaderPage = p.named("header_page")
	t.HeaderEvent = p.named("header_event")
	t.Ftrace = list(p, 8, p.sized)
	t.Systems = list(p, 5, func() TracingSystem {
		return TracingSystem{Name: p.cstringNext(), Formats: list(p, 8, p.sized)}
	})
	t.Kallsyms = p.bytes(int(p.u32()))
	t.Printk = p.bytes(int(p.u32()))
	if t.Version >= "0.6" && p.err == nil {
		t.Cmdlines = p.sized()
	}
	if p.err != nil {
		return nil, errAt(p.offset(), "parse tracing data", p.err)
	}
	t.index()
	return t, nil
}

// sized reads a file: its size in 8 bytes, its text.
func (p *parser) sized() []byte {
	n := p.u64()
	if p.err == nil && n > uint64(p.left()) {
		p.fail(fmt.Errorf("%w: a file of %d bytes, %d left", ErrTruncated, n, p.left()))
		return nil
	}
	return p.bytes(int(n))
}

// named reads a file behind its name.
func (p *parser) named(name string) []byte {
	if got := p.cstringNext(); p.err == nil && got != name {
		p.fail(fmt.Errorf("%w: %s expected", ErrFormat, name))
	}
	return p.sized()
}

// index parses the formats, so that Event finds them.
func (t *TracingData) index() {
	t.byID = make(map[uint64]*EventFormat)
	add := func(system string, formats [][]byte) {
		for _, text := range formats {
			if f, err := ParseEventFormat(text); err == nil {
				f.System = system
				t.byID[f.ID] = f
			}
		}
	}
	add("ftrace", t.Ftrace)
	for _, s := range t.Systems {
		add(s.Name, s.Formats)
	}
}

// Event returns the format of the tracepoint whose id is Attr.Config, nil if
// it is not there.
func (t *TracingData) Event(id uint64) *EventFormat { return t.byID[id] }

// Append encodes t as a TRACING_DATA section.
func (t *TracingData) Append(dst []byte) []byte {
	o, version, long, page := t.Order, t.Version, t.LongSize, t.PageSize
	if version == "" {
		version = "0.6"
	}
	if long == 0 {
		long = 8
	}
	if page == 0 {
		page = defaultPageSize
	}
	sized := func(b []byte) { dst = append(o.AppendUint64(dst, uint64(len(b))), b...) }
	files := func(l [][]byte) {
		dst = o.AppendUint32(dst, uint32(len(l)))
		for _, b := range l {
			sized(b)
		}
	}
	dst = append(dst, tracingMagic...)
	dst = append(append(dst, version...), 0, byte(o), long)
	dst = o.AppendUint32(dst, page)
	dst = append(dst, "header_page\x00"...)
	sized(t.HeaderPage)
	dst = append(dst, "header_event\x00"...)
	sized(t.HeaderEvent)
	files(t.Ftrace)
	dst = o.AppendUint32(dst, uint32(len(t.Systems)))
	for _, s := range t.Systems {
		dst = append(append(dst, s.Name...), 0)
		files(s.Formats)
	}
	dst = append(o.AppendUint32(dst, uint32(len(t.Kallsyms))), t.Kallsyms...)
	dst = append(o.AppendUint32(dst, uint32(len(t.Printk))), t.Printk...)
	if version >= "0.6" {
		sized(t.Cmdlines)
	}
	return dst
}
