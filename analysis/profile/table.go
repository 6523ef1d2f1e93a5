// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"hash/maphash"
	"math/bits"
)

// A column grows in chunks: nothing is copied when it grows, and no garbage is
// left behind. With 32-bit ids it holds 4 G elements, which no machine of
// today can fill with the smallest of ours (8 bytes and their table slots).
type column[T any] struct {
	chunks [][]T
}

const (
	chunkBits = 13
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1
)

func (c *column[T]) at(i uint32) *T { return &c.chunks[i>>chunkBits][i&chunkMask] }

func (c *column[T]) len() int {
	if len(c.chunks) == 0 {
		return 0
	}
	last := len(c.chunks) - 1
	return last<<chunkBits + len(c.chunks[last])
}

func (c *column[T]) push(v T) uint32 {
	last := len(c.chunks) - 1
	if last < 0 || len(c.chunks[last]) == chunkSize {
		// The first chunk grows as it pleases: small profiles stay small.
		var chunk []T
		if last >= 0 {
			chunk = make([]T, 0, chunkSize)
		}
		c.chunks = append(c.chunks, chunk)
		last++
	}
	c.chunks[last] = append(c.chunks[last], v)
	return uint32(last<<chunkBits + len(c.chunks[last]) - 1)
}

// index is an open-addressing hash table from hashes to ids. The elements live
// elsewhere (in a column): a slot holds the upper half of the hash, which also
// says where the slot is, and id+1. So a table grows without a look at its
// elements. Hashes are seeded, as names and addresses come from hostile
// containers.
type index struct {
	slots []uint64
	n     int
}

const minSlots = 64

// slot is where the search for a hash begins. There must be slots.
func (x *index) slot(hash uint64) uint64 { return hash >> 32 & uint64(len(x.slots)-1) }

// find returns the id whose element equal accepts.
func (x *index) find(hash uint64, equal func(id uint32) bool) (uint32, bool) {
	if len(x.slots) == 0 {
		return 0, false
	}
	mask := uint64(len(x.slots) - 1)
	for i := x.slot(hash); ; i = (i + 1) & mask {
		slot := x.slots[i]
		if slot == 0 {
			return 0, false
		}
		if slot>>32 == hash>>32 && equal(uint32(slot)-1) {
			return uint32(slot) - 1, true
		}
	}
}

// full tells that the table must grow before the next insert. At three
// quarters a probe for a missing key looks at 8.5 slots, all in one or two
// cache lines.
func (x *index) full() bool { return 4*(x.n+1) > 3*len(x.slots) }

// insert adds an id that is not in the table.
func (x *index) insert(hash uint64, id uint32) {
	if x.full() {
		x.grow()
	}
	x.put(hash>>32<<32 | uint64(id+1))
	x.n++
}

func (x *index) put(slot uint64) {
	mask := uint64(len(x.slots) - 1)
	i := x.slot(slot)
	for x.slots[i] != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = slot
}

func (x *index) grow() {
	old := x.slots
	x.slots = makeSlots(max(2*len(old), minSlots))
	for _, slot := range old {
		if slot != 0 {
			x.put(slot)
		}
	}
}

// makeSlots makes slots and writes to each page of them. A page that is read
// first, as those of a hash table are, takes two faults to come to memory: one
// for the kernel's page of zeros, one for its own.
func makeSlots(n int) []uint64 {
	const page = 4096 / 8
	slots := make([]uint64, n)
	for i := 0; i < n; i += page {
		slots[i] = 0
	}
	return slots
}

// hasher holds the secret that keeps a hostile input from choosing names or
// addresses that all fall into one slot. Ids do not depend on it.
type hasher struct {
	seed maphash.Seed
	a, b uint64
}

func newHasher() hasher {
	seed := maphash.MakeSeed()
	return hasher{
		seed: seed,
		a:    maphash.String(seed, "a"),
		b:    maphash.String(seed, "b") | 1,
	}
}

// pair hashes two words: one 64x64 -> 128 bit multiplication, folded.
func (h *hasher) pair(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^h.a, y^h.b)
	return hi ^ lo
}

func (h *hasher) string(s string) uint64 { return maphash.String(h.seed, s) }
