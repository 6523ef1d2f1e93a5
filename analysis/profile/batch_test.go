// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBatchIsTheSame: whatever goes in, a batch gives the profile that adding
// one by one gives.
func TestBatchIsTheSame(t *testing.T) {
	one, many := NewBuilder(), NewBuilder()
	batch := many.NewBatch()
	for _, b := range []*Builder{one, many} {
		b.Event(EventInfo{Name: "a"})
		b.Event(EventInfo{Name: "b"})
		for pid := range int32(5) {
			b.Labels(Labels{PID: pid})
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		stack := make([]FrameID, rng.IntN(6))
		for i := range stack {
			stack[i] = FrameID(rng.IntN(4))
		}
		l, ev, v := LabelsID(rng.IntN(5)), rng.IntN(2), rng.Uint64N(100)
		one.Add(l, one.Stack(stack), ev, 1, v)
		if len(stack) == 1 && rng.IntN(3) > 0 {
			batch.AddFrame(l, stack[0], ev, 1, v)
		} else {
			batch.Add(l, stack, ev, 1, v)
		}
	}
	batch.Flush()
	p, q := one.Profile(), many.Profile()
	if diff := cmp.Diff(p.Events, q.Events); diff != "" {
		t.Error(diff)
	}
	if p.NumSamples() != q.NumSamples() || p.NumStacks() != q.NumStacks() {
		t.Fatalf("%d samples of %d stacks, want %d of %d", q.NumSamples(), q.NumStacks(), p.NumSamples(), p.NumStacks())
	}
	if diff := cmp.Diff(counts(p), counts(q)); diff != "" {
		t.Error(diff)
	}
	for i := range p.NumSamples() {
		if diff := cmp.Diff(p.Sample(i), q.Sample(i)); diff != "" {
			t.Fatalf("sample %d: %s", i, diff)
		}
	}
}

func counts(p *Profile) map[string][2]uint64 {
	out := make(map[string][2]uint64)
	for s := range p.Samples() {
		key := fmt.Sprint(s.Labels, p.Stack(s.Stack), s.Event)
		if _, twice := out[key]; twice {
			panic("two samples of " + key)
		}
		out[key] = [2]uint64{s.Count, s.Value}
	}
	return out
}

func BenchmarkBatch(b *testing.B) {
	bd := NewBuilder()
	bd.Event(EventInfo{Name: "a"})
	l := bd.Labels(Labels{})
	batch := bd.NewBatch()
	rng := rand.New(rand.NewPCG(1, 2))
	var stack [16]FrameID
	for b.Loop() {
		for i := range stack {
			stack[i] = FrameID(i)
		}
		stack[0] = FrameID(rng.IntN(300_000))
		batch.Add(l, stack[:], 0, 1, 1)
	}
}
