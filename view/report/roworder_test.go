// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Digits must give the order of a stable sort by the keys, also where only some
// of the digits differ.
func TestDigits(t *testing.T) {
	for name, mask := range map[string]uint64{
		"none": 0, "low": 0x3ff, "high": 0xfff << 52, "apart": 1<<63 | 3<<30 | 1, "all": ^uint64(0),
	} {
		r := rand.New(rand.NewPCG(1, mask))
		first, second := make([]uint64, 3000), make([]uint64, 3000)
		want := make([]uint32, len(first))
		for i := range first {
			first[i], second[i], want[i] = r.Uint64()&mask, r.Uint64()%5, uint32(i)
		}
		slices.SortStableFunc(want, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(first[a], first[b]), cmp.Compare(second[a], second[b]))
		})
		d := newDigits(len(first))
		d.sortBy(func(i uint32) uint64 { return second[i] })
		d.sortBy(func(i uint32) uint64 { return first[i] })
		if !slices.Equal(d.order, want) {
			t.Errorf("%s: not the order of a stable sort", name)
		}
	}
	newDigits(0).sortBy(func(uint32) uint64 { return 1 }) // does not fail
}
