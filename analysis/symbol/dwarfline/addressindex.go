// SPDX-License-Identifier: Apache-2.0

package dwarfline

// addressIndex divide a range of addresses into equal pieces, about one for two of the
// elements that begin there, so that a search need not touch more memory than
// near its end.
type addressIndex struct {
	base  uint64
	shift uint8
	first []uint32 // the number of elements that begin before each piece
}

// newAddressIndex divides n elements, which begin at ascending addresses.
func newAddressIndex(n int, start func(int) uint64) addressIndex {
	if n == 0 {
		return addressIndex{}
	}
	c := addressIndex{base: start(0)}
	last := start(n - 1)
	for (last-c.base)>>c.shift > uint64(n)/2 {
		c.shift++
	}
	pieces := int((last-c.base)>>c.shift) + 1
	c.first = make([]uint32, pieces+1)
	at := 0
	for i := range pieces {
		for at < n && (start(at)-c.base)>>c.shift < uint64(i) {
			at++
		}
		c.first[i] = uint32(at)
	}
	c.first[pieces] = uint32(n)
	return c
}

// around are the elements among which the last one is that begins at or before
// addr, unless it is the one before lo.
func (c *addressIndex) around(addr uint64) (lo, hi uint32) {
	if len(c.first) == 0 || addr < c.base {
		return 0, 0
	}
	piece := min((addr-c.base)>>c.shift, uint64(len(c.first)-2))
	return c.first[piece], c.first[piece+1]
}
