// SPDX-License-Identifier: Apache-2.0

package profile

import "encoding/binary"

// message is a protocol buffer message in the making. Zero fields are left
// out, as proto3 does.
type message []byte

func (m *message) reset() { *m = (*m)[:0] }

func (m *message) uint(field int, v uint64) {
	if v != 0 {
		*m = binary.AppendUvarint(append(*m, byte(field<<3)), v)
	}
}

func (m *message) bool(field int, v bool) {
	if v {
		m.uint(field, 1)
	}
}

func (m *message) bytes(field int, b []byte) {
	*m = append(*m, byte(field<<3|2))
	*m = append(binary.AppendUvarint(*m, uint64(len(b))), b...)
}

// packed writes a repeated field of integers. scratch is memory to reuse.
func (m *message) packed(field int, scratch *message, list []uint64) {
	scratch.reset()
	for _, v := range list {
		*scratch = binary.AppendUvarint(*scratch, v)
	}
	if len(list) > 0 {
		m.bytes(field, *scratch)
	}
}
