// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	gopath "path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol/dwarfline"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// files opens what is on the disk, as package binfile does below a root.
type files struct{}

var (
	_ LinkOpener  = files{}
	_ DebugOpener = files{}
)

func (files) Open(ref Ref) (File, int64, error) {
	f, err := os.Open(ref.Path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	return f, info.Size(), err
}

func (x files) OpenLink(_ Ref, path string) (File, int64, error) { return x.Open(Ref{Path: path}) }

func (x files) OpenDebug(ref Ref) (File, int64, error) {
	id := ref.BuildID.String()
	return x.Open(Ref{Path: "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug"})
}

// randomAddresses are addresses in the code of a program, the same each time.
func randomAddresses(t *testing.T, path string, n int) []uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := f.Section(".text")
	rnd := rand.New(rand.NewPCG(1, 2))
	list := make([]uint64, n)
	for i := range list {
		list[i] = text.Addr + rnd.Uint64N(text.Size)
	}
	return list
}

// symbolizer asks llvm-symbolizer for the calls at addresses.
func symbolizer(t *testing.T, path string, addrs []uint64) [][]Call {
	t.Helper()
	tool, err := exec.LookPath("llvm-symbolizer")
	if err != nil {
		testutil.NotHere(t, "needs llvm-symbolizer: %v", err)
	}
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command(tool, "--obj="+path, "--no-demangle", "--inlines", "--functions=linkage")
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list [][]Call
	var calls []Call
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		name := s.Text()
		if name == "" {
			list, calls = append(list, calls), nil
			continue
		}
		s.Scan()
		place := s.Text()
		place = place[:strings.LastIndexByte(place, ':')] // the column
		colon := strings.LastIndexByte(place, ':')
		line, _ := strconv.ParseUint(place[colon+1:], 10, 32)
		c := Call{Name: Demangle(name), File: place[:colon], Line: uint32(line)}
		if c.Name == "??" {
			c.Name = ""
		}
		if c.File == "??" {
			c.File = ""
		}
		calls = append(calls, c)
	}
	return list
}

// named gives the outermost call the name that the program's symbols have, as
// llvm-symbolizer and the reports do.
func named(o *Object, calls []Call, addr uint64) []Call {
	sym, ok := o.Lookup(addr)
	switch {
	case !ok:
	case len(calls) == 0:
		return []Call{{Name: o.Demangled(sym)}}
	default:
		calls[len(calls)-1].Name = o.Demangled(sym)
	}
	return calls
}

