// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// benchFile is the file named by PERF_DATA, or made up: 4 CPUs, rounds of 8,000
// samples with stacks of 15 frames.
func benchFile(b *testing.B) string {
	if path := os.Getenv("PERF_DATA"); path != "" {
		return path
	}
	f, err := os.Create(filepath.Join(b.TempDir(), "perf.data"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	ev := testEvents()
	w, err := NewWriter(f, ev, nil)
	if err != nil {
		b.Fatal(err)
	}
	s := sample(0)
	s.Callchain = make([]uint64, 15)
	const cpus, rounds, perRound = 4, 100, 2000
	for round := range uint64(rounds) {
		for cpu := range uint64(cpus) {
			for i := range uint64(perRound) {
				s.Time = 1 + round*perRound*50 + i*50 + (cpu*37+i*7)%49
				if err := w.WriteRecord(s, ev[0]); err != nil {
					b.Fatal(err)
				}
			}
		}
		if err := w.FinishRound(); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		b.Fatal(err)
	}
	return f.Name()
}

func bench(b *testing.B, ordered bool) {
	path := benchFile(b)
	b.ReportAllocs()
	b.ResetTimer()
	samples := 0
	for b.Loop() {
		r, err := Open(path, nil)
		if err != nil {
			b.Fatal(err)
		}
		next := r.Next
		if ordered {
			next = r.Ordered().Next
		}
		for {
			rec, err := next()
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			if rec.Type == perf.RecordSample {
				samples++
			}
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(samples), "ns/sample")
}

// BenchmarkNext: file order. With PERF_DATA=perf.data it reads that file.
func BenchmarkNext(b *testing.B) { bench(b, false) }

// BenchmarkOrdered: time order.
func BenchmarkOrdered(b *testing.B) { bench(b, true) }
