// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSortEntries compares with a stable sort: in spans of one digit, of
// several, and of more than sorting by digits can hold.
func TestSortEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, span := range []uint64{1, 2, 1 << 9, 1 << 11, 1 << 30, 1 << 50, 1 << 60, math.MaxUint64} {
		for _, n := range []int{0, 1, 2, 3, 1000, 20_000} {
			entries := make([]entry, n)
			for i := range entries {
				entries[i] = entry{start: math.MaxUint64 - r.Uint64N(span), name: uint32(i)}
			}
			want := slices.Clone(entries)
			slices.SortStableFunc(want, func(a, b entry) int { return cmp.Compare(a.start, b.start) })
			sortEntries(entries)
			if !slices.Equal(entries, want) {
				t.Fatalf("%d entries in a span of %#x are not in the order of a stable sort", n, span)
			}
		}
	}
}

func TestSortAddrs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var scratch []uint64
	for _, span := range []uint64{1, 1 << 11, 1 << 25, math.MaxUint64} {
		for _, n := range []int{0, 1, 1000, 5000} {
			addrs := make([]uint64, n)
			for i := range addrs {
				addrs[i] = math.MaxUint64 - r.Uint64N(span)
			}
			want := slices.Sorted(slices.Values(addrs))
			if addrs, scratch = sortAddrs(addrs, scratch); !slices.Equal(addrs, want) {
				t.Fatalf("%d addresses in a span of %#x are not in order", n, span)
			}
		}
	}
}

func BenchmarkSortEntries(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	in := make([]entry, 120_000)
	for i := range in {
		in[i] = entry{start: 1<<63 + r.Uint64N(1<<30), name: uint32(i)}
	}
	entries := make([]entry, len(in))
	for b.Loop() {
		copy(entries, in)
		sortEntries(entries)
	}
}

func TestSameStructor(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"_ZN1AC1Ev", "_ZN1AC2Ev", true},
		{"_ZN1AD0Ev", "_ZN1AD2Ev", true},
		{"_ZN1AC1Ev", "_ZN1AC1Ev", false}, // nothing to choose: not worth a case
		{"_ZN1AC1Ev", "_ZN1AD1Ev", false},
		{"_ZN1AC1Ev", "_ZN1BC2Ev", false},
		{"_ZN1AC1Ev", "_ZN1AC1Ei", false},
		{"_ZN1AC1Ev", "_ZN1AC2Eiv", false},
		{"AC1", "AC2", false},
	} {
		if got := sameStructor(tt.a, tt.b); got != tt.want {
			t.Errorf("sameStructor(%q, %q) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
		if tt.want && Demangle(tt.a) != Demangle(tt.b) {
			t.Errorf("%q and %q are different functions", tt.a, tt.b)
		}
	}
}
