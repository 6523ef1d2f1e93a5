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
	last   []uint32  // by FrameID: the last sample whose stack is this frame, plus one
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

// NewBatch makes an empty batch.
func (b *Builder) NewBatch() *Batch {
	return &Batch{b: b, items: make([]batchItem, 0, batchSize), frames: make([]FrameID, 0, 32*batchSize)}
}

// AddFrame is like Add for a stack of one frame. Mostly the sample is the last
// one with that frame, which takes neither a stack nor a hash table.
func (x *Batch) AddFrame(l LabelsID, f FrameID, event int, count, value uint64) {
	if missing := int(f) + 1 - len(x.last); missing > 0 {
		x.last = append(x.last, make([]uint32, missing)...)
	}
	samples, e := &x.b.p.samples, &x.b.p.Events[event]
	last := x.last[f]
	if last == 0 || samples.at(last-1).labels != l || samples.at(last-1).event != uint32(event) {
		x.Flush() // ids do not depend on what was last
		s := sample{labels: l, event: uint32(event)}
		if last > 0 {
			s.stack = samples.at(last - 1).stack
		} else {
			s.stack = x.b.Stack([]FrameID{f})
		}
		last = x.b.sample(x.b.hashSample(l, s.stack, s.event), s) + 1
		x.last[f] = last
	}
	count, value = min(count, maxTotal-e.Samples), min(value, maxTotal-e.Value)
	s := samples.at(last - 1)
	s.count += count
	s.value += value
	e.Samples += count
	e.Value += value
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
