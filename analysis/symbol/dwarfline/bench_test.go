// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"os"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// open reads the DWARF of a program.
func open(t testing.TB, path string, o *Options) *Data {
	t.Helper()
	return New(load(t, path), o)
}

// BenchmarkCalls asks for addresses all over the program of GANTRY_BENCH_ELF.
func BenchmarkCalls(b *testing.B) {
	path := os.Getenv("GANTRY_BENCH_ELF")
	if path == "" {
		testutil.NotHere(b, "GANTRY_BENCH_ELF names no program")
	}
	for b.Loop() {
		d := open(b, path, nil)
		d.index()
		var calls []Call
		n := 0
		for _, r := range d.ranges {
			for addr := r.start; addr < r.end; addr += 256 {
				calls = d.Calls(calls[:0], addr)
				n++
			}
		}
		b.ReportMetric(float64(n), "addresses")
		b.ReportMetric(float64(len(d.main.units)), "units")
		if d.Err() != nil {
			b.Fatal(d.Err())
		}
	}
}
