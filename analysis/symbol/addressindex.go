// SPDX-License-Identifier: Apache-2.0

package symbol

import "slices"

// addressIndex finds places among ascending addresses, no two equal. Its zero
// value has none.
//
// The range is cut into equal pieces, about one per address, so that a search
// begins near its end: piece[i] is the number of addresses before the i-th
// piece, which is 1<<shift long.
type addressIndex struct {
	addrs []uint64
	piece []int32
	shift uint8
}

// reset makes a the places of these addresses.
func (a *addressIndex) reset(addrs []uint64) {
	a.addrs, a.piece, a.shift = addrs, a.piece[:0], 0
	n := len(addrs)
	if n == 0 {
		return
	}
	span := addrs[n-1] - addrs[0]
	for span>>a.shift >= uint64(n) {
		a.shift++
	}
	pieces := int(span>>a.shift) + 1
	a.piece = slices.Grow(a.piece, pieces+1)[:pieces+1]
	next := 0
	for i := range a.piece {
		begin := addrs[0] + uint64(i)<<a.shift
		for next < n && addrs[next] < begin && i < pieces {
			next++
		}
		a.piece[i] = int32(next)
	}
	a.piece[pieces] = int32(n)
}

// last is the index of the last address that is not behind addr, -1 if there
// is none.
func (a *addressIndex) last(addr uint64) int {
	addrs := a.addrs
	if len(addrs) == 0 || addr < addrs[0] {
		return -1
	}
	at := (addr - addrs[0]) >> a.shift
	if last := uint64(len(a.piece) - 2); at > last {
		at = last
	}
	base := max(int(a.piece[at])-1, 0) // begins before this piece, or is the first
	for n := int(a.piece[at+1]) - base; n > 1; {
		half := n >> 1
		if addrs[base+half] <= addr {
			base += half
		}
		n -= half
	}
	return base
}
