// SPDX-License-Identifier: Apache-2.0

package pclntab

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol/dwarfline"
)

const program = `package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

func sum[T int | float64](list []T) (t T) {
	for _, x := range list {
		t += twice(x)
	}
	return t
}

func twice[T int | float64](x T) T { return x + x }

func main() {
	var list []int
	for i := range len(os.Args) * 10 {
		list = append(list, i*7%10)
	}
	sort.Slice(list, func(a, b int) bool { return list[a] < list[b] })
	fmt.Println(sum(list), sum([]float64{1, 2}), strings.Repeat("x", sum(list)))
}
`

// build compiles the program and returns its path.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), src)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}

// open opens a program.
func open(t testing.TB, path string) (*elf.File, *os.File, uint64) {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	info, err := r.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	return f, r, uint64(info.Size())
}

func read(t testing.TB, path string) *Table {
	t.Helper()
	f, r, size := open(t, path)
	table, err := Read(f, r, size)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// addresses are addresses in the code of a program, the same each time.
func addresses(t testing.TB, path string, n int) []uint64 {
	t.Helper()
	f, _, _ := open(t, path)
	text := f.Section(".text")
	rnd := rand.New(rand.NewPCG(1, 2))
	list := make([]uint64, n)
	for i := range list {
		list[i] = text.Addr + rnd.Uint64N(text.Size)
	}
	return list
}

// plain leaves out of a name the types that DWARF has and the table has not.
func plain(name string) string {
	if open := strings.IndexByte(name, '['); open >= 0 {
		if end := strings.LastIndexByte(name, ']'); end > open {
			return name[:open] + "[...]" + name[end+1:]
		}
	}
	return name
}

// The table says what DWARF does.
func TestAgainstDWARF(t *testing.T) {
	const n = 10_000
	path := build(t)
	f, r, size := open(t, path)
	src, err := dwarfline.Load(f, r, size, false)
	if err != nil {
		t.Fatal(err)
	}
	dwarf, table := dwarfline.New(src, nil), read(t, path)
	inlined, differ, missing := 0, 0, 0
	for _, addr := range addresses(t, path, n) {
		want, got := dwarf.Calls(nil, addr), table.Calls(nil, addr)
		inlined += max(0, len(got)-1)
		if len(want) == 0 {
			missing++
			continue
		}
		if same(want, got) {
			continue
		}
		if differ++; differ <= 20 {
			t.Logf("%#x\n got %v\nwant %v", addr, got, want)
		}
	}
	t.Logf("%d of %d differ, %d inlined, DWARF lacks %d", differ, n, inlined, missing)
	if differ > n/100 || inlined < n/100 || missing > n/10 {
		t.Errorf("%d of %d differ, %d inlined, DWARF lacks %d", differ, n, inlined, missing)
	}
}

func same(want []dwarfline.Call, got []Call) bool {
	if len(want) != len(got) {
		return false
	}
	for i := range want {
		w, g := want[i], got[i]
		if plain(w.Name) != plain(g.Name) || w.Line != g.Line || strings.TrimPrefix(w.File, "./") != g.File {
			return false
		}
	}
	return true
}

// A stripped program has the same table.
func TestStripped(t *testing.T) {
	whole, bare := build(t), build(t, "-ldflags=-s -w")
	a, b := read(t, whole), read(t, bare)
	if a.Len() != b.Len() || a.Len() < 1000 {
		t.Fatalf("%d and %d functions", a.Len(), b.Len())
	}
	f, _, _ := open(t, whole)
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[uint64]map[string]bool{}
	for _, s := range syms {
		if names[s.Value] == nil {
			names[s.Value] = map[string]bool{}
		}
		names[s.Value][plain(strings.TrimSuffix(s.Name, ".abi0"))] = true
	}
	wrong := 0
	for i := range b.Len() {
		name, start, end := b.Func(i)
		if end <= start {
			t.Fatalf("%s: %#x to %#x", name, start, end)
		}
		if plain(name) != "" && !names[start][plain(name)] && !strings.HasPrefix(name, "go:") {
			wrong++
			t.Logf("%s at %#x: %v", name, start, names[start])
		}
	}
	if wrong > b.Len()/100 {
		t.Errorf("%d of %d functions have another name in the symbols", wrong, b.Len())
	}
}

// This very program's runtime gives the same answers.
func TestAgainstRuntime(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	table := read(t, path)
	for _, skip := range []int{0, 1} {
		pc, file, line, ok := runtime.Caller(skip)
		if !ok {
			t.Fatal("no caller")
		}
		calls := table.Calls(nil, uint64(pc)-1)
		if len(calls) == 0 {
			t.Fatalf("%#x is not known", pc)
		}
		last := calls[len(calls)-1]
		if last.Name != runtime.FuncForPC(pc).Name() || last.File != file || int(last.Line) != line {
			t.Errorf("%v, want %s:%d", calls, file, line)
		}
	}
}
