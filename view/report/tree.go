// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// node is one function in a call graph, with the weight of all stacks that
// lead through it. What kids, cut and self add up to is value.
type node struct {
	key         uint32
	value, self uint64
	count       uint64 // samples
	kids        []*node
	cut         int    // branches too light to show
	cutValue    uint64 // and what they weigh
}

// flatStacks has the stacks of a profile as keys, one behind the other with a
// fence around each, so that a step along a stack is one step in memory.
type flatStacks struct {
	keys  *keyspace
	flat  []uint32
	start []uint32 // by StackID: where the leaf is
}

// fence is no key.
const fence = ^uint32(0)

func newFlatStacks(p *profile.Profile, keys *keyspace) *flatStacks {
	s := &flatStacks{keys: keys, start: make([]uint32, p.NumStacks())}
	frames := 0
	for id := range s.start {
		frames += len(p.Stack(profile.StackID(id)))
	}
	s.flat = append(make([]uint32, 0, frames+len(s.start)+1), fence)
	for id := range s.start {
		s.start[id] = uint32(len(s.flat))
		for _, f := range p.Stack(profile.StackID(id)) {
			s.flat = append(s.flat, keys.of[f])
		}
		s.flat = append(s.flat, fence)
	}
	return s
}

// item is a sample on its way through a tree: the next frame is flat[at].
type item struct{ sample, at uint32 }

// grower builds trees from stacks, only as deep and wide as they are heavy: at
// each node it sums the branches first, and follows those that reach min.
type grower struct {
	*flatStacks
	weights []weight // by sample
	step    uint32   // 1 towards the root, -1 towards the leaf
	min     uint64   // at least 1

	branches []branch // by key
	touched  []uint32
	scratch  []item
}

type weight struct{ value, count uint64 }

type branch struct {
	value, count uint64
	n            uint32 // items
	at           uint32 // where the branch's next item goes, if kept
	kept         bool
}

func newGrower(t *table, keys *keyspace, down bool) *grower {
	g := &grower{
		flatStacks: newFlatStacks(t.p, keys), weights: make([]weight, t.p.NumSamples()),
		step: 1, min: 1, branches: make([]branch, len(keys.list)),
	}
	if down {
		g.step = ^uint32(0)
	}
	for _, i := range t.order {
		s := t.p.Sample(int(i))
		g.weights[i] = weight{t.weight(s), s.Count}
	}
	return g
}

// grow builds what comes below n from the items that went through it. It
// reorders them.
func (g *grower) grow(n *node, items []item) {
	g.sum(n, items)
	g.keep(n)
	if len(n.kids) == 0 {
		g.clear()
		return
	}
	parts := g.split(n.kids, items)
	for i, kid := range n.kids {
		g.grow(kid, parts[i])
	}
}

// sum adds up the branches below n.
func (g *grower) sum(n *node, items []item) {
	for _, it := range items {
		w, key := &g.weights[it.sample], g.flat[it.at]
		if key == fence {
			n.self += w.value
			continue
		}
		b := &g.branches[key]
		if b.n == 0 {
			g.touched = append(g.touched, key)
		}
		b.n++
		b.value += w.value
		b.count += w.count
	}
}

// keep makes nodes of the branches that are heavy enough, the heaviest first.
func (g *grower) keep(n *node) {
	for _, key := range g.touched {
		b := &g.branches[key]
		if b.value < g.min {
			n.cut++
			n.cutValue += b.value
			continue
		}
		b.kept = true
		n.kids = append(n.kids, &node{key: key, value: b.value, count: b.count})
	}
	slices.SortFunc(n.kids, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.value, a.value), g.keys.list[a.key].compare(g.keys.list[b.key]))
	})
}

// split moves the items of each kid to one place, one frame further, and
// leaves the branches clean for the next node.
func (g *grower) split(kids []*node, items []item) [][]item {
	parts := make([][]item, len(kids))
	end := uint32(0)
	for i, kid := range kids {
		b := &g.branches[kid.key]
		b.at = end
		end += b.n
		parts[i] = items[b.at:end:end]
	}
	if cap(g.scratch) < int(end) {
		g.scratch = make([]item, end)
	}
	out := g.scratch[:end]
	for _, it := range items {
		key := g.flat[it.at]
		if key == fence {
			continue
		}
		if b := &g.branches[key]; b.kept {
			out[b.at] = item{it.sample, it.at + g.step}
			b.at++
		}
	}
	copy(items, out)
	g.clear()
	return parts
}

func (g *grower) clear() {
	for _, key := range g.touched {
		g.branches[key] = branch{}
	}
	g.touched = g.touched[:0]
}
