// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// sortRow is a row on its way into the order of a table: the heaviest first,
// then by what they show. In a long table most rows weigh the same, and many
// show the same texts, so texts are put in order once, and rows compare by the
// ranks of theirs.
type sortRow struct {
	total, self uint64 // weights, the heavier the larger
	rank        uint64 // of the first columns, as many as fit
	row         *row
}

// sortRows orders rows by weight, then by what they show.
func (t *table) sortRows(rows []*row) {
	rankings := make([]ranking, len(t.o.Sort))
	for i, k := range t.o.Sort {
		rankings[i] = t.ranking(k)
	}
	first := 0
	for width := 0; first < len(rankings); first++ {
		if width += rankings[first].width; width > 64 {
			break
		}
	}
	order := make([]sortRow, len(rows))
	for i, r := range rows {
		order[i] = sortRow{total: t.sortWeight(r, r.total), self: t.sortWeight(r, r.self), row: r}
		for _, k := range rankings[:first] {
			order[i].rank = order[i].rank<<k.width | uint64(k.of(r))
		}
	}
	slices.SortFunc(order, func(a, b sortRow) int {
		if c := cmp.Compare(b.total, a.total); c != 0 {
			return c
		}
		c := cmp.Or(cmp.Compare(b.self, a.self), cmp.Compare(a.rank, b.rank))
		for i := first; c == 0 && i < len(rankings); i++ {
			c = cmp.Compare(rankings[i].of(a.row), rankings[i].of(b.row))
		}
		return c
	})
	for i := range order {
		rows[i] = order[i].row
	}
}

// sortWeight is a number that grows with a weight of r. Rows of different
// events, which may have different units, compare by their shares.
func (t *table) sortWeight(r *row, weight uint64) uint64 {
	if t.o.has(KeyEvent) {
		return math.Float64bits(t.events[r.event].percent(weight)) // in their order, if not negative
	}
	return weight
}

// ranking is the order of rows by one column: the rank of what a row shows,
// which fits in width bits.
type ranking struct {
	of    func(*row) uint32
	width int
}

func (t *table) ranking(k Key) ranking {
	var number func(*row) uint32
	var rank []uint32
	switch k {
	case KeyEvent:
		return ranking{func(r *row) uint32 { return r.event }, bits.Len(uint(len(t.events)))}
	case KeyDSO:
		number = func(r *row) uint32 { return t.keys.dso[r.key] }
		rank = t.keys.rankDSOs()
	case KeySym:
		number = func(r *row) uint32 { return r.key }
		rank = t.keys.rank()
	case KeySrcline:
		number = func(r *row) uint32 { return r.key }
		rank = rankAll(len(t.keys.list), func(i int) string { return t.keys.list[i].line }, strings.Compare)
	case KeySrcfile:
		number = func(r *row) uint32 { return r.key }
		rank = rankAll(len(t.keys.list), func(i int) string { return t.keys.list[i].src }, strings.Compare)
	default:
		number = func(r *row) uint32 { return r.group }
		rank = rankAll(len(t.groups), func(i int) int { return i }, func(a, b int) int {
			return compareLabel(k, &t.groups[a], &t.groups[b])
		})
	}
	return ranking{func(r *row) uint32 { return rank[number(r)] }, bits.Len(uint(len(rank)))}
}

// rankAll gives each of n things its place in their order, equal ones the
// same. item makes what is compared of the number of a thing.
func rankAll[T any](n int, item func(int) T, compare func(a, b T) int) []uint32 {
	type place struct {
		item   T
		number int
	}
	order := make([]place, n)
	for i := range order {
		order[i] = place{item(i), i}
	}
	slices.SortFunc(order, func(a, b place) int { return compare(a.item, b.item) })
	rank := make([]uint32, n)
	for i := 1; i < n; i++ {
		a, b := &order[i-1], &order[i]
		rank[b.number] = rank[a.number]
		if compare(a.item, b.item) != 0 {
			rank[b.number]++
		}
	}
	return rank
}

func (k *keyspace) rankDSOs() []uint32 {
	return rankAll(len(k.dsos), func(i int) string { return k.dsos[i] }, strings.Compare)
}

// rank gives each function its place in the order of frameKey.compare. The
// first bytes of the names mostly decide, and the objects of those that have
// none are in order already.
func (k *keyspace) rank() []uint32 {
	type item struct {
		prefix uint64
		dso    uint32
		key    *frameKey
	}
	dsos := k.rankDSOs()
	return rankAll(len(k.list), func(i int) item {
		var b [8]byte
		copy(b[:], k.list[i].name)
		return item{binary.BigEndian.Uint64(b[:]), dsos[k.dso[i]], &k.list[i]}
	}, func(a, b item) int {
		switch {
		case a.prefix != b.prefix:
			return cmp.Compare(a.prefix, b.prefix)
		case a.key.name != b.key.name:
			return strings.Compare(a.key.name, b.key.name)
		case a.dso != b.dso:
			return cmp.Compare(a.dso, b.dso)
		}
		return a.key.compare(*b.key)
	})
}

func compareLabel(k Key, a, b *profile.Labels) int {
	switch k {
	case KeyPID:
		return cmp.Compare(a.PID, b.PID)
	case KeyTID:
		return cmp.Compare(a.TID, b.TID)
	case KeyCPU:
		return cmp.Compare(a.CPU, b.CPU)
	}
	return cmp.Compare(k.label(a), k.label(b))
}
