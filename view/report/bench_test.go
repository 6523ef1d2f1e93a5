// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// synthetic has n distinct stacks of depth frames, as programs make them: few
// roots, a tree that branches now and then, some paths much hotter than others.
func synthetic(n, depth int) *profile.Profile {
	const functions, containers = 20_000, 8
	r := rand.New(rand.NewPCG(1, 2))
	b := profile.NewBuilder()
	ev := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	frames := make([]profile.FrameID, functions)
	for i := range frames {
		frames[i] = b.Frame(profile.Frame{Name: fmt.Sprintf("package/path.(*Type%d).Method%d", i%97, i), DSO: fmt.Sprintf("lib%d.so", i%50)})
	}
	var labels [containers]profile.LabelsID
	for i := range labels {
		labels[i] = b.Labels(profile.Labels{Container: fmt.Sprintf("container-%d", i), Comm: "server"})
	}
	stack := make([]profile.FrameID, depth)
	for last := profile.StackID(0); int(last) < n; {
		c := r.IntN(containers)
		at := uint32(c)
		for d := depth - 1; d >= 0; d-- {
			stack[d] = frames[at%functions]
			branch := uint32(1)
			if r.IntN(3) == 0 {
				branch = uint32(1 + r.ExpFloat64()*3)
			}
			at = at*2654435761 + branch
		}
		s := b.Stack(stack)
		b.Add(labels[c], s, ev, 1, 1000)
		last = max(last, s)
	}
	return b.Profile()
}

func BenchmarkReport(b *testing.B) {
	p := synthetic(500_000, 16)
	for _, tt := range []struct {
		name string
		f    Format
		o    Options
	}{
		{"flat", FormatText, Options{}},
		{"callee", FormatText, Options{CallGraph: CallGraphCallee}},
		{"children", FormatText, Options{Children: true}},
		{"children-caller", FormatText, Options{Children: true, CallGraph: CallGraphCaller}},
		{"json", FormatJSON, Options{Children: true, CallGraph: CallGraphCaller}},
		{"svg", FormatSVG, Options{}},
		{"folded", FormatFolded, Options{}},
		{"pprof", FormatPprof, Options{}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Write(io.Discard, tt.f, p, &tt.o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
