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
		Keep:  o.SampleFilter(p),
	})
}

// Pprof writes a gzipped pprof profile.
func Pprof(w io.Writer, p *profile.Profile, o *Options) error {
	o = o.orDefault()
	return profile.WritePprof(w, p, &profile.PprofOptions{Keep: o.SampleFilter(p)})
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
