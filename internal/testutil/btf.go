// SPDX-License-Identifier: Apache-2.0

package testutil

import "encoding/binary"

// MakeBTF makes BTF (linux/btf.h), little-endian: a type for each function of
// funcs, the first with number 1, and these strings. off has the offset of each
// of them.
func MakeBTF(funcs []string, strs ...string) (data []byte, off map[string]uint32) {
	le := binary.LittleEndian
	text := []byte{0}
	off = make(map[string]uint32)
	for _, s := range append(append([]string{}, funcs...), strs...) {
		if _, ok := off[s]; !ok {
			off[s] = uint32(len(text))
			text = append(append(text, s...), 0)
		}
	}
	var types []byte
	const kindFunc = 12
	for _, f := range funcs {
		for _, v := range []uint32{off[f], kindFunc << 24, 0} {
			types = le.AppendUint32(types, v)
		}
	}
	data = append(le.AppendUint16(nil, 0xeb9f), 1, 0) // magic, version, flags
	for _, v := range []int{24, 0, len(types), len(types), len(text)} {
		data = le.AppendUint32(data, uint32(v))
	}
	return append(append(data, types...), text...), off
}
