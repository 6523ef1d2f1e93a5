// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Fields are the labels that the filter looks at.
func (f *Filter) Fields() profile.Fields { return f.fields() }

// Definitions are the names of those whose identities the filter looks at.
func (f *Filter) Definitions() []string {
	var names []string
	for _, s := range f.Identities {
		names = append(names, s.Definition)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Selects reports whether the filter takes samples with these labels.
func (f *Filter) Selects(l *profile.Labels) bool { return f.labels(l) }

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
	keep := o.sampleFilter(p)
	leafOnly := (f == FormatText || f == FormatJSON) && !o.Children
	passes := o.Filter.frames(p)
	leaves := make([]uint64, p.NumFrames())
	sel := Selection{Nameless: map[string]uint64{}}
	for s := range p.Samples() {
		if keep != nil && !keep(s) {
			continue
		}
		st := p.Stack(s.Stack)
		if leafOnly && passes != nil && (len(st) == 0 || !passes[st[function(p, st)]]) {
			continue
		}
		sel.Samples += s.Count
		if len(st) > 0 {
			leaves[st[0]] += s.Count
		}
	}
	for id, n := range leaves {
		if n == 0 {
			continue
		}
		if fr := p.Frame(profile.FrameID(id)); fr.Name == "" {
			sel.Nameless[fr.Path] += n
		}
	}
	return sel
}
