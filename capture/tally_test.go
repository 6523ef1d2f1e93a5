// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// BenchmarkScan is what the recorder does with each sample, in memory that is in no
// cache: that of a ring was written by another CPU.
func BenchmarkScan(b *testing.B) {
	for _, frames := range []int{0, 8, 32} {
		ev := perf.NewEvent(perf.Attr{
			Type: perf.TypeSoftware, Config: perf.SWCPUClock, SampleType: perf.RawSampleType | perf.SampleCallchain | perf.SampleCgroup,
		}, "cpu-clock", 7)
		one, err := perf.Append(nil, &perf.Sample{ID: 7, Time: 1, Callchain: make([]uint64, frames), Cgroup: 3}, perf.NativeOrder, ev)
		if err != nil {
			b.Fatal(err)
		}
		ring := make([]byte, 0, 256<<20)
		for len(ring)+len(one) <= cap(ring) {
			ring = append(ring, one...)
		}
		b.Run(map[int]string{0: "no stacks", 8: "8 frames", 32: "32 frames"}[frames], func(b *testing.B) {
			s := scanner{cgroupLast: true, cgroups: map[uint64]uint64{}, lost: map[uint64]uint64{}}
			size, off := (1<<20)/len(one)*len(one), 0
			b.SetBytes(int64(size))
			for b.Loop() {
				var t tally
				if off+size > len(ring) {
					off = 0
				}
				if err := s.scan(ring[off:off+size], nil, &t); err != nil || t.samples == 0 {
					b.Fatal(t, err)
				}
				off += size
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size/len(one)), "ns/sample")
		})
	}
}
