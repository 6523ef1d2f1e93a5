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

// sortRow is one of the rows that weigh the same and show the same in the first
// columns, on its way into their order by the others. Nearly every row has a
// function of its own.
type sortRow struct {
	name uint64 // the first bytes of the function's, which mostly decide
	addr uint64 // of a function without a name
	row  *row
	dso  uint32 // number of the object
}

// sortRows orders rows by weight, the heaviest first, then by what they show. In
// a long table most rows weigh the same, and many show the same container,
// command and object: these texts are put in order once, and rows are sorted by
// the ranks of theirs, digit by digit.
func (t *table) sortRows(rows []*row) {
	var packed []ranking // in a rank
	columns := t.o.Sort
	for width := 0; len(columns) > 0 && columns[0] != KeySym; columns = columns[1:] {
		r := t.ranking(columns[0])
		if width += r.width; width > 64 {
			break
		}
		packed = append(packed, r)
	}
	ranks := make([]uint64, len(rows))
	for i, r := range rows {
		for _, k := range packed {
			ranks[i] = ranks[i]<<k.width | uint64(k.of(r))
		}
	}
	same := func(a, b uint32) bool {
		x, y := rows[a], rows[b]
		return t.sortWeight(x, x.total) == t.sortWeight(y, y.total) && ranks[a] == ranks[b] &&
			(!t.o.Children || t.sortWeight(x, x.self) == t.sortWeight(y, y.self))
	}
	d := newDigits(len(rows))
	d.sortBy(func(i uint32) uint64 { return ranks[i] })
	if t.o.Children { // else it is the total
		d.sortBy(func(i uint32) uint64 { return ^t.sortWeight(rows[i], rows[i].self) })
	}
	d.sortBy(func(i uint32) uint64 { return ^t.sortWeight(rows[i], rows[i].total) })
	t.sortTies(rows, d.order, columns, same)
}

// sortTies puts rows into an order, and those next to each other that are the
// same by it into that of the columns.
func (t *table) sortTies(rows []*row, order []uint32, columns []Key, same func(a, b uint32) bool) {
	compare := make([]func(a, b sortRow) int, len(columns))
	for i, k := range columns {
		compare[i] = t.comparing(k)
	}
	list := make([]sortRow, len(rows))
	for i, n := range order {
		r := rows[n]
		list[i] = sortRow{name: t.keys.prefix(r.key), addr: t.keys.list[r.key].addr, row: r, dso: t.keys.dso[r.key]}
	}
	for start, end := 0, 0; start < len(list); start = end {
		for end = start + 1; end < len(list) && same(order[start], order[end]); end++ {
		}
		slices.SortFunc(list[start:end], func(a, b sortRow) int {
			c := 0
			for i := 0; c == 0 && i < len(compare); i++ {
				c = compare[i](a, b)
			}
			return c
		})
	}
	for i := range list {
		rows[i] = list[i].row
	}
}

// digits puts numbers from 0 on into the order of one key after the other, the
// least significant first: a digit at a time, in time linear to their number.
type digits struct {
	order, spare []uint32
	keys         []uint64
}

func newDigits(n int) *digits {
	d := &digits{order: make([]uint32, n), spare: make([]uint32, n), keys: make([]uint64, n)}
	for i := range d.order {
		d.order[i] = uint32(i)
	}
	return d
}

// sortBy sorts by a key, and those that have the same stay in their order.
func (d *digits) sortBy(key func(i uint32) uint64) {
	const width, mask = 11, 1<<11 - 1
	varying := uint64(0)
	for i := range d.keys {
		d.keys[i] = key(uint32(i))
		varying |= d.keys[i] ^ d.keys[0]
	}
	for shift := 0; varying>>shift != 0; shift += width {
		if varying>>shift&mask == 0 {
			continue
		}
		var at [mask + 1]uint32
		for _, k := range d.keys {
			at[k>>shift&mask]++
		}
		sum := uint32(0)
		for digit, n := range at {
			at[digit] = sum
			sum += n
		}
		for _, i := range d.order {
			digit := d.keys[i] >> shift & mask
			d.spare[at[digit]] = i
			at[digit]++
		}
		d.order, d.spare = d.spare, d.order
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
		rank = rankAll(len(t.keys.list),
			func(a, b int) int { return strings.Compare(t.keys.list[a].line(), t.keys.list[b].line()) })
	case KeySrcfile:
		rank = rankAll(len(t.keys.list),
			func(a, b int) int { return strings.Compare(t.keys.list[a].file(), t.keys.list[b].file()) })
	case KeyBPF:
		rank = rankAll(len(t.keys.list),
			func(a, b int) int { return strings.Compare(t.keys.list[a].program, t.keys.list[b].program) })
	case KeyBPFLoader:
		rank = rankAll(len(t.keys.list),
			func(a, b int) int { return strings.Compare(t.keys.list[a].loader, t.keys.list[b].loader) })
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
