// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// The tracing data of a perf.data file is the start of a trace.dat file,
// version 6 of trace-cmd.dat(5); perf calls its variant 0.6. With it a reader
// on another machine can print the fields of tracepoint samples.
const (
	tracingMagic   = "\x17\x08\x44tracing"
	tracingVersion = "0.6"
)

// maxTraceFile bounds one file of tracefs; printk_formats is the largest.
const maxTraceFile = 64 << 20

// TracingData describes list for readers of the file: the TRACING_DATA
// feature, or the body behind a TRACING_DATA record.
func (t *Tracefs) TracingData(list []*Tracepoint) ([]byte, error) {
	list = slices.Clone(list)
	slices.SortFunc(list, compareTracepoints)
	list = slices.CompactFunc(list, func(a, b *Tracepoint) bool { return *a == *b })
	w := &traceWriter{fs: t.FS}
	w.header()
	w.section64("header_page", "events/header_page")
	w.section64("header_event", "events/header_event")
	w.formats(list, internalSystem)
	w.systems(list)
	// Symbols: readers have better ones than a copy of all of kallsyms.
	w.u32(0)
	w.file32("printk_formats")
	w.file64("saved_cmdlines")
	if w.err != nil {
		return nil, fmt.Errorf("describe tracepoints: %w", w.err)
	}
	return w.b, nil
}

func compareTracepoints(a, b *Tracepoint) int {
	switch {
	case a.String() < b.String():
		return -1
	case a.String() > b.String():
		return 1
	}
	return 0
}

// traceWriter appends to b until the first error.
type traceWriter struct {
	fs  fs.FS
	b   []byte
	err error
}

func (w *traceWriter) header() {
	w.b = append(w.b, tracingMagic...)
	w.str(tracingVersion)
	w.b = append(w.b, 0, 8) // little endian, sizeof(long)
	w.u32(uint32(sys.PageSize()))
}

func (w *traceWriter) str(s string) { w.b = append(append(w.b, s...), 0) }
func (w *traceWriter) u32(v uint32) { w.b = nativeOrder.AppendUint32(w.b, v) }
func (w *traceWriter) u64(v uint64) { w.b = nativeOrder.AppendUint64(w.b, v) }

// section64 is a name, a size and the file.
func (w *traceWriter) section64(name, file string) {
	w.str(name)
	w.file64(file)
}

func (w *traceWriter) file64(name string) {
	b := w.read(name)
	w.u64(uint64(len(b)))
	w.b = append(w.b, b...)
}

// file32 is a size of four bytes and the file. A tracefs without the file has
// an empty one.
func (w *traceWriter) file32(name string) {
	b := w.read(name)
	w.u32(uint32(len(b)))
	w.b = append(w.b, b...)
}

// optional: files that a restricted tracefs may lack; without them a reader
// misses names, not fields.
func optional(name string) bool { return name == "printk_formats" || name == "saved_cmdlines" }

func (w *traceWriter) read(name string) []byte {
	if w.err != nil {
		return nil
	}
	f, err := w.fs.Open(name)
	if err != nil {
		if !optional(name) || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			w.err = err
		}
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTraceFile+1))
	if err == nil && len(b) > maxTraceFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxTraceFile)
	}
	if err != nil {
		w.err = err
		return nil
	}
	return b
}

// formats are the tracepoints of one system: a count, then size and format.
func (w *traceWriter) formats(list []*Tracepoint, system string) {
	n := uint32(0)
	for _, tp := range list {
		if tp.System == system {
			n++
		}
	}
	w.u32(n)
	for _, tp := range list {
		switch {
		case tp.System != system:
		case tp.Format != "":
			w.u64(uint64(len(tp.Format)))
			w.b = append(w.b, tp.Format...)
		default:
			w.file64(path.Join("events", tp.System, tp.Name, "format"))
		}
	}
}

// systems are all others, a name and formats each. list is sorted by system.
func (w *traceWriter) systems(list []*Tracepoint) {
	var names []string
	for _, tp := range list {
		if tp.System != internalSystem && !slices.Contains(names, tp.System) {
			names = append(names, tp.System)
		}
	}
	w.u32(uint32(len(names)))
	for _, name := range names {
		w.str(name)
		w.formats(list, name)
	}
}

// TracingData is Tracefs.TracingData of the tracepoints among groups, and of more, nil if
// there is none.
func (p *PMUs) TracingData(groups []Group, more ...*Tracepoint) ([]byte, error) {
	list := slices.Clone(more)
	for _, g := range groups {
		for _, s := range g.Events {
			if s.Tracepoint != nil {
				list = append(list, s.Tracepoint)
			}
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	t, err := p.Tracefs()
	if err != nil {
		return nil, err
	}
	return t.TracingData(list)
}
