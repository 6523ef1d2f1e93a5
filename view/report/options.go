// SPDX-License-Identifier: Apache-2.0

// Package report shows a profile: as text in the shape of perf report, as
// JSON, as a flame graph, and, through package profile, folded and as pprof.
//
// Every function takes the same Options and writes the same bytes for the same
// profile. Names come from containers and are hostile: each format neutralises
// what its reader would obey.
//
// The cost is one walk over each distinct stack, not over each sample; call
// graphs are grown only where a branch is heavy enough to be shown.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Format is an output format.
type Format uint8

// The formats.
const (
	FormatText Format = iota
	FormatJSON
	FormatFolded
	FormatSVG
	FormatPprof
)

// FormatNames lists the formats that ParseFormat knows.
func FormatNames() []string { return []string{"text", "json", "folded", "svg", "pprof"} }

// ParseFormat reads the argument of --format.
func ParseFormat(s string) (Format, error) {
	names := FormatNames()
	i := slices.Index(names, s)
	if i < 0 {
		return 0, fmt.Errorf("unknown format %q: use one of %s", s, strings.Join(names, ", "))
	}
	return Format(i), nil
}

// DefaultSort is what rows are told apart by when Options.Sort is empty.
func DefaultSort() []Key { return []Key{KeyContainer, KeyComm, KeyDSO, KeySym} }

// DefaultCallGraphLimit is the share of the total, in percent, that a branch
// of a call graph needs to be shown.
const DefaultCallGraphLimit = 0.5

// Options says what to show. The zero value, and nil, is a plain table by
// DefaultSort.
type Options struct {
	Sort      []Key
	Children  bool
	CallGraph CallGraph
	// CallGraphLimit in percent; zero is PercentLimit or, without one,
	// DefaultCallGraphLimit; negative shows everything.
	CallGraphLimit float64
	// PercentLimit hides rows below this share, in percent.
	PercentLimit float64
	// MaxEntries hides rows after this many in each section; zero is all.
	MaxEntries int
	Filter     Filter
	// Relative makes the filtered samples the whole 100 percent.
	Relative bool
	// ShowSamples adds a column with the number of samples.
	ShowSamples bool
	// Width is that of the terminal; zero is unlimited.
	Width int
	// Roots are the levels below "all" in a flame graph and the first
	// columns of folded stacks; nil is container, comm. Only labels count.
	Roots []Key
	// Title of a flame graph; empty is a general one.
	Title string
}

func (o *Options) orDefault() *Options {
	var c Options
	if o != nil {
		c = *o
	}
	if len(c.Sort) == 0 {
		c.Sort = DefaultSort()
	}
	if c.Roots == nil {
		c.Roots = []Key{KeyContainer, KeyComm}
	}
	switch {
	case c.CallGraphLimit == 0:
		c.CallGraphLimit = cmp.Or(c.PercentLimit, DefaultCallGraphLimit)
	case c.CallGraphLimit < 0:
		c.CallGraphLimit = 0
	}
	return &c
}

// Fields are the labels that a profile needs for this report, so that its
// maker need not tell apart what nobody looks at.
func (o *Options) Fields(f Format) profile.Fields {
	o = o.orDefault()
	fields := o.Filter.fields()
	switch f {
	case FormatText, FormatJSON:
		fields |= fieldsOf(o.Sort)
	case FormatFolded, FormatSVG:
		fields |= fieldsOf(o.Roots)
	case FormatPprof:
		fields |= fieldsOf(o.Sort) | fieldsOf(o.Roots)
	}
	return fields
}

// Definitions are the names of those whose identities a profile needs for this
// report.
func (o *Options) Definitions(f Format) []string {
	o = o.orDefault()
	var names []string
	if f == FormatText || f == FormatJSON || f == FormatPprof {
		names = append(names, definitionsOf(o.Sort)...)
	}
	if f == FormatFolded || f == FormatSVG || f == FormatPprof {
		names = append(names, definitionsOf(o.Roots)...)
	}
	names = append(names, o.Filter.Definitions()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// NeedsStacks reports whether the report looks at callers, or at leaves only.
func (o *Options) NeedsStacks(f Format) bool {
	return f != FormatText && f != FormatJSON || o != nil && (o.Children || o.CallGraph != CallGraphNone)
}

// NeedsSymbols reports whether the report looks at where the samples fell: at
// functions, or at the objects that they are in.
func (o *Options) NeedsSymbols(f Format) bool {
	if o.NeedsStacks(f) {
		return true
	}
	c := o.orDefault()
	return c.has(KeySym) || c.has(KeyDSO) || c.has(KeyBPF) || c.has(KeyBPFLoader) || c.NeedsLines(f) ||
		len(c.Filter.Symbol)+len(c.Filter.DSO) > 0
}

// NeedsLines reports whether the report shows source lines.
func (o *Options) NeedsLines(f Format) bool {
	return f == FormatPprof || o != nil && (f == FormatText || f == FormatJSON) &&
		(o.has(KeySrcline) || o.has(KeySrcfile))
}

func (o *Options) has(k Key) bool { return slices.Contains(o.Sort, k) }

func fieldsOf(keys []Key) profile.Fields {
	var f profile.Fields
	for _, k := range keys {
		f |= k.info().field
	}
	return f
}

// Write writes p in the given format.
func Write(w io.Writer, f Format, p *profile.Profile, o *Options) error {
	switch f {
	case FormatJSON:
		return JSON(w, p, o)
	case FormatFolded:
		return Folded(w, p, o)
	case FormatSVG:
		return SVG(w, p, o)
	case FormatPprof:
		return Pprof(w, p, o)
	}
	return Text(w, p, o)
}

// Selection is what the filter leaves of a profile.
type Selection struct {
	// Samples were selected.
	Samples uint64
	// Nameless counts those of them whose innermost function has no name, by
	// the path of the object that it is in.
	Nameless map[string]uint64
}

// Select finds what a report in the given format shows of p.
func Select(p *profile.Profile, f Format, o *Options) Selection {
	o = o.orDefault()
	rows := (f == FormatText || f == FormatJSON) && !o.Children
	t := selectSamples(p, o, true)
	if passes := o.Filter.frames(p); rows && passes != nil {
		t.order = slices.DeleteFunc(t.order, func(i uint32) bool {
			st := p.Stack(p.Sample(int(i)).Stack)
			return len(st) == 0 || !passes[st[function(p, st)]]
		})
	}
	sel := Selection{Nameless: t.nameless()}
	for _, i := range t.order {
		sel.Samples += p.Sample(int(i)).Count
	}
	return sel
}
