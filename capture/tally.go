// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/perf"
)

// tally is what the headers of a ring's records tell.
type tally struct {
	records, samples uint64
	first, last      uint64 // times of samples
	lost             uint64 // records that the kernel had no room for
	lostSamples      uint64 // samples that the hardware dropped
	owing            uint64 // lost, to be put down to the cgroup of the ring's next sample
}

// scanner looks at the records of a ring of samples before they are written.
type scanner struct {
	// cgroupLast: a sample ends with its cgroup.
	cgroupLast bool
	// cgroups counts samples by cgroup; lost is the records that were lost
	// while a task of the cgroup ran.
	cgroups map[uint64]uint64
	lost    map[uint64]uint64

	run uint64 // cgroup of the samples that n counts
	n   uint64
}

// scan walks the headers in what Peek returned and adds to t. The kernel puts
// a LOST record right before the record that found room again, so that the
// loss is put down to the cgroup of the sample behind it.
func (s *scanner) scan(a, b []byte, t *tally) error {
	data := perf.RingData{A: a, B: b}
	total := data.Len()
	for off := 0; off < total; {
		typ, size, ok := data.Header(off)
		if !ok {
			return fmt.Errorf("read ring: %w",
				&perfevent.RecordError{Offset: off, Size: uint16(size), Left: total - off})
		}
		t.records++
		switch {
		case typ == perf.RecordSample && size >= perf.RawSampleMin:
			s.sample(data.SampleTime(off), data.LastWord(off, size), t)
		case typ == perf.RecordLost:
			n := data.Lost(off, size)
			t.lost += n
			t.owing += n
		case typ == perf.RecordLostSamples:
			t.lostSamples += data.LostSamples(off, size)
		}
		off += size
	}
	return nil
}

func (s *scanner) sample(time, last uint64, t *tally) {
	t.samples++
	if t.first == 0 || time < t.first {
		t.first = time
	}
	t.last = max(t.last, time)
	if !s.cgroupLast {
		return
	}
	if last != s.run {
		s.settle()
		s.run = last
	}
	s.n++
	if t.owing != 0 {
		addCount(s.lost, last, t.owing)
		t.owing = 0
	}
}

// settle counts the samples of the current run.
func (s *scanner) settle() {
	if s.n != 0 {
		addCount(s.cgroups, s.run, s.n)
		s.n = 0
	}
}

// maxCounted bounds the cgroups that samples are counted by.
const maxCounted = 1 << 18

// addCount adds to the account of a cgroup, or where there are too many to that of
// none.
func addCount(m map[uint64]uint64, cgroup, n uint64) {
	if _, known := m[cgroup]; !known && len(m) >= maxCounted {
		cgroup = 0
	}
	m[cgroup] += n
}
