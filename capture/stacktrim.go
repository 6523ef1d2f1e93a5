// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"fmt"
	"math/bits"

	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/perf"
)

// trimmer takes out of samples the part of a dumped stack that the kernel left
// empty: it makes room for as many bytes as the event asks for, and has less to
// copy where the stack ends before.
type trimmer struct {
	events  *perf.Events
	sample  perf.Sample
	scratch []byte // a record that lies across the end of the ring
	saved   uint64 // bytes
}

func newTrimmer(s *eventSet) *trimmer { return &trimmer{events: perf.NewEvents(s.list...)} }

// trim appends the records in a and b to dst, and trims the samples.
func (t *trimmer) trim(dst, a, b []byte) ([]byte, error) {
	for raw, err := range perfevent.Records(a, b, &t.scratch) {
		if err != nil {
			return dst, fmt.Errorf("read ring: %w", err)
		}
		n := len(dst)
		dst = t.appendRecord(dst, raw)
		t.saved += uint64(len(raw) - (len(dst) - n))
	}
	return dst, nil
}

// behindStack are the fields behind a dumped stack, of one word each. Samples
// with others behind it stay as they are.
const (
	behindStack = perf.SampleWeight | perf.SampleWeightStruct | perf.SampleDataSrc | perf.SampleTransaction |
		perf.SamplePhysAddr | perf.SampleCgroup | perf.SampleDataPageSize | perf.SampleCodePageSize
	manyBehindStack = perf.SampleRegsIntr | perf.SampleAux
)

// appendRecord appends a record. In a sample, a dumped stack is its size, that
// many bytes, and how many of them count; without any, the size alone
// (perf_output_sample_ustack in kernel/events/core.c).
func (t *trimmer) appendRecord(dst, raw []byte) []byte {
	ev := t.events.Of(raw, perf.NativeOrder)
	if ev == nil || perf.ParseHeader(raw, perf.NativeOrder).Type != perf.RecordSample {
		return append(dst, raw...)
	}
	st := ev.Layout.SampleType
	if st&perf.SampleStackUser == 0 || st&manyBehindStack != 0 ||
		t.sample.Decode(raw, perf.NativeOrder, &ev.Layout) != nil || len(t.sample.StackUser) == 0 {
		return append(dst, raw...)
	}
	size, used := len(t.sample.StackUser), int(t.sample.StackDyn+7)&^7
	usedAt := len(raw) - 8*bits.OnesCount64(uint64(st&behindStack)) - 8
	sizeAt := usedAt - size - 8
	if sizeAt < perf.HeaderSize || used >= size || perf.NativeOrder.Uint64(raw[sizeAt:]) != uint64(size) {
		return append(dst, raw...)
	}
	start := len(dst)
	dst = append(dst, raw[:sizeAt]...)
	dst = perf.NativeOrder.AppendUint64(dst, uint64(used))
	dst = append(dst, raw[sizeAt+8:sizeAt+8+used]...)
	if used == 0 {
		usedAt += 8
	}
	dst = append(dst, raw[usedAt:]...)
	perf.Raw(dst[start:]).SetSize()
	return dst
}
