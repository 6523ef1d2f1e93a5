// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// insns are instructions, in one piece.
func insns(list ...[]uint64) (b []byte) {
	for _, part := range list {
		for _, v := range part {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

// ld is the load of a 64-bit constant.
func ld(v uint64) []uint64 { return []uint64{0x18 | v<<32, v >> 32 << 32} }

// mapRecord is a struct map, of an array of one element of 6 bytes if it has values.
func mapRecord(id uint32, address, values uint64) []byte {
	kind := uint32(1)
	if values != 0 {
		kind = mapArray
	}
	return append(insns([]uint64{address, values}), words(id, kind, 6, 1)...)
}

func TestSanitize(t *testing.T) {
	maps := []kernelMap{
		{address: 0xffff888000001000, id: 7, kind: 1, valueLen: 8, entries: 1},
		{address: 0xffff888000002000, values: 0xffff888000002100, id: 8, kind: mapArray, valueLen: 6, entries: 1},
		{address: 0xffff888000003000, values: 0xffff888000003100, id: 9, kind: mapArray, valueLen: 8, entries: 2},
	}
	same := func(v ...uint64) [2][]uint64 { return [2][]uint64{v, v} }
	for name, c := range map[string][2][]uint64{
		"exit":                 same(0x95),
		"helper":               same(0x85 | 0x1234<<32),
		"read":                 same(0x61),
		"constant":             same(ld(0x1234567812345678)...),
		"map":                  {ld(0xffff888000001000), {0x18 | 1<<12 | 7<<32, 0}},
		"register is kept":     {{0x18 | 5<<8 | 0x1000<<32, 0xffff8880 << 32}, {0x18 | 5<<8 | 1<<12 | 7<<32, 0}},
		"first value":          {ld(0xffff888000002100), {0x18 | 2<<12 | 8<<32, 0}},
		"last value":           {ld(0xffff888000002107), {0x18 | 2<<12 | 8<<32, 7 << 32}},
		"behind the value":     same(ld(0xffff888000002108)...),
		"before the value":     same(ld(0xffff8880000020ff)...),
		"value of many":        same(ld(0xffff888000003100)...),
		"tail call":            {{0xf5 | 3<<32}, {0x85 | 12<<32}},
		"call of interpreter":  {{0xe5 | 3<<32}, {0x85 | 3<<32}},
		"read that may fail":   {{0x21 | 3<<32}, {0x61 | 3<<32}},
		"read of an arena":     {{0xb9}, {0x79}},
		"store in an arena":    {{0xbb}, {0x7b}},
		"constant in an arena": {{0xa2}, {0x62}},
		"subtraction":          same(0x27, 0xa7, 0xa5),
	} {
		b, want := insns(c[0]), insns(c[1])
		if !sanitize(b, maps) || !bytes.Equal(b, want) {
			t.Errorf("%s: %x, want %x", name, b, want)
		}
	}
}

// What may be the address of a value that is not known where is not told.
func TestSanitizeUnknown(t *testing.T) {
	arena := []kernelMap{{address: 0xffff888000001000, id: 7, kind: mapArena}}
	if b := insns(ld(0xffff888000001000)); !sanitize(b, arena) {
		t.Error("the map itself is not known")
	}
	if sanitize(insns(ld(0xffff888000001008)), arena) {
		t.Error("an address beside an arena is told")
	}
	if sanitize(insns([]uint64{0x18}), nil) {
		t.Error("half an instruction is told")
	}
}

func FuzzSanitize(f *testing.F) {
	m := mapRecord(8, 0xffff888000002000, 0xffff888000002100)
	f.Add(m, insns(ld(0xffff888000002004), []uint64{0xf5, 0x21, 0x95}))
	f.Fuzz(func(t *testing.T, m, b []byte) {
		var maps []kernelMap
		for ; len(m) >= mapSize; m = m[mapSize:] {
			maps = append(maps, parseMap(m))
		}
		n := len(b)
		if sanitize(b, maps); len(b) != n {
			t.Fatal("another length")
		}
	})
}