// differences compares calls, and counts by kind what is not the same.
func differences(t *testing.T, path string, addrs []uint64) map[string]int {
	t.Helper()
	lines := NewResolver(files{}).Lines(Ref{Path: path, BuildID: idOf(t, path)})
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	o, aliases := mustReadELF(t, path), readAliases(t, path)
	kinds := make(map[string]int)
	var calls []Call
	inlined := 0
	for i, want := range symbolizer(t, path, addrs) {
		calls = named(o, lines.Calls(calls[:0], addrs[i]), addrs[i])
		inlined += max(0, len(calls)-1)
		kind := difference(calls, want)
		if kind == "name of the function" && aliases.have(o, addrs[i], want[len(want)-1].Name) {
			continue // several functions have the same code; it takes another of the names
		}
		if kind != "" {
			if kinds[kind]++; kinds[kind] <= 3 {
				t.Logf("%s at %#x:\n got %v\nwant %v", kind, addrs[i], calls, want)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	if inlined == 0 {
		t.Error("no inlined calls: nothing is tested")
	}
	return kinds
}

// aliases are the names of the symbols of a program, by address.
type aliases map[uint64][]string

func readAliases(t *testing.T, path string) aliases {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	a := make(aliases)
	for _, s := range syms {
		a[s.Value] = append(a[s.Value], Demangle(s.Name))
	}
	return a
}

func (a aliases) have(o *Object, addr uint64, name string) bool {
	sym, ok := o.Lookup(addr)
	return ok && slices.Contains(a[o.Sym(sym).Start], name)
}

func difference(got, want []Call) string {
	switch {
	case len(got) == 0 && len(want) == 1 && want[0] == Call{}:
		return ""
	case len(got) != len(want):
		return "number of calls"
	}
	for i := range want {
		g, w := got[i], want[i]
		switch {
		case g.Name != w.Name && i == len(want)-1:
			return "name of the function"
		case g.Name != w.Name:
			return "name of an inlined call"
		case g.File == "" && w.Line == 0:
			continue // it takes the file from the symbols
		case g.File != w.File && gopath.Clean(g.File) != gopath.Clean(w.File): // a "." too many
			return "file"
		case g.Line != w.Line:
			return "line"
		}
	}
	return ""
}

func idOf(t *testing.T, path string) buildid.ID {
	t.Helper()
	return mustReadELF(t, path).BuildID
}

// linesProgram has calls that compilers inline, and functions in sections of
// their own.
const linesProgram = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static inline __attribute__((always_inline)) int twice(int x) {
	return x * 2;
}
static inline __attribute__((always_inline)) int more(int x) {
	if (x > 1000)
		x -= 1000;
	return twice(x) + 1;
}
static int compare(const void *a, const void *b) { return more(*(const int *)a) - twice(*(const int *)b); }
__attribute__((noinline)) int work(int *list, int n) {
	int s = 0;
	for (int i = 0; i < n; i++)
		s += more(list[i]) ^ twice(i);
	qsort(list, n, sizeof *list, compare);
	return s;
}
int main(int argc, char **argv) {
	int list[64];
	for (int i = 0; i < 64; i++)
		list[i] = more(i * argc) + (int)strlen(argv[0]);
	printf("%d\n", work(list, 64));
	return list[0] > more(argc);
}
`

// bigProgram has many calls that compilers inline.
const bigProgram = `
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>
namespace {
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square : Shape { double s; explicit Square(double s) : s(s) {} double area() const override { return s * s; } };
struct Circle : Shape { double r; explicit Circle(double r) : r(r) {} double area() const override { return 3.14 * r * r; } };
template <class T> T sum(const std::vector<T> &v) { T t{}; for (auto &x : v) t += x; return t; }
}
int main(int argc, char **argv) {
	std::vector<std::unique_ptr<Shape>> shapes;
	for (int i = 0; i < argc * 10; i++)
		if (i % 2) shapes.push_back(std::make_unique<Square>(i)); else shapes.push_back(std::make_unique<Circle>(i));
	std::sort(shapes.begin(), shapes.end(), [](auto &a, auto &b) { return a->area() < b->area(); });
	std::map<std::string, std::vector<double>> groups;
	for (auto &s : shapes) groups[std::to_string(int(s->area()) % 7)].push_back(s->area());
	std::vector<std::string> words;
	for (auto &[k, v] : groups) words.push_back(k + " " + std::to_string(sum(v)));
	std::stable_sort(words.rbegin(), words.rend(), [&](auto &a, auto &b) { return a.size() + argc < b.size(); });
	for (auto &w : words) std::puts(w.c_str());
	return std::stable_partition(argv, argv + argc, [](char *s) { return *s == 'x'; }) == argv;
}
`

// Lines and inlined calls are those of llvm-symbolizer, for what compilers and
// packagers make of DWARF.
func TestLinesAgainstLLVM(t *testing.T) {
	for _, tt := range []struct {
		name, lang, source string
		flags              []string
	}{
		{"C", "c", linesProgram, []string{"-g", "-O2"}},
		{"C DWARF 4", "c", linesProgram, []string{"-gdwarf-4", "-O1"}},
		{"C DWARF 2", "c", linesProgram, []string{"-gdwarf-2", "-gstrict-dwarf", "-O2"}},
		{"C 64-bit DWARF", "c", linesProgram, []string{"-g", "-gdwarf64", "-O2"}},
		{"C sections", "c", linesProgram, []string{"-g", "-O2", "-ffunction-sections", "-Wl,--gc-sections"}},
		{"clang", "clang", linesProgram, []string{"-g", "-O2"}},
		{"clang DWARF 5", "clang", linesProgram, []string{"-gdwarf-5", "-O2"}},
		{"C++ split", "c++", cxxProgram, []string{"-g", "-O2", "-gsplit-dwarf"}},
		{"C++ split DWARF 4", "c++", cxxProgram, []string{"-gdwarf-4", "-O2", "-gsplit-dwarf", "-fdebug-types-section"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			compareLLVM(t, buildProgram(t, tt.lang, tt.source, tt.flags...))
		})
	}
	// llvm-symbolizer does not find what clang splits off.
	t.Run("clang split", func(t *testing.T) {
		sameCalls(t, buildProgram(t, "clang", linesProgram, "-gdwarf-5", "-O2"), buildProgram(t, "clang", linesProgram, "-gdwarf-5", "-O2", "-gsplit-dwarf"))
	})
	t.Run("Go", func(t *testing.T) { compareLLVM(t, buildGo(t)) })
	t.Run("Rust", func(t *testing.T) { compareLLVM(t, buildRust(t)) })
	big := buildProgram(t, "c++", bigProgram, "-g", "-O2")
	t.Run("C++", func(t *testing.T) { compareLLVM(t, big) })
	for _, kind := range []string{"zlib", "zlib-gnu", "zstd"} {
		t.Run(kind, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "program")
			if text, err := exec.Command("objcopy", "--compress-debug-sections="+kind, big, out).CombinedOutput(); err != nil {
				testutil.NotHere(t, "needs an objcopy that knows %s: %v\n%s", kind, err, text)
			}
			sameCalls(t, big, out)
		})
	}
}

// inAnyDirectory leaves of paths the last part.
func inAnyDirectory(calls []Call) []Call {
	for i := range calls {
		calls[i].File = gopath.Base(calls[i].File)
	}
	return calls
}

const goProgram = `package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ s float64 }

func (q square) area() float64 { return q.s * q.s }

func main() {
	var list []shape
	for i := range len(os.Args) * 10 {
		list = append(list, square{float64(i)})
	}
	sort.Slice(list, func(a, b int) bool { return list[a].area() < list[b].area() })
	var b strings.Builder
	for _, s := range list {
		fmt.Fprintf(&b, "%v ", s.area())
	}
	fmt.Println(b.String())
}
`

// buildGo compiles a Go program and returns its path.
func buildGo(t *testing.T, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(goProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), src)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}

const rustProgram = `use std::collections::HashMap;
fn main() {
    let mut m: HashMap<String, Vec<usize>> = HashMap::new();
    for (i, a) in std::env::args().chain((0..20).map(|n| n.to_string())).enumerate() {
        m.entry(a.chars().rev().collect()).or_default().push(i);
    }
    let mut k: Vec<_> = m.into_iter().collect();
    k.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
    println!("{:?}", k);
}
`

// buildRust compiles a Rust program and returns its path.
func buildRust(t *testing.T) string {
	t.Helper()
	rustc := rustCompiler(t)
	dir := t.TempDir()
	src, out := filepath.Join(dir, "main.rs"), filepath.Join(dir, "program")
	if err := os.WriteFile(src, []byte(rustProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command(rustc, "-g", "-O", "-o", out, src).CombinedOutput(); err != nil {
		t.Fatalf("rustc: %v\n%s", err, text)
	}
	return out
}

// rustCompiler is a compiler that works: rustup's is there without one behind it
// if none was chosen, but may have some.
func rustCompiler(t *testing.T) string {
	t.Helper()
	list := []string{"rustc"}
	if home, err := os.UserHomeDir(); err == nil {
		more, _ := filepath.Glob(filepath.Join(home, ".rustup/toolchains/*/bin/rustc"))
		list = append(list, more...)
	}
	var last error
	for _, rustc := range list {
		if last = exec.Command(rustc, "--version").Run(); last == nil {
			return rustc
		}
	}
	testutil.NotHere(t, "needs a Rust compiler: rustc: %v", last)
	return ""
}

// A stripped Go program has the functions and lines of the whole one.
func TestStrippedGo(t *testing.T) {
	whole, bare := buildGo(t), buildGo(t, "-ldflags=-s -w")
	a, b := mustReadELF(t, whole), mustReadELF(t, bare)
	if a.Source(0) != "symtab" || b.Source(0) != "pclntab" {
		t.Errorf("%s and %s", a.Source(0), b.Source(0))
	}
	lines := NewResolver(files{}).Lines(Ref{Path: bare})
	const n = 2000
	unnamed, inlined := 0, 0
	for _, addr := range randomAddresses(t, whole, n) {
		x, ok := a.Lookup(addr)
		if !ok {
			continue
		}
		y, ok := b.Lookup(addr)
		if !ok || !strings.HasPrefix(a.Name(x), b.Name(y)[:min(4, len(b.Name(y)))]) {
			unnamed++
			continue
		}
		calls := lines.Calls(nil, addr)
		if len(calls) == 0 || calls[0].Line == 0 || calls[0].File == "" || calls[0].Source != "pclntab" {
			t.Fatalf("%#x in %s: %v", addr, a.Name(x), calls)
		}
		inlined += len(calls) - 1
	}
	if unnamed > n/100 || inlined < n/100 || lines.Err() != nil {
		t.Errorf("%d of %d addresses have no name, %d inlined calls, %v", unnamed, n, inlined, lines.Err())
	}
}

// A package of split DWARF beside the program is as good as the files that it
// was made of.
func TestSplitPackage(t *testing.T) {
	tool, err := exec.LookPath("dwp") // which knows no DWARF 5
	if err != nil {
		testutil.Lacks(t, "needs dwp: %v", err)
	}
	path := buildProgram(t, "c", linesProgram, "-O2", "-gsplit-dwarf", "-gdwarf-4")
	want := 0
	lines := NewResolver(files{}).Lines(Ref{Path: path})
	addrs := randomAddresses(t, path, 500)
	var calls [][]Call
	for _, addr := range addrs {
		c := lines.Calls(nil, addr)
		calls, want = append(calls, c), want+max(0, len(c)-1)
	}
	if want == 0 {
		t.Fatal("no inlined calls: nothing is tested")
	}
	pack := exec.CommandContext(t.Context(), tool, "-e", path, "-o", path+".dwp")
	pack.Dir = filepath.Dir(path)
	if text, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", "dwp", err, text)
	}
	dwo, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.dwo"))
	if err != nil || len(dwo) == 0 {
		t.Fatal(dwo, err)
	}
	for _, name := range dwo {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(path+".dwp", path+".away"); err != nil {
		t.Fatal(err)
	}
	checkSplit(t, path, addrs, "is not there")
	// The file of another program, which the compiler calls the same.
	other, err := filepath.Glob(filepath.Join(filepath.Dir(buildProgram(t, "c", linesProgram+"\nint another_build;\n", "-O2", "-gsplit-dwarf", "-gdwarf-4")), "*.dwo"))
	if err != nil || len(other) != len(dwo) {
		t.Fatal(other, err)
	}
	for i, name := range dwo {
		if err := os.Rename(other[i], name); err != nil {
			t.Fatal(err)
		}
	}
	checkSplit(t, path, addrs, "is of another build")
	if err := os.Rename(path+".away", path+".dwp"); err != nil {
		t.Fatal(err)
	}
	lines = NewResolver(files{}).Lines(Ref{Path: path})
	for i, addr := range addrs {
		if got := lines.Calls(nil, addr); !slices.Equal(got, calls[i]) {
			t.Fatalf("%#x: %v, before it was packed %v", addr, got, calls[i])
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

// checkSplit: without its split DWARF a program has no inlined calls, which is told.
func checkSplit(t *testing.T, path string, addrs []uint64, why string) {
	t.Helper()
	lines := NewResolver(files{}).Lines(Ref{Path: path})
	for _, addr := range addrs {
		if c := lines.Calls(nil, addr); len(c) > 1 {
			t.Fatalf("%#x: %v", addr, c)
		}
	}
	if err := lines.Err(); !errors.Is(err, dwarfline.ErrSplit) || !strings.Contains(err.Error(), why) {
		t.Errorf("%v, want: %s", err, why)
	}
}

// sameCalls compares the calls of two forms of one program.
func sameCalls(t *testing.T, path, other string) {
	t.Helper()
	a := NewResolver(files{}).Lines(Ref{Path: path})
	b := NewResolver(files{}).Lines(Ref{Path: other})
	for _, addr := range randomAddresses(t, path, 2000) {
		if x, y := inAnyDirectory(a.Calls(nil, addr)), inAnyDirectory(b.Calls(nil, addr)); !slices.Equal(x, y) {
			t.Fatalf("%#x: %v and %v", addr, x, y)
		}
	}
	if a.Err() != nil || b.Err() != nil {
		t.Error(a.Err(), b.Err())
	}
}

func compareLLVM(t *testing.T, path string) {
	t.Helper()
	const n = 10_000
	kinds := differences(t, path, randomAddresses(t, path, n))
	for kind, count := range kinds {
		t.Errorf("%s: %d of %d differ", kind, count, n)
	}
}

// The functions of a stripped Go program are there also for who asks for some.
func TestStrippedGoInPart(t *testing.T) {
	path := buildGo(t, "-ldflags=-s -w")
	o := mustReadELF(t, path)
	r := NewResolver(files{})
	var offsets []uint64
	addrs := randomAddresses(t, path, 200)
	for _, addr := range addrs {
		offsets = append(offsets, addr-o.exec.Vaddr+o.exec.Offset)
	}
	part, err := r.ObjectAt(Ref{Path: path}, offsets)
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, addr := range addrs {
		x, ok := o.Lookup(addr)
		if !ok {
			continue
		}
		y, ok := part.Lookup(addr)
		if !ok || part.Name(y) != o.Name(x) {
			t.Fatalf("%#x is not in %s", addr, o.Name(x))
		}
		named++
	}
	if named < 150 {
		t.Errorf("%d of %d named", named, len(addrs))
	}
}
