// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"slices"
	"strings"
)

// maxSuggestions is how many near misses an error offers.
const maxSuggestions = 3

// suggest returns the names nearest to name: those that take at most a third
// of its letters to change, the nearest first.
func suggest(name string, names []string) []string {
	type near struct {
		name string
		dist int
	}
	limit := max(len(name)/3, 1)
	var found []near
	low := strings.ToLower(name)
	for _, n := range names {
		if abs(len(n)-len(name)) > limit {
			continue
		}
		if d := distance(low, strings.ToLower(n)); d <= limit {
			found = append(found, near{n, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		if a.dist != b.dist {
			return a.dist - b.dist
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, f := range found {
		if len(out) < maxSuggestions && !slices.Contains(out, f.name) {
			out = append(out, f.name)
		}
	}
	return out
}

func abs(n int) int { return max(n, -n) }

// distance is how many letters must be changed, dropped, added or exchanged
// with their neighbour to get from a to b.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
