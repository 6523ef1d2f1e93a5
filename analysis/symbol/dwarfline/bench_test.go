// SPDX-License-Identifier: Apache-2.0

package dwarfline

import (
	"debug/elf"
	"os"
	"testing"
)

// open reads the DWARF of a program.
func open(t testing.TB, path string, o *Options) *Data {
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
	return New(src, o)
}

// BenchmarkCalls asks for addresses all over the program of GANTRY_BENCH_ELF.
func BenchmarkCalls(b *testing.B) {
	path := os.Getenv("GANTRY_BENCH_ELF")
	if path == "" {
		b.Skip("GANTRY_BENCH_ELF names no program")
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
