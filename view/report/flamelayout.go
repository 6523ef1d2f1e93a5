// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// box is one rectangle of a flame graph.
type box struct {
	name, dso    string
	depth        int
	start, value uint64 // from the left, in units of the event
	count        uint64
	root         int // which of flame.roots it belongs to, -1 if it is below them
	kernel       bool
	label        bool // a level of Options.Roots, not a function
	rest         bool // what is too narrow to draw one by one
}

// flame is a flame graph laid out: boxes with every box before those above it,
// from left to right.
type flame struct {
	boxes    []box
	depth    int
	level    int         // the depth of roots
	roots    []flameRoot // what has a colour, the heaviest first
	event    int
	others   int // further events that have samples
	total    eventTotal
	cut      int    // branches too narrow to draw, even together
	cutValue uint64 // what they weigh
}

type flameRoot struct {
	name  string
	value uint64
}

// flameMinShare is the share of all that a box needs to be drawn: a tenth of a
// pixel on a wide screen, ten pixels after zooming in a hundred times.
const flameMinShare = 1.0 / 10_000

// labelNode is a level of Options.Roots in the making.
type labelNode struct {
	name         string
	kids         []*labelNode
	byName       map[string]*labelNode
	value, count uint64
	items        []item
}

func (n *labelNode) kid(name string) *labelNode {
	k, ok := n.byName[name]
	if !ok {
		k = &labelNode{name: name}
		if n.byName == nil {
			n.byName = map[string]*labelNode{}
		}
		n.byName[name] = k
		n.kids = append(n.kids, k)
	}
	return k
}

// newFlame lays out the first event that has samples.
func newFlame(p *profile.Profile, o *Options) *flame {
	t := selectSamples(p, o, true)
	f := &flame{event: -1}
	for i, e := range t.events {
		switch {
		case e.samples == 0:
		case f.event < 0:
			f.event = i
		default:
			f.others++
		}
	}
	if f.event < 0 {
		f.event = 0
		return f
	}
	f.total = t.events[f.event]
	keys := newKeyspace(p, flameKey())
	g := newGrower(t, keys, true)
	g.min = max(1, uint64(float64(f.total.value)*flameMinShare))
	all := flameLabels(t, g, f.event)
	f.level = colourLevel(all)
	f.place(g, all, box{depth: 0, root: -1, label: true})
	return f
}

// colourLevel is the first level, or the second if there is nothing to tell
// apart on the first: commands where no container ran.
func colourLevel(all *labelNode) int {
	if len(all.kids) == 1 && len(all.kids[0].kids) > 0 {
		return 2
	}
	return 1
}

// flameLabels makes the tree of labels, with the samples at its leaves.
func flameLabels(t *selection, g *grower, event int) *labelNode {
	all := &labelNode{name: "all"}
	for _, i := range t.order {
		s := t.p.Sample(int(i))
		if s.Event != event {
			continue
		}
		w := g.weights[i].value
		n := all
		n.add(w, s.Count)
		for _, text := range rootTexts(t.o, t.p.Labels(s.Labels)) {
			n = n.kid(text)
			n.add(w, s.Count)
		}
		root := g.start[s.Stack] + uint32(len(t.p.Stack(s.Stack))) - 1
		n.items = append(n.items, item{i, root})
	}
	return all
}

func (n *labelNode) add(value, count uint64) {
	n.value += value
	n.count += count
}

// place lays out a label and all above it.
func (f *flame) place(g *grower, n *labelNode, at box) {
	at.name, at.value, at.count = n.name, n.value, n.count
	f.add(at)
	above := box{depth: at.depth + 1, start: at.start, root: at.root, label: true}
	if len(n.kids) == 0 {
		root := node{value: n.value}
		g.grow(&root, n.items)
		above.label = false
		f.placeFrames(g, &root, above)
		return
	}
	slices.SortFunc(n.kids, func(a, b *labelNode) int {
		return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.name, b.name))
	})
	cut, cutValue := 0, uint64(0)
	for _, kid := range n.kids {
		if above.depth == f.level {
			f.roots = append(f.roots, flameRoot{kid.name, kid.value})
			above.root = len(f.roots) - 1
		}
		if kid.value < g.min {
			cut++
			cutValue += kid.value
			continue
		}
		f.place(g, kid, above)
		above.start += kid.value
	}
	f.placeRest(g, above, cut, cutValue)
}

func (f *flame) placeFrames(g *grower, n *node, at box) {
	for _, kid := range n.kids {
		k := g.keys.list[kid.key]
		b := at
		b.name, b.dso, b.kernel, b.value, b.count = k.name, k.dso, k.kernel, kid.value, kid.count
		f.add(b)
		b.depth++
		f.placeFrames(g, kid, b)
		at.start += kid.value
	}
	f.placeRest(g, at, n.cut, n.cutValue)
}

// placeRest draws the branches that are too narrow as one, lest they look like
// time in the function below.
func (f *flame) placeRest(g *grower, at box, cut int, value uint64) {
	if value < g.min {
		f.cut += cut
		f.cutValue += value
		return
	}
	at.rest, at.label, at.kernel, at.dso = true, false, false, ""
	at.name, at.value = fmt.Sprintf("(%s)", plural(uint64(cut), "narrow branch", "narrow branches")), value
	f.add(at)
}

func (f *flame) add(b box) {
	f.boxes = append(f.boxes, b)
	f.depth = max(f.depth, b.depth+1)
}
