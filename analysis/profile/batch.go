// SPDX-License-Identifier: Apache-2.0

package profile

// A Batch adds samples to a Builder many at a time. It is for hot paths: each
// look-up of a stack or a sample misses the processor's caches, and in short
// loops of nothing else the misses overlap. Samples count once the batch is
// flushed.
type Batch struct {
	b      *Builder
	items  []batchItem
	frames []FrameID // of the items
	recent []recent  // nil until AddFrame is used
	single []StackID // by FrameID: the stack of this frame alone, 0 if not made
	touch  uint64    // keeps the loads that only warm the caches
}

type batchItem struct {
	hash   uint64
	start  uint32 // in frames
	end    uint32
	labels LabelsID
	event  uint32
	stack  StackID
	count  uint64
	value  uint64
}

const batchSize = 128

// recent remembers a sample whose stack is one frame.
type recent struct {
	labels LabelsID
	frame  FrameID
	event  uint32
	sample uint32 // plus one; 0 is none
}

const recentBits = 14

// NewBatch makes an empty batch.
func (b *Builder) NewBatch() *Batch {
	return &Batch{b: b, items: make([]batchItem, 0, batchSize), frames: make([]FrameID, 0, 32*batchSize)}
}

// AddFrame is like Add for a stack of one frame. Nearly always the sample is
// one of the recent ones, which takes neither a stack nor a hash table.
func (x *Batch) AddFrame(l LabelsID, f FrameID, event int, count, value uint64) {
	if x.recent == nil {
		x.recent = make([]recent, 1<<recentBits)
	}
	h := (uint64(f)<<32 | uint64(l)) * 0x9E3779B97F4A7C15
	slot := &x.recent[(h^uint64(event)<<(64-recentBits))>>(64-recentBits)]
	if slot.sample == 0 || slot.frame != f || slot.labels != l || slot.event != uint32(event) {
		x.Flush() // ids do not depend on what is recent
		s := sample{stack: x.stackOf(f), labels: l, event: uint32(event)}
		*slot = recent{l, f, s.event, x.b.sample(x.b.hashSample(l, s.stack, s.event), s) + 1}
	}
	s, e := x.b.p.samples.at(slot.sample-1), &x.b.p.Events[event]
	s.count += count
	s.value += value
	e.Samples += count
	e.Value += value
}

// stackOf is the stack of one frame.
func (x *Batch) stackOf(f FrameID) StackID {
	if missing := int(f) + 1 - len(x.single); missing > 0 {
		x.single = append(x.single, make([]StackID, missing)...)
	}
	if x.single[f] == 0 {
		x.single[f] = x.b.Stack([]FrameID{f})
	}
	return x.single[f]
}

// Add is like Builder.Stack and Builder.Add together. It keeps no reference to
// the slice.
func (x *Batch) Add(l LabelsID, leafFirst []FrameID, event int, count, value uint64) {
	start := len(x.frames)
	x.frames = append(x.frames, leafFirst...)
	x.items = append(x.items, batchItem{
		hash: x.b.hashStack(leafFirst), start: uint32(start), end: uint32(len(x.frames)),
		labels: l, event: uint32(event), count: count, value: value,
	})
	if len(x.items) == batchSize {
		x.Flush()
	}
}

// Flush counts the samples that were added. They count in the order in which
// they were added, so that ids do not depend on it.
func (x *Batch) Flush() {
	if len(x.items) == 0 {
		return
	}
	b := x.b
	x.warmStacks()
	for i := range x.items {
		it := &x.items[i]
		it.stack = b.stack(it.hash, x.frames[it.start:it.end])
		it.hash = b.hashSample(it.labels, it.stack, it.event)
	}
	x.warmSamples()
	for i := range x.items {
		it := &x.items[i]
		e := &b.p.Events[it.event]
		e.Samples += it.count
		e.Value += it.value
		s := b.p.samples.at(b.sample(it.hash, sample{stack: it.stack, labels: it.labels, event: it.event}))
		s.count += it.count
		s.value += it.value
	}
	x.items, x.frames = x.items[:0], x.frames[:0]
}

// warmStacks loads what the stacks of the batch will be compared with: the
// slot of each, then where its frames are, then the frames.
func (x *Batch) warmStacks() {
	t, index := &x.b.p.stacks, &x.b.stacks
	for i := range x.items {
		it := &x.items[i]
		it.stack = StackID(uint32(index.slots[index.slot(it.hash)]) - 1)
	}
	n := uint32(t.stacks.len())
	var refs [batchSize]stackRef
	for i := range x.items {
		if id := uint32(x.items[i].stack); id < n {
			refs[i] = *t.stacks.at(id)
		}
	}
	var sum FrameID
	for i := range x.items {
		if r := refs[i]; r.n > 0 {
			f := t.chunks[r.chunk][r.start : r.start+r.n]
			sum += f[0] + f[len(f)-1]
		}
	}
	x.touch += uint64(sum)
}

// warmSamples loads the slots of the samples, then the samples.
func (x *Batch) warmSamples() {
	samples, index := &x.b.p.samples, &x.b.samples
	var ids [batchSize]uint32
	for i := range x.items {
		ids[i] = uint32(index.slots[index.slot(x.items[i].hash)]) - 1
	}
	n := uint32(samples.len())
	var sum uint64
	for _, id := range ids[:len(x.items)] {
		if id < n {
			sum += samples.at(id).count
		}
	}
	x.touch += sum
}
