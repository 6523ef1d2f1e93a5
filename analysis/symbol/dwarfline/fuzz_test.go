// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const fuzzProgram = `
static inline __attribute__((always_inline)) int twice(int x) { return x * 2; }
static inline __attribute__((always_inline)) int more(int x) { return twice(x) + 1; }
volatile int sink;
int main(int argc, char **argv) { for (int i = 0; i < argc; i++) sink += more(i); return sink; }
`

// source compiles the program and reads its DWARF.
func source(t testing.TB, flags ...string) *Source {
	t.Helper()
	return load(t, program(t, flags...))
}

// program compiles the program.
func program(t testing.TB, flags ...string) string {
	t.Helper()
	testutil.Require(t, testutil.Tool("gcc"))
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.c"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(fuzzProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("gcc", append(flags, "-O2", "-g", "-o", out, in)...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	return out
}

func load(t testing.TB, path string) *Source {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(file)
	if err != nil {
		t.Fatal(err)
	}
	src, err := Load(f, file, uint64(info.Size()), false)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// FuzzDWARF checks that every address that a unit claims can be asked for, that
// the answer is the same the second time, that segments and sequences are in
// order, and that the work stays within what the size allows for.
func FuzzDWARF(f *testing.F) {
	for _, flags := range [][]string{{"-gdwarf-5"}, {"-gdwarf-4"}, {"-gdwarf-2"}, {"-gdwarf64"}} {
		s := source(f, flags...)
		f.Add(s.Info, s.Abbrev, s.Line, s.Str, s.LineStr, s.Ranges, s.Rnglists, false)
	}
	f.Fuzz(func(t *testing.T, info, abbrev, line, str, lineStr, ranges, rnglists []byte, big bool) {
		src := &Source{Info: info, Abbrev: abbrev, Line: line, Str: str, LineStr: lineStr, Ranges: ranges, Rnglists: rnglists,
			Addr: ranges, StrOffsets: rnglists, BigEndian: big}
		d := New(src, &Options{
			Alt:     func() *Source { return src },
			Split:   func(string, string) *Source { return src },
			Package: func() *Source { return &Source{CUIndex: rnglists, Info: info, Abbrev: abbrev} },
		})
		d.index()
		for i, r := range d.ranges {
			if i == 64 {
				break
			}
			for _, addr := range []uint64{r.start, r.start + (r.end-r.start)/2, r.end - 1} {
				calls := d.Calls(nil, addr)
				if again := d.Calls(nil, addr); !slices.Equal(calls, again) && d.Err() == nil {
					t.Fatalf("%#x: %v, then %v", addr, calls, again)
				}
				checkUnit(t, r.unit)
			}
		}
		if least := -int64(64 * (src.Size() + 1<<16)); d.fuel < least {
			t.Fatalf("fuel %d", d.fuel)
		}
	})
}

func checkUnit(t *testing.T, u *unit) {
	t.Helper()
	if !slices.IsSorted(u.tree.starts) || len(u.tree.starts) != len(u.tree.inner) {
		t.Fatalf("segments %x", u.tree.starts)
	}
	for i, f := range u.tree.funcs {
		if int(f.parent) >= i || f.parent < -1 {
			t.Fatalf("function %d is in function %d", i, f.parent)
		}
	}
	for i := 1; u.lines.seqs == nil && i < len(u.lines.rows); i++ {
		if u.lines.rows[i].addr < u.lines.rows[i-1].addr {
			t.Fatalf("row %d at %#x, the one before at %#x", i, u.lines.rows[i].addr, u.lines.rows[i-1].addr)
		}
	}
	for _, s := range u.lines.seqs {
		if s.end <= s.start || int(s.first)+int(s.n) > len(u.lines.rows) {
			t.Fatalf("sequence %+v of %d rows", s, len(u.lines.rows))
		}
	}
}
