// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// Coverage says how much of a recording has names, where they come from, and
// what is missing. Each list has the heaviest first.
type Coverage struct {
	Events []CoveredEvent
	// Frames is everything that the selected samples have in their stacks,
	// Nameless the part of it without a name.
	Frames, Nameless Covered
	// Sources are where names come from, Reasons why there is none.
	Sources, Reasons []CoveredBy
	// Places are where the files with the symbols were found.
	Places []CoveredBy
	// Binaries are those with frames without a name.
	Binaries []CoveredBinary
	Lost     CoveredLoss
}

// CoveredEvent is how many samples of an event were taken, selected by the
// filter, and lost.
type CoveredEvent struct {
	Name                    string
	Samples, Selected, Lost uint64
}

// Covered counts frames. Samples are those that it is the leaf of: those which
// fell there.
type Covered struct{ Frames, Samples uint64 }

func (c *Covered) add(x Covered) {
	c.Frames += x.Frames
	c.Samples += x.Samples
}

// CoveredBy counts the frames that have something in common.
type CoveredBy struct {
	Text string
	Covered
}

// CoveredBinary counts the frames of a binary that have no name.
type CoveredBinary struct {
	Path, BuildID, Reason string
	Covered
}

// CoveredLoss is what the kernel or the recorder dropped, in samples.
type CoveredLoss struct {
	Samples uint64
	// CPU -1 and the container "" are what is not known.
	CPUs       []LostOn
	Containers []LostIn
}

// LostOn are the samples lost on a CPU.
type LostOn struct {
	CPU     int32
	Samples uint64
}

// LostIn are the samples lost in a container.
type LostIn struct {
	Container string
	Samples   uint64
}

// NewCoverage sums p up. Its frames must have reasons.
func NewCoverage(p *profile.Profile, o *Options) *Coverage {
	o = o.orDefault()
	t := selectSamples(p, o, true)
	c := &Coverage{}
	for i := range p.Events {
		if e := &p.Events[i]; t.shown[i] {
			c.Events = append(c.Events,
				CoveredEvent{Name: e.Name, Samples: e.Samples, Selected: t.events[i].samples,
					Lost: p.TotalLost(e.Name)})
		}
	}
	c.sum(p, t.frameCounts())
	c.lost(p, t)
	return c
}

// frameCounts counts the selected samples by frame.
func (t *selection) frameCounts() []Covered {
	counts := make([]Covered, t.p.NumFrames())
	for _, i := range t.order {
		s := t.p.Sample(int(i))
		for n, f := range t.p.Stack(s.Stack) {
			counts[f].Frames += s.Count
			if n == 0 {
				counts[f].Samples += s.Count
			}
		}
	}
	return counts
}

func (c *Coverage) sum(p *profile.Profile, counts []Covered) {
	sources, reasons, places := map[string]*Covered{}, map[string]*Covered{}, map[string]*Covered{}
	binaries := map[CoveredBinary]*Covered{}
	for id, n := range counts {
		if n.Frames == 0 {
			continue
		}
		f := p.Frame(profile.FrameID(id))
		c.Frames.add(n)
		if f.Name != "" {
			count(sources, cmp.Or(f.Source, unknown), n)
			if f.Origin != "" {
				count(places, f.Origin, n)
			}
			continue
		}
		c.Nameless.add(n)
		count(reasons, cmp.Or(f.Source, unknown), n)
		if f.Path != "" {
			count(binaries, CoveredBinary{Path: f.Path, BuildID: f.BuildID, Reason: f.Source}, n)
		}
	}
	c.Sources, c.Reasons, c.Places = heaviest(sources), heaviest(reasons), heaviest(places)
	for b, n := range binaries {
		b.Covered = *n
		c.Binaries = append(c.Binaries, b)
	}
	slices.SortFunc(c.Binaries, func(a, b CoveredBinary) int {
		return cmp.Or(cmp.Compare(b.Frames, a.Frames), strings.Compare(a.Path, b.Path),
			strings.Compare(a.BuildID, b.BuildID), strings.Compare(a.Reason, b.Reason))
	})
}

func count[K comparable](m map[K]*Covered, key K, n Covered) {
	if m[key] == nil {
		m[key] = new(Covered)
	}
	m[key].add(n)
}

func heaviest(m map[string]*Covered) []CoveredBy {
	var list []CoveredBy
	for text, n := range m {
		list = append(list, CoveredBy{text, *n})
	}
	slices.SortFunc(list, func(a, b CoveredBy) int {
		return cmp.Or(cmp.Compare(b.Frames, a.Frames), strings.Compare(a.Text, b.Text))
	})
	return list
}

// lost sums up the losses of the events that are shown. Which samples were
// lost no filter can know.
func (c *Coverage) lost(p *profile.Profile, t *selection) {
	shown := map[string]bool{"": true}
	for i := range p.Events {
		shown[p.Events[i].Name] = t.shown[i]
	}
	cpus, containers := map[int32]uint64{}, map[string]uint64{}
	for _, l := range p.Lost {
		if known, ok := shown[l.Event]; l.Samples == 0 || ok && !known {
			continue
		}
		c.Lost.Samples += l.Samples
		cpus[l.CPU] += l.Samples
		containers[l.Container] += l.Samples
	}
	for _, cpu := range slices.Sorted(maps.Keys(cpus)) {
		c.Lost.CPUs = append(c.Lost.CPUs, LostOn{cpu, cpus[cpu]})
	}
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		c.Lost.Containers = append(c.Lost.Containers, LostIn{name, containers[name]})
	}
	slices.SortStableFunc(c.Lost.CPUs, func(a, b LostOn) int { return cmp.Compare(b.Samples, a.Samples) })
	slices.SortStableFunc(c.Lost.Containers, func(a, b LostIn) int { return cmp.Compare(b.Samples, a.Samples) })
}
