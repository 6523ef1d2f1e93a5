// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// synthetic makes stacks as programs do: few roots, a tree that branches more
// and more towards the leaf, some paths much hotter than others.
func synthetic(r *rand.Rand, b *Builder, n, depth int) [][]FrameID {
	frames := make([]FrameID, 20_000)
	for i := range frames {
		frames[i] = b.Frame(Frame{Name: fmt.Sprintf("function_%d", i), DSO: fmt.Sprintf("lib%d.so", i%50)})
	}
	stacks := make([][]FrameID, n)
	for i := range stacks {
		s := make([]FrameID, depth)
		at := uint32(r.IntN(8))
		for d := depth - 1; d >= 0; d-- {
			s[d] = frames[at%uint32(len(frames))]
			branch := uint32(1)
			if r.IntN(3) == 0 {
				branch = uint32(1 + r.ExpFloat64()*2)
			}
			at = at*2654435761 + branch
		}
		stacks[i] = s
	}
	return stacks
}

func TestStackRoundTrip(t *testing.T) {
	b := NewBuilder()
	r := rand.New(rand.NewPCG(1, 2))
	stacks := synthetic(r, b, 20_000, 12)
	stacks = append(stacks, nil, stacks[0][3:], stacks[1][:4], make([]FrameID, 3*stackChunk), stacks[0][5:])
	ids := make([]StackID, len(stacks))
	for i, s := range stacks {
		ids[i] = b.Stack(s)
	}
	for i, s := range stacks {
		if again := b.Stack(s); again != ids[i] {
			t.Fatalf("stack %d: id %d, then %d", i, ids[i], again)
		}
	}
	p := b.Profile()
	seen := map[string]StackID{}
	for i, s := range stacks {
		got := p.Stack(ids[i])
		if !slices.Equal(got, s) {
			t.Fatalf("stack %d: got %v, want %v", i, got, s)
		}
		key := fmt.Sprint(s)
		if id, ok := seen[key]; ok && id != ids[i] {
			t.Fatalf("stack %v has ids %d and %d", s, id, ids[i])
		}
		seen[key] = ids[i]
	}
}

func TestFrameRoundTrip(t *testing.T) {
	frames := []Frame{
		{},
		{Name: "main", DSO: "app", Path: "/bin/app", BuildID: "ab", Source: "symtab"},
		{Name: "main", DSO: "app", Path: "/bin/app", BuildID: "cd", Source: "symtab"},
		{Name: "main", DSO: "app", Path: "/bin/app", BuildID: "cd", Source: "dynsym"},
		{Name: "main", DSO: "app", Path: "/bin/app", BuildID: "cd", Addr: 1},
		{Name: "main", DSO: "app", Addr: 1, MapStart: 0, MapLimit: 10, MapOffset: 2},
		{Name: "main", DSO: "app", Addr: 1, MapStart: 1, MapLimit: 10, MapOffset: 2},
		{Name: "main", DSO: "app", File: "a.c"},
		{Name: "main", DSO: "app", File: "a.c", Line: 1},
		{Name: "main", DSO: "app", File: "a.c", Line: 1, Inlined: true},
		{Name: "main", DSO: "app", File: "a.c", Line: 1, Kernel: true},
	}
	b := NewBuilder()
	for round := range 2 {
		for i, f := range frames {
			if id := b.Frame(f); id != FrameID(i) {
				t.Errorf("round %d: frame %d has id %d", round, i, id)
			}
		}
	}
	p := b.Profile()
	if p.NumFrames() != len(frames) {
		t.Fatalf("got %d frames, want %d", p.NumFrames(), len(frames))
	}
	for i, f := range frames {
		if got := p.Frame(FrameID(i)); got != f {
			t.Errorf("frame %d: got %+v, want %+v", i, got, f)
		}
	}
}

func TestAdd(t *testing.T) {
	b := NewBuilder()
	clock := b.Event(EventInfo{Name: "cpu-clock", Unit: "nanoseconds", Samples: 99, Value: 99})
	faults := b.Event(EventInfo{Name: "page-faults"})
	s := b.Stack([]FrameID{b.Frame(Frame{Name: "leaf"}), b.Frame(Frame{Name: "main"})})
	web, db := b.Labels(Labels{Container: "web"}), b.Labels(Labels{Container: "db", CPU: 1})
	if again := b.Labels(Labels{Container: "web"}); again != web {
		t.Errorf("labels: id %d, then %d", web, again)
	}
	b.Add(web, s, clock, 1, 100)
	b.Add(db, s, clock, 1, 100)
	b.Add(web, s, faults, 1, 7)
	b.Add(web, 0, clock, 1, 100)
	b.Add(web, s, clock, 2, 300)
	b.Lost(LostCount{CPU: 1, Samples: 3})
	b.Lost(LostCount{CPU: 2, Event: "page-faults", Samples: 4})
	b.Lost(LostCount{CPU: 1, Samples: 5})
	p := b.Profile()

	want := []Sample{
		{web, s, clock, 3, 400}, {db, s, clock, 1, 100}, {web, s, faults, 1, 7}, {web, 0, clock, 1, 100},
	}
	if got := slices.Collect(p.Samples()); !slices.Equal(got, want) {
		t.Errorf("samples: got %v, want %v", got, want)
	}
	if e := p.Events[clock]; e.Samples != 5 || e.Value != 600 {
		t.Errorf("clock: got %+v", e)
	}
	if got := p.TotalLost(""); got != 12 {
		t.Errorf("lost: got %d, want 12", got)
	}
	if got := p.TotalLost("cpu-clock"); got != 8 {
		t.Errorf("lost of cpu-clock: got %d, want 8", got)
	}
}

// Values of a hostile recording must not turn over: no part is ever larger
// than the whole.
func TestAddOverflow(t *testing.T) {
	b := NewBuilder()
	ev := b.Event(EventInfo{Name: "cycles"})
	l := b.Labels(Labels{})
	stacks := []StackID{0, b.Stack([]FrameID{b.Frame(Frame{Name: "a"})})}
	for range 3 {
		for _, s := range stacks {
			b.Add(l, s, ev, math.MaxUint64, math.MaxUint64/3)
		}
	}
	p := b.Profile()
	var count, value uint64
	for s := range p.Samples() {
		count, value = count+s.Count, value+s.Value
	}
	if e := p.Events[ev]; e.Samples != math.MaxInt64 || e.Value != math.MaxInt64 || count != e.Samples || value != e.Value {
		t.Errorf("got %+v, parts add up to %d and %d", p.Events[ev], count, value)
	}
}

func BenchmarkStack(b *testing.B) {
	for _, unique := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(unique), func(b *testing.B) {
			pb := NewBuilder()
			stacks := synthetic(rand.New(rand.NewPCG(1, 2)), pb, unique, 16)
			for _, s := range stacks {
				pb.Stack(s)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				pb.Stack(stacks[i%len(stacks)])
			}
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, unique := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(unique), func(b *testing.B) {
			pb := NewBuilder()
			ev := pb.Event(EventInfo{Name: "cpu-clock"})
			r := rand.New(rand.NewPCG(1, 2))
			ids := make([]StackID, 1<<20)
			for i := range ids {
				ids[i] = StackID(r.IntN(unique))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				pb.Add(3, ids[i&(1<<20-1)], ev, 1, 100)
			}
		})
	}
}
