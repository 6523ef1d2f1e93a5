// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// sameLookups compares what two tables have at some addresses.
func sameLookups(t *testing.T, addrs []uint64, got, want *Table) {
	t.Helper()
	for _, addr := range addrs {
		g, gotOK := got.Lookup(addr)
		w, wantOK := want.Lookup(addr)
		if gotOK != wantOK || gotOK && (got.Name(g) != want.Name(w) || got.Sym(g).Start != want.Sym(w).Start) {
			t.Fatalf("%#x is %s, want %s", addr, textOf(got, g), textOf(want, w))
		}
	}
}

func textOf(t *Table, sym int32) string {
	if sym < 0 {
		return "nothing"
	}
	return fmt.Sprintf("%+v", t.Sym(sym))
}

func anyName(*entry) bool { return true }

// someAddrs are n ascending numbers below limit.
func someAddrs(r *rand.Rand, n int, limit uint64) []uint64 {
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = r.Uint64N(limit)
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// TestSubset compares with a table of all symbols, for symbols of all kinds
// that lie in each other in all ways.
func TestSubset(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const span, rounds = 300, 4000
	reduced := 0
	var s symbolSubset
	for round := range rounds {
		names, entries := makeEntries(make([][2]uint64, 1+r.IntN(30))...)
		odd := r.IntN(4) // how odd the file is
		for i := range entries {
			e := &entries[i]
			e.start = r.Uint64N(span)
			e.bind = binding(r.IntN(3))
			e.second = odd > 0 && r.IntN(3) == 0
			e.noSize = odd > 1 && r.IntN(4) == 0
			e.label = odd > 2 && r.IntN(3) == 0
			if e.end = e.start + 1 + r.Uint64N(40); e.noSize {
				e.end = min(span, e.end+100) // of the section
			}
		}
		addrs := someAddrs(r, r.IntN(20), span+20)
		s.reset(addrs)
		for i := range entries {
			s.add([]byte(names), &entries[i], anyName)
		}
		kept, ok := s.entries()
		if !ok {
			continue
		}
		reduced++
		got, _ := buildTable(names, kept, new(demangling).better, 0)
		want, _ := buildTable(names, entries, new(demangling).better, 0)
		if t.Run("", func(t *testing.T) { sameLookups(t, addrs, &got, &want) }); t.Failed() {
			t.Fatalf("round %d: %+v", round, entries)
		}
	}
	if reduced < rounds/10 || reduced == rounds {
		t.Errorf("%d of %d files could be reduced", reduced, rounds)
	}
}

// TestSubsetOfSymbolsOnly: what most files have needs no table of all symbols,
// labels in functions included.
func TestSubsetOfSymbolsOnly(t *testing.T) {
	names, entries := makeEntries([2]uint64{10, 20}, [2]uint64{20, 60}, [2]uint64{30, 100}, [2]uint64{70, 90})
	entries[2].label, entries[2].noSize = true, true
	var s symbolSubset
	s.reset([]uint64{5, 19, 20, 59, 60, 89})
	for i := range entries[:2] {
		s.add([]byte(names), &entries[i], anyName)
	}
	if _, ok := s.entries(); !ok {
		t.Error("functions behind each other were not left out")
	}
	s.add([]byte(names), &entries[2], anyName)
	if _, ok := s.entries(); ok {
		t.Error("60 may be behind the label or not, and was left out")
	}
	s.add([]byte(names), &entries[3], anyName)
	if list, ok := s.entries(); ok {
		t.Errorf("60 may be behind the label or not, and was left out: %v", list)
	}
}

// TestReadELFAt compares objects of some addresses with those of all.
func TestReadELFAt(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	mem := new(scratch)
	cxx := buildProgram(t, "c++", cxxProgram)
	for _, path := range []string{goCompiler(t), cxx, buildProgram(t, "c", cProgram), stripped(t, cxx)} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		all := mustReadELF(t, path)
		for _, n := range []int{0, 1, 2000} {
			offsets := someAddrs(r, n, uint64(st.Size()))
			part, err := (&loader{offsets: offsets, scratch: mem}).read(f, st.Size())
			if err != nil {
				t.Fatal(err)
			}
			if n < 2000 && part.Len() > 2*n {
				t.Errorf("%s: %d symbols for %d addresses", path, part.Len(), n)
			}
			var addrs []uint64
			for _, off := range offsets {
				addrs = append(addrs, all.Addr(0, 0, off))
			}
			sameLookups(t, addrs, &part.Table, &all.Table)
		}
	}
}

// TestKallsymsAt compares with a table of all symbols.
func TestKallsymsAt(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const base, span = 0xffffffff81000000, 60_000
	for round := range 100 {
		var b strings.Builder
		fmt.Fprintf(&b, "%x T _text\n", uint64(base))
		at := uint64(base)
		for i := range 1 + r.IntN(60) {
			if at += r.Uint64N(2000); r.IntN(10) == 0 {
				at = base + r.Uint64N(span) // out of order
			}
			module := ""
			if r.IntN(3) == 0 {
				module = fmt.Sprintf("\t[m%d]", r.IntN(3))
			}
			fmt.Fprintf(&b, "%x %c f%d%s\n", at, "TtWdb"[r.IntN(5)], i, module)
		}
		addrs := someAddrs(r, r.IntN(30), span+5000)
		for i := range addrs {
			addrs[i] += base
		}
		got, err := ReadKallsymsAt(strings.NewReader(b.String()), addrs)
		if err != nil {
			t.Fatal(err)
		}
		want, err := ReadKallsyms(strings.NewReader(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		if t.Run("", func(t *testing.T) { sameLookups(t, addrs, &got.Table, &want.Table) }); t.Failed() {
			t.Fatalf("round %d:\n%s", round, b.String())
		}
		for _, addr := range addrs {
			if sym, ok := got.Lookup(addr); ok {
				w, _ := want.Lookup(addr)
				if g, w := got.DSO(sym), want.DSO(w); g != w {
					t.Fatalf("round %d: %#x is in %s, want %s:\n%s", round, addr, g, w, b.String())
				}
			}
		}
		if got.Text() != want.Text() {
			t.Fatalf("text at %#x, want %#x", got.Text(), want.Text())
		}
	}
}

// TestKallsymsAtErrors: a part of the symbols is read as strictly as all.
func TestKallsymsAtErrors(t *testing.T) {
	for _, text := range []string{"no kallsyms", "0000000000000000 T _text\n0000000000000000 T f\n"} {
		_, all := ReadKallsyms(strings.NewReader(text))
		_, part := ReadKallsymsAt(bytes.NewReader([]byte(text)), []uint64{1})
		if all == nil || part == nil || all.Error() != part.Error() {
			t.Errorf("%q: %v, want %v", text, part, all)
		}
	}
}
