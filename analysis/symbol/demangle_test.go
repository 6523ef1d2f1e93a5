// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"slices"
	"strings"
	"testing"
)

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"main":                              "main",
		"_start":                            "_start",
		"_Z":                                "_Z",
		"runtime.mallocgc":                  "runtime.mallocgc",
		"_ZL4statiPPc":                      "stat",
		"_ZNK3foo3barEv":                    "foo::bar",
		"_ZN1CD0Ev":                         "C::~C",
		"_ZN3fooEi.part.0":                  "foo",
		"_Z3barv@plt":                       "bar@plt",
		"_ZN3fooEv@@LIB_1":                  "foo@@LIB_1",
		"_RNvC1a4main":                      "a::main",
		"_DYNAMIC":                          "_DYNAMIC",
		"$s4main3FooV3bar1xySi_tF":          "$s4main3FooV3bar1xySi_tF",
		"$s4main3FooVMn":                    "$s4main3FooVMn",
		"$s":                                "$s",
		"_$s":                               "_$s",
		"$d.1":                              "$d.1",
		"_Z4callIZ4mainEUlvE_EvT_":          "call<main::{lambda()#1}>",
		"_ZNSt6vectorIiSaIiEE9push_backEOi": "std::vector<int, std::allocator<int> >::push_back",
		"_ZN3std28__rust_begin_short_backtrace17hb8e0473d96dacc95E": "std::__rust_begin_short_backtrace",
		"_ZN4core3fmt11_$LT$u8$GT$3fmt17hb8e0473d96dacc95E":         "core::fmt::<u8>::fmt",
		"_ZN3foo99_bar17hb8e0473d96dacc95E":                         "_ZN3foo99_bar17hb8e0473d96dacc95E",
	} {
		if got := Demangle(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// Each level doubles the text.
	bomb := "_Z1fI" + strings.Repeat("St4pairI", 30) + "ii" + strings.Repeat("ES0_", 1) + strings.Repeat("E", 30) + "vv"
	if got := Demangle(bomb); len(got) > 2<<maxDemangled {
		t.Errorf("a name of %d bytes becomes one of %d", len(bomb), len(got))
	}
}

func TestDemangledOnce(t *testing.T) {
	names, entries := makeEntries([2]uint64{0, 1}, [2]uint64{1, 2})
	o := &Object{}
	o.Table, _ = buildTable(strings.Replace(names, "s1", "_Z3foov", 1), entries, new(demangling).better, 0)
	for range 2 {
		if got := o.Demangled(0) + " " + o.Demangled(1); got != "s0 foo" {
			t.Errorf("got %q", got)
		}
	}
	if n := testing.AllocsPerRun(10, func() { o.Demangled(1) }); n != 0 {
		t.Errorf("%v allocations for a name that was asked for before", n)
	}
}

func TestStubsARM64(t *testing.T) {
	// The code is what LLVM's assembler makes of a PLT header, an entry
	// ("adrp x16, #-0x3000; ldr x17, [x16, #0x10]; ..."), one behind a "bti c"
	// ("adrp x16, 0x11000; ldr x17, [x16, #0xfa8]; ...").
	code := []byte{
		0xf0, 0x7b, 0xbf, 0xa9, 0xf0, 0x00, 0x00, 0xf0, 0x11, 0xfe, 0x47, 0xf9, 0x10, 0xe2, 0x3f, 0x91, 0x20, 0x02, 0x1f, 0xd6,
		0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5,
		0xf0, 0xff, 0xff, 0xb0, 0x11, 0x0a, 0x40, 0xf9, 0x10, 0x42, 0x00, 0x91, 0x20, 0x02, 0x1f, 0xd6,
		0x5f, 0x24, 0x03, 0xd5, 0x90, 0x00, 0x00, 0xb0, 0x11, 0xd6, 0x47, 0xf9, 0x10, 0xa2, 0x3e, 0x91, 0x20, 0x02, 0x1f, 0xd6,
	}
	got := stubsARM64(code, 0x400000, 16)
	want := []stub{
		{start: 0x400004, end: 0x400014, slot: 0x41f000 + 0xff8}, // the header, whose slot has no relocation
		{start: 0x400020, end: 0x400030, slot: 0x3fd010},
		{start: 0x400030, end: 0x400044, slot: 0x411fa8},
	}
	if len(got) != len(want) {
		t.Fatalf("%x, want %x", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%x, want %x", got[i], want[i])
		}
	}
}

// TestDemangledBounds: hostile names take time by the square of their length,
// and a table may have any number of them.
func TestDemangledBounds(t *testing.T) {
	const many = 1000
	var entries [][2]uint64
	for i := range uint64(many) {
		entries = append(entries, [2]uint64{i, i + 1})
	}
	names, list := makeEntries(entries...)
	for _, size := range []int{maxMangled / 3, maxMangled} {
		hostile := "_Z1fI" + strings.Repeat("KV", size/2) + "iEvv"
		o := &Object{}
		table, shifted := hostile+"\x00"+names, slices.Clone(list)
		for i := range shifted {
			shifted[i].name = 0
		}
		o.Table, _ = buildTable(table, shifted, new(demangling).better, 0)
		named := 0
		for i := range o.Len() {
			if o.Demangled(int32(i)) != hostile {
				named++
			}
		}
		n := len(hostile)
		if limit := maxDemangling/(n*n) + 1; named > limit || n > maxMangled && named > 0 {
			t.Errorf("%d names of %d characters were demangled, at most %d may be", named, n, limit)
		}
	}
}

// Many long names at one address are chosen among in bounded time, and so are
// those that lines name.
func TestDemanglingBounds(t *testing.T) {
	hostile := "_Z1fI" + strings.Repeat("KV", freeMangled) + "iEvv"
	d := &demangling{aliases: maxAliases - 3*(2*len(hostile)*len(hostile)-freeAliases)}
	for i := range 5 {
		a, b := d.pair(hostile, hostile)
		if done := a != hostile && b != hostile; done != (i < 3) {
			t.Errorf("pair %d: demangled: %v", i, done)
		}
	}
	if a, b := d.pair("_Z3foov", "_Z3barv"); a != "foo" || b != "bar" {
		t.Errorf("short ones are %q and %q", a, b)
	}
	l := &Lines{demangled: make(map[string]string)}
	l.names.work = maxDemangling - (len(hostile)+2)*(len(hostile)+2)
	for i, suffix := range []string{"@1", "@2"} {
		if done := l.demangle(hostile+suffix) != hostile+suffix; done != (i == 0) {
			t.Errorf("name %d: demangled: %v", i, done)
		}
	}
}
