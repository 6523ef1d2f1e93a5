// SPDX-License-Identifier: Apache-2.0

package report

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
	return &graphs{t: t, g: newGrower(t, keys, down), rows: rows}
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
