// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// goCompiler is the path of Go's compiler, a large binary that every developer
// has.
func goCompiler(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOTOOLDIR").Output()
	if err != nil {
		testutil.Lacks(t, "needs the go command: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "compile")
}

func BenchmarkReadELF(b *testing.B) {
	f, err := os.Open(goCompiler(b))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		o, err := ReadELF(f, st.Size())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(o.Len()), "symbols")
	}
}

func BenchmarkLookup(b *testing.B) {
	o := mustReadELF(b, goCompiler(b))
	rng := rand.New(rand.NewPCG(1, 2))
	addrs := make([]uint64, 1<<16)
	for i := range addrs {
		s := o.Sym(rng.Int32N(int32(o.Len())))
		addrs[i] = s.Start + rng.Uint64N(s.End-s.Start)
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if _, ok := o.Lookup(addrs[i&(len(addrs)-1)]); !ok {
			b.Fatal("address of a symbol not found")
		}
	}
}

func BenchmarkReadKallsyms(b *testing.B) {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		testutil.NotHere(b, "needs /proc/kallsyms: %v", err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		k, err := ReadKallsyms(bytes.NewReader(text))
		if err != nil {
			testutil.NotHere(b, "cannot read kernel symbols: %v", err)
		}
		b.ReportMetric(float64(k.Len()), "symbols")
	}
}
