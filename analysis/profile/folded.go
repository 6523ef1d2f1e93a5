// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"
)

// FoldedOptions selects what WriteFolded writes. Nil is the default.
type FoldedOptions struct {
	// Roots names the levels outside of the stack. Nil is the container,
	// where there is one, and the command.
	Roots func(*Labels) []string
	// Keep selects samples; nil keeps all.
	Keep func(Sample) bool
	// Values writes values in the unit of the event in place of counts.
	Values bool
	// PlainKernel leaves out the _[k] that marks kernel functions.
	PlainKernel bool
}

// WriteFolded writes one line per stack, as stackcollapse-perf.pl does:
//
//	web;nginx;main;handle;read;vfs_read_[k] 42
//
// outermost first, with the number of samples, sorted by name. Kernel
// functions are marked _[k] and inlined calls _[i], which flame graph tools turn
// into colours. A
// function without a name is shown as its object: [libc.so.6]. A semicolon in
// a name becomes a colon. With samples of several events, the event is the
// outermost level.
func WriteFolded(w io.Writer, p *Profile, o *FoldedOptions) error {
	if o == nil {
		o = &FoldedOptions{}
	}
	f := newFolder(p, o)
	out := bufio.NewWriterSize(w, 1<<16)
	for i := 0; i < len(f.order); {
		n := uint64(0)
		first := f.order[i]
		for ; i < len(f.order) && f.compare(first, f.order[i]) == 0; i++ {
			n += f.weight(f.order[i])
		}
		f.writeLine(out, first, n)
	}
	return out.Flush()
}

// FoldedName is the name of f where only names count: that of its object if it
// has none.
func FoldedName(f *Frame) string {
	switch {
	case f.Name != "":
		return f.Name
	case f.DSO == "":
		return "[unknown]"
	case strings.HasPrefix(f.DSO, "["):
		return f.DSO
	}
	return "[" + f.DSO + "]"
}

// folder sorts samples by their names, from the root to the leaf. Names are
// numbered in alphabetical order, so that numbers are compared.
type folder struct {
	p      *Profile
	o      *FoldedOptions
	names  []string
	nameOf []uint32 // by FrameID
	roots  []string // by LabelsID
	events bool     // the event is a level
	order  []uint32
}

func newFolder(p *Profile, o *FoldedOptions) *folder {
	f := &folder{p: p, o: o}
	f.nameFrames()
	f.roots = make([]string, p.NumLabels())
	for id := range f.roots {
		f.roots[id] = f.root(p.Labels(LabelsID(id)))
	}
	event := -1
	for i := range p.NumSamples() {
		s := p.Sample(i)
		if o.Keep != nil && !o.Keep(s) {
			continue
		}
		f.order = append(f.order, uint32(i))
		f.events = f.events || event >= 0 && s.Event != event
		event = s.Event
	}
	slices.SortFunc(f.order, f.compare)
	return f
}

func (f *folder) nameFrames() {
	raw := make([]string, f.p.NumFrames())
	for id := range raw {
		fr := f.p.Frame(FrameID(id))
		raw[id] = foldedText(FoldedName(&fr))
		switch {
		case fr.Kernel && !f.o.PlainKernel:
			raw[id] += "_[k]"
		case fr.Inlined:
			raw[id] += "_[i]"
		}
	}
	f.names = slices.Clone(raw)
	slices.Sort(f.names)
	f.names = slices.Compact(f.names)
	number := make(map[string]uint32, len(f.names))
	for i, name := range f.names {
		number[name] = uint32(i)
	}
	f.nameOf = make([]uint32, len(raw))
	for id, name := range raw {
		f.nameOf[id] = number[name]
	}
}

func foldedText(s string) string { return strings.ReplaceAll(Printable(s), ";", ":") }

func (f *folder) root(l *Labels) string {
	var levels []string
	switch {
	case f.o.Roots != nil:
		levels = f.o.Roots(l)
	case l.Container != "":
		levels = []string{l.Container, l.Comm}
	default:
		levels = []string{l.Comm}
	}
	clean := make([]string, 0, len(levels))
	for _, s := range levels {
		if s != "" {
			clean = append(clean, foldedText(s))
		}
	}
	return strings.Join(clean, ";")
}

func (f *folder) weight(i uint32) uint64 {
	s := f.p.Sample(int(i))
	if f.o.Values {
		return s.Value
	}
	return s.Count
}

func (f *folder) compare(i, j uint32) int {
	a, b := f.p.Sample(int(i)), f.p.Sample(int(j))
	if c := cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(f.roots[a.Labels], f.roots[b.Labels])); c != 0 {
		return c
	}
	if a.Stack == b.Stack {
		return 0
	}
	s, t := f.p.Stack(a.Stack), f.p.Stack(b.Stack)
	for n := 1; n <= min(len(s), len(t)); n++ {
		if c := cmp.Compare(f.nameOf[s[len(s)-n]], f.nameOf[t[len(t)-n]]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(s), len(t))
}

func (f *folder) writeLine(out *bufio.Writer, i uint32, n uint64) {
	s := f.p.Sample(int(i))
	sep := ""
	write := func(name string) {
		if name != "" {
			out.WriteString(sep)
			out.WriteString(name)
			sep = ";"
		}
	}
	if f.events {
		write(foldedText(f.p.Events[s.Event].Name))
	}
	write(f.roots[s.Labels])
	stack := f.p.Stack(s.Stack)
	for _, id := range slices.Backward(stack) {
		write(f.names[f.nameOf[id]])
	}
	if sep == "" {
		write("[unknown]")
	}
	out.WriteByte(' ')
	out.Write(strconv.AppendUint(out.AvailableBuffer(), n, 10))
	out.WriteByte('\n')
}
