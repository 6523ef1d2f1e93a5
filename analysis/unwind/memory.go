// SPDX-License-Identifier: Apache-2.0

package unwind

import "encoding/binary"

// stackMemory is the piece of a stack that was dumped.
type stackMemory struct {
	base uint64 // the stack pointer: the address of the first byte
	data []byte
	// beyond is set when a read missed because the dump ended before it.
	beyond bool
}

// word reads the 8 bytes at an address.
func (m *stackMemory) word(addr uint64) (uint64, bool) {
	off := addr - m.base
	if off > uint64(len(m.data)) || uint64(len(m.data))-off < 8 {
		m.beyond = addr >= m.base
		return 0, false
	}
	return binary.LittleEndian.Uint64(m.data[off:]), true
}

// load reads up to 8 bytes at an address.
func (m *stackMemory) load(addr uint64, size int) (uint64, bool) {
	if size == 8 {
		return m.word(addr)
	}
	off := addr - m.base
	if size < 1 || size > 8 || off > uint64(len(m.data)) || uint64(len(m.data))-off < uint64(size) {
		m.beyond = addr >= m.base
		return 0, false
	}
	var v uint64
	for i := range size {
		v |= uint64(m.data[off+uint64(i)]) << (8 * i)
	}
	return v, true
}
