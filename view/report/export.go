// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Folded writes folded stacks: Roots, then the stack from the outermost
// function to the leaf, then the number of samples.
func Folded(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	return profile.WriteFolded(w, p, &profile.FoldedOptions{
		Roots: func(l *profile.Labels) []string { return rootTexts(o, l) },
		Keep:  o.sampleFilter(p),
	})
}

// Pprof writes a gzipped pprof profile.
func Pprof(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	return profile.WritePprof(w, p, &profile.PprofOptions{Keep: o.sampleFilter(p)})
}

// rootTexts are the levels outside of the stack.
func rootTexts(o *Options, l *profile.Labels) []string {
	var levels []string
	for _, k := range o.Roots {
		if text := k.label(l); text != "" {
			levels = append(levels, text)
		}
	}
	return levels
}

// SampleFilter tells which samples pass the filter, as flame graphs and exports have
// it: their labels and at least one of their frames. Nil if all do.
func (o *Options) SampleFilter(p *profile.Profile) func(profile.Sample) bool {
	return o.sampleFilter(p)
}

// sampleFilter tells which samples pass the filter: their labels and at least one of
// their frames. Nil if all do.
func (o *Options) sampleFilter(p *profile.Profile) func(profile.Sample) bool {
	o.Filter.prepare(p)
	if o.Filter.empty() {
		return nil
	}
	labels := make([]bool, p.NumLabels())
	for id := range labels {
		labels[id] = o.Filter.labels(p.Labels(profile.LabelsID(id)))
	}
	events := o.Filter.events(p)
	frames := o.Filter.frames(p)
	return func(s profile.Sample) bool {
		if !labels[s.Labels] || !events[s.Event] {
			return false
		}
		if frames == nil {
			return true
		}
		for _, f := range p.Stack(s.Stack) {
			if frames[f] {
				return true
			}
		}
		return false
	}
}
