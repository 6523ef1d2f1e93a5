// SPDX-License-Identifier: Apache-2.0

package symbol

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// BenchmarkLines names 50,000 random addresses of the program of
// GANTRY_BENCH_ELF, with lines and inlined calls, from the opening of the file:
// without and with what a store has kept of the time before. llvm-symbolizer
// does the same work.
func BenchmarkLines(b *testing.B) {
	path := os.Getenv("GANTRY_BENCH_ELF")
	if path == "" {
		testutil.NotHere(b, "GANTRY_BENCH_ELF names no program")
	}
	dir := b.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".build-id"), 0o755); err != nil {
		b.Fatal(err)
	}
	store, err := buildid.OpenStore(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	for _, c := range []struct {
		name  string
		cache Cache
	}{{"cold", nil}, {"first", store}, {"second", store}} {
		b.Run(c.name, func(b *testing.B) {
			start := cpuTime(b)
			for b.Loop() {
				nameAddresses(b, path, c.cache, 50_000)
			}
			b.ReportMetric((cpuTime(b)-start)/float64(b.N), "cpu-s/op")
		})
	}
}

func nameAddresses(b *testing.B, path string, c Cache, n int) {
	r := NewResolver(files{})
	r.UseCache(c)
	ref := Ref{Path: path}
	o, err := r.Object(ref)
	if err != nil {
		b.Fatal(err)
	}
	lines := r.Lines(ref)
	rnd := rand.New(rand.NewPCG(1, 2))
	text := o.exec
	var calls []Call
	named := 0
	for range n {
		addr := text.Vaddr + rnd.Uint64N(text.FileSize)
		calls = lines.Calls(calls[:0], addr)
		if sym, ok := o.Lookup(addr); ok && len(calls) > 0 {
			calls[len(calls)-1].Name = o.Demangled(sym)
			named++
		}
	}
	r.SaveLines()
	if err := lines.Err(); err != nil || named < n/2 {
		b.Fatal(named, err)
	}
}

// cpuTime is what this process has used, in seconds.
func cpuTime(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
