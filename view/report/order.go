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
// show the same container, command and object: these texts are put in order
// once, and rows compare by the ranks of theirs. Nearly every row has a
// function of its own.
type sortRow struct {
	total uint64 // weight, the heavier the larger
	rank  uint64 // of the first columns, as many as fit
	name  uint64 // the first bytes of the function's, which mostly decide
	addr  uint64 // of a function without a name
	row   *row
	dso   uint32 // number of the object
}

// sortRows orders rows by weight, then by what they show.
func (t *table) sortRows(rows []*row) {
	var packed []ranking // in sortRow.rank
	columns := t.o.Sort
	for width := 0; len(columns) > 0 && columns[0] != KeySym; columns = columns[1:] {
		r := t.ranking(columns[0])
		if width += r.width; width > 64 {
			break
		}
		packed = append(packed, r)
	}
	rest := make([]func(a, b sortRow) int, len(columns))
	for i, k := range columns {
		rest[i] = t.comparing(k)
	}
	order := make([]sortRow, len(rows))
	for i, r := range rows {
		order[i] = sortRow{
			total: t.sortWeight(r, r.total), row: r,
			name: t.keys.prefix(r.key), addr: t.keys.list[r.key].addr, dso: t.keys.dso[r.key],
		}
		for _, k := range packed {
			order[i].rank = order[i].rank<<k.width | uint64(k.of(r))
		}
	}
	slices.SortFunc(order, func(a, b sortRow) int {
		if a.total != b.total {
			return cmp.Compare(b.total, a.total)
		}
		c := 0
		if t.o.Children { // else it is the total
			c = cmp.Compare(t.sortWeight(b.row, b.row.self), t.sortWeight(a.row, a.row.self))
		}
		if c == 0 {
			c = cmp.Compare(a.rank, b.rank)
		}
		for i := 0; c == 0 && i < len(rest); i++ {
			c = rest[i](a, b)
		}
		return c
	})
	for i := range order {
		rows[i] = order[i].row
	}
}

// comparing compares rows by one column.
func (t *table) comparing(k Key) func(a, b sortRow) int {
	if k != KeySym {
		r := t.ranking(k)
		return func(a, b sortRow) int { return cmp.Compare(r.of(a.row), r.of(b.row)) }
	}
	return func(a, b sortRow) int {
		switch {
		case a.name != b.name:
			return cmp.Compare(a.name, b.name)
		case a.addr != b.addr && a.addr != 0 && b.addr != 0 && a.dso == b.dso: // both have no name
			return cmp.Compare(a.addr, b.addr)
		}
		return t.keys.list[a.row.key].compare(t.keys.list[b.row.key])
	}
}

// prefix is the first bytes of a function's name, as a number that compares as
// they do.
func (k *keyspace) prefix(key uint32) uint64 {
	var b [8]byte
	copy(b[:], k.list[key].name)
	return binary.BigEndian.Uint64(b[:])
}

// sortWeight is a number that grows with a weight of r. Rows of different
// events, which may have different units, compare by their shares.
func (t *table) sortWeight(r *row, weight uint64) uint64 {
	if t.o.has(KeyEvent) {
		return math.Float64bits(t.events[r.event].percent(weight)) // in their order, if not negative
	}
	return weight
}

// ranking is the order of rows by one column that many rows show the same of:
// the rank of what a row shows, which fits in width bits.
type ranking struct {
	of    func(*row) uint32
	width int
}

func (t *table) ranking(k Key) ranking {
	number := func(r *row) uint32 { return r.key }
	var rank []uint32
	switch k {
	case KeyEvent:
		return ranking{func(r *row) uint32 { return r.event }, bits.Len(uint(len(t.events)))}
	case KeyDSO:
		number = func(r *row) uint32 { return t.keys.dso[r.key] }
		rank = rankAll(len(t.keys.dsos), func(a, b int) int { return strings.Compare(t.keys.dsos[a], t.keys.dsos[b]) })
	case KeySrcline:
		rank = rankAll(len(t.keys.list), func(a, b int) int { return strings.Compare(t.keys.list[a].line(), t.keys.list[b].line()) })
	case KeySrcfile:
		rank = rankAll(len(t.keys.list), func(a, b int) int { return strings.Compare(t.keys.list[a].file(), t.keys.list[b].file()) })
	case KeyBPF:
		rank = rankAll(len(t.keys.list), func(a, b int) int { return strings.Compare(t.keys.list[a].program, t.keys.list[b].program) })
	case KeyBPFLoader:
		rank = rankAll(len(t.keys.list), func(a, b int) int { return strings.Compare(t.keys.list[a].loader, t.keys.list[b].loader) })
	default:
		number = func(r *row) uint32 { return r.group }
		rank = rankAll(len(t.groups), func(a, b int) int { return compareLabel(k, &t.groups[a], &t.groups[b]) })
	}
	return ranking{func(r *row) uint32 { return rank[number(r)] }, bits.Len(uint(len(rank)))}
}

// rankAll gives each of n things its place in their order, equal ones the
// same.
func rankAll(n int, compare func(a, b int) int) []uint32 {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, compare)
	rank := make([]uint32, n)
	for i := 1; i < n; i++ {
		a, b := order[i-1], order[i]
		rank[b] = rank[a]
		if compare(a, b) != 0 {
			rank[b]++
		}
	}
	return rank
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
