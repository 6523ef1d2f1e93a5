// SPDX-License-Identifier: Apache-2.0

package perfdata

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// model is the rule in its plainest form: a list sorted on insertion.
func model(records []kept) (out []kept) {
	var queue []kept
	var limit, latest uint64
	flush := func(limit uint64) {
		n := 0
		for n < len(queue) && queue[n].Time <= limit {
			n++
		}
		out = append(out, queue[:n]...)
		queue = slices.Clone(queue[n:])
	}
	for _, k := range records {
		switch {
		case k.HasTime:
			i := len(queue)
			for i > 0 && queue[i-1].Time > k.Time {
				i--
			}
			queue = slices.Insert(queue, i, k)
			latest = max(latest, k.Time)
		case k.Type == perf.RecordFinishedRound:
			flush(limit)
			limit = latest
			out = append(out, k)
		default:
			out = append(out, k)
		}
	}
	flush(^uint64(0))
	return out
}

// late counts the records with a time before that of an earlier one.
func late(l []kept) (n uint64) {
	var last uint64
	for _, k := range l {
		if k.HasTime && k.Time < last {
			n++
		}
		last = max(last, k.Time)
	}
	return n
}

func warned(r *Reader, kind WarningKind) (n uint64) {
	for _, w := range r.Warnings() {
		if w.Kind == kind {
			n += w.Count
		}
	}
	return n
}

// shuffled makes rounds of a few CPUs, with some disorder if noise > 0.
func shuffled(rnd *rand.Rand, rounds, perRound int, noise int) (l []perf.Record) {
	now := uint64(100)
	for range rounds {
		start := now
		for range 1 + rnd.IntN(4) { // a CPU
			at := start + rnd.Uint64N(20)
			for range rnd.IntN(perRound + 1) {
				at += rnd.Uint64N(10) // equal times happen
				t := at
				if noise > 0 && rnd.IntN(noise) == 0 {
					t = rnd.Uint64N(at) + 1
				}
				if rnd.IntN(10) == 0 {
					l = append(l, comm(t, "x"))
				} else {
					l = append(l, sample(t))
				}
				if rnd.IntN(50) == 0 {
					l = append(l, comm(0, "no time"))
				}
			}
			now = max(now, at)
		}
		if rnd.IntN(5) > 0 {
			l = append(l, &perf.FinishedRound{})
		}
	}
	return l
}

func TestOrdered(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := orders[seed&1]
		records := shuffled(rnd, 1+rnd.IntN(12), 200, []int{0, 100, 3}[seed%3])
		opts := &WriterOptions{Order: o, Compress: int(seed >> 1 & 1)}
		for name, b := range map[string][]byte{"file": write(t, opts, records, nil), "pipe": writePipe(t, opts, records, nil)} {
			want := model(mustReadAll(t, open(t, b, nil).Next))
			for _, o := range []*ReaderOptions{nil, {BlockSize: 1}} {
				r := open(t, b, o)
				checkOrder(t, name, seed, want, mustReadAll(t, r.Ordered().Next))
				if got := warned(r, WarnOutOfOrder); got != late(want) {
					t.Errorf("seed %d: %d records late, want %d", seed, got, late(want))
				}
				if hasWarning(r, WarnMemory) {
					t.Errorf("seed %d: warnings %v", seed, r.Warnings())
				}
				checkBlocks(t, r)
			}
		}
	}
}

func checkOrder(t *testing.T, name string, seed uint64, want, got []kept) {
	t.Helper()
	line := func(l []kept) (s [][]byte) {
		for _, k := range l {
			s = append(s, append([]byte(k.Name), k.Raw...))
		}
		return s
	}
	w, g := line(want), line(got)
	if slices.EqualFunc(w, g, bytes.Equal) { // a thousand times faster than Diff
		return
	}
	i := 0
	for i < min(len(w), len(g)) && bytes.Equal(w[i], g[i]) {
		i++
	}
	t.Fatalf("%s, seed %d: %d records, want %d; they differ at record %d", name, seed, len(g), len(w), i)
}

// checkBlocks: when all is delivered, nothing is held.
func checkBlocks(t *testing.T, r *Reader) {
	t.Helper()
	for _, b := range r.blocks.all {
		if b.waiting != 0 {
			t.Errorf("%d records wait in a block", b.waiting)
		}
	}
	if r.blocks.held > 4*int64(r.opts.BlockSize+maxZstdBlock) {
		t.Errorf("%d bytes are held", r.blocks.held)
	}
}

