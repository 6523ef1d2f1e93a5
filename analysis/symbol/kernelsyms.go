// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"math"
	"slices"
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
	syms []Ksym // ascending, none overlap
}

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
	first := k.after(addr)
	if first > 0 && k.syms[first-1].End > addr {
		first--
	}
	last := first
	for last < len(k.syms) && k.syms[last].Start < end {
		last++
	}
	k.syms = slices.Replace(k.syms, first, last, Ksym{Name: name, Start: addr, End: end, Type: typ})
}

// Unregister removes the symbol that begins at addr. It reports whether there
// was one.
func (k *KernelSyms) Unregister(addr uint64) bool {
	i := k.after(addr)
	if i == 0 || k.syms[i-1].Start != addr {
		return false
	}
	k.syms = slices.Delete(k.syms, i-1, i)
	return true
}

// SetProgram says that the symbol that begins at addr, if there is one, is a
// part of a BPF program.
func (k *KernelSyms) SetProgram(addr uint64, id uint32) {
	if i := k.after(addr); i > 0 && k.syms[i-1].Start == addr {
		k.syms[i-1].Program = id
	}
}

// Lookup finds the symbol that covers addr.
func (k *KernelSyms) Lookup(addr uint64) (Ksym, bool) {
	i := k.after(addr)
	if i == 0 || addr >= k.syms[i-1].End {
		return Ksym{}, false
	}
	return k.syms[i-1], true
}

// Len is the number of symbols.
func (k *KernelSyms) Len() int { return len(k.syms) }

// after is the index of the first symbol that begins behind addr.
func (k *KernelSyms) after(addr uint64) int {
	lo, hi := 0, len(k.syms)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if k.syms[mid].Start <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
