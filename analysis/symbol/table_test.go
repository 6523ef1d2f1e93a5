// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// makeEntries makes entries with names of their own.
func makeEntries(ranges ...[2]uint64) (names string, entries []entry) {
	for i, r := range ranges {
		entries = append(entries, entry{start: r[0], end: r[1], name: uint32(len(names))})
		names += fmt.Sprintf("s%d\x00", i)
	}
	return names, entries
}

func TestNesting(t *testing.T) {
	names, entries := makeEntries([2]uint64{10, 100}, [2]uint64{20, 30}, [2]uint64{25, 28}, [2]uint64{40, 200}, [2]uint64{300, 301})
	table, _ := buildTable(names, entries, new(demangling).better, 0)
	for addr, want := range map[uint64]string{
		9: "", 10: "s0", 19: "s0", 20: "s1", 24: "s1", 25: "s2", 27: "s2", 28: "s1", 30: "s0", 39: "s0",
		40: "s3", 150: "s3", 199: "s3", 200: "", 300: "s4", 301: "", math.MaxUint64: "",
	} {
		got := ""
		if sym, ok := table.Lookup(addr); ok {
			got = table.Name(sym)
		}
		if got != want {
			t.Errorf("%d is in %q, want %q", addr, got, want)
		}
	}
}

// TestLookup compares Lookup with a look at every symbol, for tables of many
// shapes: dense, with gaps, and in few places far apart.
func TestLookup(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		var ranges [][2]uint64
		at := rng.Uint64() >> (1 + round%60)
		for range 1 + rng.IntN(50) {
			size := 1 + rng.Uint64N(40)
			ranges = append(ranges, [2]uint64{at, at + size})
			at += size + rng.Uint64N(3)
			if rng.IntN(10) == 0 {
				at += rng.Uint64() >> (8 + round%50)
			}
		}
		names, entries := makeEntries(ranges...)
		rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		table, _ := buildTable(names, entries, new(demangling).better, 0)
		for i, r := range ranges {
			for _, addr := range []uint64{r[0] - 1, r[0], r[0] + (r[1]-r[0])/2, r[1] - 1, r[1]} {
				want := int32(-1)
				for j, r := range ranges {
					if r[0] <= addr && addr < r[1] {
						want = int32(j)
					}
				}
				if got, ok := table.Lookup(addr); got != want || ok != (want >= 0) {
					t.Fatalf("round %d: %#x is in %d, want %d; symbol %d of %d", round, addr, got, want, i, len(ranges))
				}
			}
		}
	}
	if _, ok := new(Table).Lookup(1); ok {
		t.Error("found a symbol in an empty table")
	}
}

func TestKernelSyms(t *testing.T) {
	var k KernelSyms
	name := func(addr uint64) string {
		s, _ := k.Lookup(addr)
		return s.Name
	}
	check := func(addr uint64, want string) {
		t.Helper()
		if got := name(addr); got != want {
			t.Errorf("%#x is %q, want %q", addr, got, want)
		}
	}
	check(0x1000, "")
	k.Register(0x2000, 0x100, "bpf_prog_b", KsymBPF)
	k.Register(0x1000, 0x100, "bpf_prog_a", KsymBPF)
	k.Register(0x3000, 0x100, "ftrace_trampoline", KsymOOL)
	k.Register(0x4000, 0, "empty", KsymBPF)
	for addr, want := range map[uint64]string{
		0xfff: "", 0x1000: "bpf_prog_a", 0x10ff: "bpf_prog_a", 0x1100: "", 0x20ff: "bpf_prog_b", 0x3000: "ftrace_trampoline", 0x4000: "",
	} {
		check(addr, want)
	}
	if s, ok := k.Lookup(0x3001); !ok || s.Type != KsymOOL || s.End != 0x3100 {
		t.Errorf("%+v, %v", s, ok)
	}

	// An end that was not recorded: the new symbol covers the end of one and
	// the whole of another.
	k.Register(0x1080, 0x1000, "bpf_prog_c", KsymBPF)
	check(0x1000, "")
	check(0x1080, "bpf_prog_c")
	check(0x2000, "bpf_prog_c")
	check(0x3000, "ftrace_trampoline")
	if k.Len() != 2 {
		t.Errorf("%d symbols are left", k.Len())
	}

	if k.Unregister(0x1081) {
		t.Error("removed a symbol by an address inside of it")
	}
	if !k.Unregister(0x1080) || k.Unregister(0x1080) {
		t.Error("a symbol is removed once")
	}
	check(0x1080, "")
	k.Register(math.MaxUint64-1, 100, "last", KsymBPF)
	check(math.MaxUint64-1, "last")
}

// Many symbols, in no order, are those of a plain list; none of them is in a block
// that is long to change.
func TestManyKernelSyms(t *testing.T) {
	const places = 6 * maxBlock
	var k KernelSyms
	var list [places]Ksym // by place; one may cover the next
	rnd := rand.New(rand.NewPCG(1, 2))
	for step := range uint32(8 * places) {
		at := rnd.IntN(places)
		if step < 2*places {
			at = places - 1 - int(step)/2 // from above, as is worst
		}
		addr := uint64(at) * 16
		if step%4 == 3 && step > 2*places {
			if had := list[at].End != 0; k.Unregister(addr) != had {
				t.Fatalf("step %d: unregistered a symbol: %v", step, !had)
			}
			list[at] = Ksym{}
			continue
		}
		length := uint32(1 + rnd.IntN(24))
		s := Ksym{Name: strconv.Itoa(int(step)), Start: addr, End: addr + uint64(length), Type: KsymBPF, Program: step}
		k.Register(addr, length, s.Name, s.Type)
		k.SetProgram(addr, step)
		for i := max(at-1, 0); i <= min(at+1, places-1); i++ {
			if list[i].End > s.Start && list[i].Start < s.End {
				list[i] = Ksym{}
			}
		}
		list[at] = s
	}
	n := 0
	for at, want := range list {
		if want.End != 0 {
			n++
		}
		got, ok := k.Lookup(uint64(at) * 16)
		if found := ok && got.Start == uint64(at)*16; found != (want.End != 0) || found && got != want {
			t.Fatalf("at %d is %+v, want %+v", at, got, want)
		}
	}
	if k.Len() != n || len(k.blocks) < 2 {
		t.Errorf("%d symbols in %d blocks, want %d", k.Len(), len(k.blocks), n)
	}
	for i, block := range k.blocks {
		if len(block) == 0 || len(block) > maxBlock || !slices.IsSortedFunc(block, func(a, b Ksym) int { return cmp.Compare(a.Start, b.Start) }) {
			t.Errorf("block %d of %d symbols", i, len(block))
		}
	}
}
