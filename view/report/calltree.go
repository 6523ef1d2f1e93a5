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

func newGrower(t *selection, keys *keyspace, down bool) *grower {
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

// graphs gives the call graphs of rows, in batches: the samples of a batch's
// rows are listed at once, which costs one walk, and no more of them than
// batchSize are held in memory.
type graphs struct {
	t     *table
	g     *grower
	rows  []*row // those still to come, in the order they will be asked for
	next  map[*row]*node
	items []item // room for those of a batch
}

// minBatch items are 32 MB.
const minBatch = 4 << 20

// batchSize bounds a batch, the largest single row aside, to half of what the
// stacks take: with children, each frame is an item, so that there are few
// batches however large the profile.
func (c *graphs) batchSize() int { return max(minBatch, len(c.g.flat)/4) }

func newGraphs(t *table, rows []*row) *graphs {
	down := t.o.CallGraph == CallGraphCaller
	keys := t.keys
	// else rows are told apart as nodes are
	if !t.o.has(KeySym) || !t.o.has(KeyDSO) || t.o.has(KeySrcline) || t.o.has(KeySrcfile) || t.o.has(KeyBPF) ||
		t.o.has(KeyBPFLoader) {
		keys = newKeyspace(t.p, callKey())
	}
	return &graphs{t: t, g: newGrower(t.selection, keys, down), rows: rows}
}

// keys are the functions that the nodes name.
func (c *graphs) keys() *keyspace { return c.g.keys }

// of returns the call graph of r: a node without a key of its own, whose kids
// are where the stacks begin. Nil if nothing in it is heavy enough.
func (c *graphs) of(r *row) *node {
	if c.minimum(r) > r.total {
		return nil
	}
	n, ok := c.next[r]
	if !ok {
		c.batch(r)
		n = c.next[r]
	}
	delete(c.next, r)
	return n
}

func (c *graphs) minimum(r *row) uint64 {
	e := &c.t.events[r.event]
	return max(1, uint64(float64(e.whole)*c.t.o.CallGraphLimit/100))
}

// batch grows the graphs of r and of the rows after it.
func (c *graphs) batch(r *row) {
	for c.rows[0] != r {
		c.rows = c.rows[1:]
	}
	var batch []*row
	total := 0
	for ; len(c.rows) > 0 && (total == 0 || total+int(c.rows[0].hits) <= c.batchSize()); c.rows = c.rows[1:] {
		if next := c.rows[0]; c.minimum(next) <= next.total {
			total += int(next.hits)
			batch = append(batch, next)
		}
	}
	items := c.list(batch, total)
	c.next = map[*row]*node{}
	for _, next := range batch {
		n := &node{value: next.total, count: next.totalCount}
		c.g.min = c.minimum(next)
		c.g.grow(n, items[next.number])
		c.next[next] = n
	}
}

// list finds the samples of the rows of a batch, by number of the row.
func (c *graphs) list(batch []*row, total int) [][]item {
	if cap(c.items) < total {
		c.items = make([]item, total)
	}
	unused := c.items[:0]
	items := make([][]item, len(c.t.rows))
	for _, r := range batch {
		end := len(unused) + int(r.hits)
		items[r.number] = unused[len(unused):len(unused):end]
		unused = unused[:end]
	}
	c.t.walk(func(h *hit) {
		if list := items[h.row]; list != nil {
			items[h.row] = append(list, item{h.sample, c.g.start[h.s.Stack] + h.pos})
		}
	})
	return items
}
