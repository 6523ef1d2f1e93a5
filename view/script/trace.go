// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
	"github.com/gantry-tools/gantry/perf/printfmt"
)

// tracing is what the recording tells about its tracepoints.
type tracing struct {
	size   int // of the section
	data   *perfdata.TracingData
	printk map[uint64]string
}

// tracer prints the fields of a tracepoint.
type tracer struct {
	event  *perfdata.EventFormat // nil if the recording does not have it
	format *printfmt.Format      // nil if it cannot be interpreted
}

// tracing parses the section, again if a stream brought another.
func (p *printer) tracingData() *tracing {
	section := p.r.Features().TracingData
	if p.tracing != nil && p.tracing.size == len(section) {
		return p.tracing
	}
	p.tracing = &tracing{size: len(section), data: &perfdata.TracingData{}}
	if t, err := perfdata.ParseTracingData(section); err == nil {
		p.tracing.data = t
		p.tracing.printk = parsePrintk(t.Printk)
	}
	return p.tracing
}

func (p *printer) newTracer(ev *perf.Event) *tracer {
	t := p.tracingData()
	tr := &tracer{event: t.data.Event(ev.Attr.Config)}
	if tr.event == nil {
		return tr
	}
	f, err := printfmt.Compile(tr.event, &printfmt.Options{
		LongSize: int(t.data.LongSize),
		Symbol:   p.kernelSymbol,
		String:   func(addr uint64) (string, bool) { s, ok := t.printk[addr]; return s, ok },
	})
	if err == nil {
		tr.format = f
	}
	return tr
}

func (p *printer) kernelSymbol(addr uint64) (string, uint64, bool) {
	loc := p.s.Locate(nil, addr, true)
	return loc.Name, loc.Offset, loc.Name != ""
}

// append prints the raw data of a sample: as the kernel would, else its
// fields, else its bytes.
func (t *tracer) append(dst, raw []byte, o perf.Order) []byte {
	start := len(dst)
	switch {
	case t.format != nil:
		dst = t.format.Append(dst, raw, o)
	case t.event != nil:
		dst = t.event.AppendFields(dst, raw, o)
	default:
		dst = hex.AppendEncode(append(dst, "raw="...), raw)
	}
	return cleanFrom(dst, start)
}

// parsePrintk reads a printk_formats file: 0xffffffff82000000 : "text"
func parsePrintk(text []byte) map[uint64]string {
	m := make(map[uint64]string)
	for line := range bytes.Lines(text) {
		addr, quoted, found := strings.Cut(string(line), " : ")
		if !found {
			continue
		}
		v, err1 := strconv.ParseUint(addr, 0, 64)
		s, err2 := strconv.Unquote(strings.TrimSpace(quoted))
		if err1 == nil && err2 == nil {
			m[v] = s
		}
	}
	return m
}
