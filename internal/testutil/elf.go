// SPDX-License-Identifier: Apache-2.0

package testutil

import "encoding/binary"

// TinyELF is an ELF file of x86-64 that has nothing but a GNU build-id, none if
// id is empty, and tail behind it.
func TinyELF(id, tail string) []byte {
	le := binary.LittleEndian
	b := make([]byte, 64+56)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 3)  // ET_DYN
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[52:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	note := make([]byte, 16+len(id))
	le.PutUint32(note, 4)
	le.PutUint32(note[4:], uint32(len(id)))
	le.PutUint32(note[8:], 3) // NT_GNU_BUILD_ID
	copy(note[12:], "GNU\x00"+id)
	if id == "" {
		note = nil
	}
	prog := b[64:]
	le.PutUint32(prog, 4) // PT_NOTE
	le.PutUint64(prog[8:], uint64(len(b)))
	le.PutUint64(prog[32:], uint64(len(note)))
	le.PutUint64(prog[48:], 4)
	return append(append(b, note...), tail...)
}