// oneRound is more than fits in little memory.
func oneRound(n int) (l []perf.Record) {
	for cpu := range uint64(2) {
		for i := range uint64(n) {
			l = append(l, sample(1+i*2+cpu))
		}
	}
	return append(l, &perf.FinishedRound{}, sample(uint64(n)*2+10))
}

// TestRoundFromFile: a round that does not fit in memory is read twice.
func TestRoundFromFile(t *testing.T) {
	records := oneRound(20_000) // 4.6 MB
	b := write(t, nil, records, nil)
	want := model(mustReadAll(t, open(t, b, nil).Next))
	r := open(t, b, &ReaderOptions{MaxRoundBytes: 2 << 20})
	d := r.Ordered()
	checkOrder(t, "file", 0, want, mustReadAll(t, d.Next))
	noWarnings(t, r)
	if len(d.far.pieces) == 0 {
		t.Error("the round fitted in memory: the test says nothing")
	}
	if n := int64(len(r.blocks.all)) * int64(r.opts.BlockSize); n > 3<<20 {
		t.Errorf("%d bytes of blocks", n)
	}
}

// TestRoundFromStream: what cannot be read twice is delivered early, and what
// comes late is counted.
func TestRoundFromStream(t *testing.T) {
	records := oneRound(20_000)
	zstd := write(t, &WriterOptions{Compress: 1}, records, nil)
	pipe := writePipe(t, nil, records, nil)
	for name, start := range map[string]func(*ReaderOptions) (*Reader, error){
		"zstd":   func(o *ReaderOptions) (*Reader, error) { return NewReader(bytes.NewReader(zstd), int64(len(zstd)), o) },
		"stream": func(o *ReaderOptions) (*Reader, error) { return NewPipeReader(bytes.NewReader(pipe), o) },
	} {
		r, err := start(&ReaderOptions{MaxRoundBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		got := mustReadAll(t, r.Ordered().Next)
		samples := raws(got, func(t perf.RecordType) bool { return t == perf.RecordSample })
		if len(samples) != 40_001 {
			t.Errorf("%s: %d samples", name, len(samples))
		}
		if n := warned(r, WarnOutOfOrder); n == 0 || n != late(got) || !hasWarning(r, WarnMemory) {
			t.Errorf("%s: warnings %v, %d records late", name, r.Warnings(), late(got))
		}
		if n := int64(len(r.blocks.all)) * int64(r.opts.BlockSize+maxZstdBlock); n > 3<<20 {
			t.Errorf("%s: %d bytes of blocks", name, n)
		}
		checkBlocks(t, r)
	}
}

// shrinking is a file that is cut while it is read.
type shrinking struct {
	b    []byte
	gone bool
}

func (f *shrinking) ReadAt(p []byte, off int64) (int, error) {
	b := f.b
	if f.gone {
		b = b[:1000]
	}
	return bytes.NewReader(b).ReadAt(p, off)
}

func TestFileShrinks(t *testing.T) {
	f := &shrinking{b: write(t, nil, oneRound(20_000), nil)}
	r, err := NewReader(f, int64(len(f.b)), &ReaderOptions{MaxRoundBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := r.Ordered()
	if _, err := d.Next(); err != nil { // all has been read once
		t.Fatal(err)
	}
	f.gone = true
	_, err = readAll(d.Next)
	if err == nil || err == io.EOF {
		t.Errorf("no error")
	}
}

// TestOrderedStream: records of a stream are delivered while it runs, as soon as
// their round allows.
func TestOrderedStream(t *testing.T) {
	pr, pw := io.Pipe()
	defer pr.Close()
	ev := testEvents()
	sync := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		w, err := NewPipeWriter(pw, ev, nil)
		for i := range uint64(3) {
			if err == nil {
				err = w.WriteRecord(sample(10+i), ev[0])
			}
			if err == nil {
				err = w.FinishRound()
			}
			<-sync
		}
		done <- err
	}()
	r, err := NewPipeReader(pr, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := r.Ordered()
	for i := range 3 {
		for { // the round i releases the samples of the round before
			rec, err := d.Next()
			if err != nil {
				t.Fatal(err)
			}
			if rec.Type == perf.RecordSample && rec.Time != uint64(9+i) {
				t.Errorf("round %d: sample of %d", i, rec.Time)
			}
			if rec.Type == perf.RecordFinishedRound {
				break
			}
		}
		sync <- struct{}{}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
