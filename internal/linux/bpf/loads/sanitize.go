// SPDX-License-Identifier: Apache-2.0

//go:build linux

package loads

import "encoding/binary"

// insnSize is the size of struct bpf_insn (linux/bpf.h): code, registers (the
// source in the high half), offset of 2 bytes, immediate of 4.
const insnSize = 8

// Codes of instructions in linux/bpf.h.
const (
	codeLoad64 = 0x18 // BPF_LD | BPF_IMM | BPF_DW, has two places
	codeCall   = 0x85 // BPF_JMP | BPF_CALL
	// The class of an instruction, and the mode of those that read and write memory.
	maskClass, maskMode            = 0x07, 0xe0
	classLoad, classST, classStore = 0x01, 0x02, 0x03
	modeMem                        = 0x60
	// What a 64-bit constant is, in its source register.
	pseudoMap, pseudoMapValue = 1, 2
	tailCall                  = 12 // BPF_FUNC_tail_call
)

// Codes that the kernel uses internally, and hides from user space. Others, as those of reads that
// extend the sign, it tells as they are.
const (
	innerTailCall, innerCallArgs = 0xf5, 0xe5
	modeProbe, modeProbe32       = 0x20, 0xa0 // reads that may fail, and accesses of an arena
)

// Types of maps (enum bpf_map_type).
const (
	mapArray = 2
	mapArena = 33 // this and later ones may have values in instructions
)

// kernelMap is a map and its places in the kernel's memory.
type kernelMap struct {
	address, values             uint64 // values: of an array
	id, kind, valueLen, entries uint32
}

// parseMap parses a struct map of loads.bpf.c, of mapSize bytes.
func parseMap(b []byte) kernelMap {
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	return kernelMap{
		address: binary.LittleEndian.Uint64(b), values: binary.LittleEndian.Uint64(b[8:]),
		id: u32(16), kind: u32(20), valueLen: u32(24), entries: u32(28),
	}
}

// value is the offset of an address in the map's value, if it has but one.
func (m *kernelMap) value(address uint64) (offset uint32, ok bool) {
	size := (uint64(m.valueLen) + 7) &^ 7
	if m.kind != mapArray || m.entries != 1 || m.values == 0 || address-m.values >= size {
		return 0, false
	}
	return uint32(address - m.values), true
}

// sanitize replaces what the kernel hides from user space, as BPF_OBJ_GET_INFO_BY_FD does
// (xlated_prog_insns of struct bpf_prog_info): addresses of maps by their ids, internal codes by
// those of linux/bpf.h. It is false if an address may be that of a map that has no known place.
func sanitize(b []byte, maps []kernelMap) bool {
	for at := 0; at+insnSize <= len(b); at += insnSize {
		switch code := b[at]; {
		case code == innerTailCall:
			b[at] = codeCall
			binary.LittleEndian.PutUint32(b[at+4:], tailCall)
		case code == innerCallArgs:
			b[at] = codeCall
		case code == codeLoad64:
			if at+2*insnSize > len(b) {
				return false
			}
			if !sanitizeMap(b[at:at+2*insnSize], maps) {
				return false
			}
			at += insnSize
		case code&maskClass == classLoad && code&maskMode == modeProbe,
			code&maskClass >= classLoad && code&maskClass <= classStore && code&maskMode == modeProbe32:
			b[at] = code&^maskMode | modeMem
		}
	}
	return true
}

// sanitizeMap is tell for a 64-bit constant.
func sanitizeMap(b []byte, maps []kernelMap) bool {
	address := uint64(binary.LittleEndian.Uint32(b[12:]))<<32 | uint64(binary.LittleEndian.Uint32(b[4:]))
	known := true
	for i := range maps {
		m := &maps[i]
		kind, offset := byte(pseudoMap), uint32(0)
		if address != m.address {
			var ok bool
			if offset, ok = m.value(address); !ok {
				known = known && m.kind < mapArena
				continue
			}
			kind = pseudoMapValue
		}
		b[1] = b[1]&0x0f | kind<<4
		binary.LittleEndian.PutUint32(b[4:], m.id)
		binary.LittleEndian.PutUint32(b[12:], offset)
		return true
	}
	return known
}
