// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"math"
	"slices"
	"sort"
)

// KsymType says what a symbol that the kernel made while it runs is. The values
// are those of enum perf_record_ksymbol_type in linux/perf_event.h.
type KsymType uint16

// Types of KernelSyms.
const (
	KsymUnknown KsymType = 0
	KsymBPF     KsymType = 1 // a BPF program or trampoline
	KsymOOL     KsymType = 2 // code out of line: ftrace and kprobe trampolines
)

// Ksym is a kernel symbol as a KSYMBOL record tells it.
type Ksym struct {
	Name       string
	Start, End uint64
	Type       KsymType
	// Program is the id of the BPF program that it is a part of, 0 if that is
	// not known.
	Program uint32
}

// KernelSyms holds the symbols that the kernel adds and removes while it runs,
// at one moment of a recording. Feed it KSYMBOL records in the order of time.
// Its zero value is empty. It is not safe for use by several goroutines.
type KernelSyms struct {
	// blocks of them ascend, none overlap, no block is empty. In one list, a
	// symbol below a million others would move them all.
	blocks [][]Ksym
	n      int
}

// maxBlock is how many symbols a block may have; above, it is split.
const maxBlock = 512

// Register adds a symbol of length bytes. What it overlaps is removed: its end
// was not recorded.
func (k *KernelSyms) Register(addr uint64, length uint32, name string, typ KsymType) {
	end := addr + uint64(length)
	if end < addr {
		end = math.MaxUint64
	}
	if end == addr {
		return
	}
	for {
		block, at := k.last(end - 1)
		if block < 0 || k.blocks[block][at].End <= addr {
			break
		}
		k.remove(block, at)
	}
	k.insert(Ksym{Name: name, Start: addr, End: end, Type: typ})
}

func (k *KernelSyms) insert(s Ksym) {
	k.n++
	if len(k.blocks) == 0 {
		k.blocks = [][]Ksym{{s}}
		return
	}
	block, at := k.last(s.Start)
	block, at = max(block, 0), at+1
	list := slices.Insert(k.blocks[block], at, s)
	if half := len(list) / 2; len(list) > maxBlock {
		k.blocks = slices.Insert(k.blocks, block+1, slices.Clone(list[half:]))
		clear(list[half:])
		list = list[:half]
	}
	k.blocks[block] = list
}

func (k *KernelSyms) remove(block, at int) {
	k.n--
	k.blocks[block] = slices.Delete(k.blocks[block], at, at+1)
	if len(k.blocks[block]) == 0 {
		k.blocks = slices.Delete(k.blocks, block, block+1)
	}
}

// Unregister removes the symbol that begins at addr. It reports whether there
// was one.
func (k *KernelSyms) Unregister(addr uint64) bool {
	block, at := k.last(addr)
	if block < 0 || k.blocks[block][at].Start != addr {
		return false
	}
	k.remove(block, at)
	return true
}

// SetProgram says that the symbol that begins at addr, if there is one, is a
// part of a BPF program.
func (k *KernelSyms) SetProgram(addr uint64, id uint32) {
	if block, at := k.last(addr); block >= 0 && k.blocks[block][at].Start == addr {
		k.blocks[block][at].Program = id
	}
}

// Lookup finds the symbol that covers addr.
func (k *KernelSyms) Lookup(addr uint64) (Ksym, bool) {
	block, at := k.last(addr)
	if block < 0 || addr >= k.blocks[block][at].End {
		return Ksym{}, false
	}
	return k.blocks[block][at], true
}

// Len is the number of symbols.
func (k *KernelSyms) Len() int { return k.n }

// last is where the last symbol is that begins at or before addr; both are -1 if
// there is none.
func (k *KernelSyms) last(addr uint64) (block, at int) {
	block = sort.Search(len(k.blocks), func(i int) bool { return k.blocks[i][0].Start > addr }) - 1
	if block < 0 {
		return -1, -1
	}
	list := k.blocks[block]
	return block, sort.Search(len(list), func(i int) bool { return list[i].Start > addr }) - 1
}
