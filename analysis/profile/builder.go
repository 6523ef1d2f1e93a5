// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"hash/maphash"
	"math"
)

// Builder aggregates samples into a Profile.
type Builder struct {
	p      *Profile
	hash   hasher
	frames frameIndex

	stacks, labels, samples index
}

// sample is a Sample of 32 bytes.
type sample struct {
	stack        StackID
	labels       LabelsID
	event        uint32
	count, value uint64
}

func (s *sample) public() Sample {
	return Sample{Labels: s.labels, Stack: s.stack, Event: int(s.event), Count: s.count, Value: s.value}
}

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder {
	b := &Builder{p: &Profile{}, hash: newHasher()}
	b.stacks.slots = make([]uint64, minSlots)
	b.samples.slots = make([]uint64, minSlots)
	b.p.frames.strings = []string{""} // number 0
	b.Stack(nil)
	return b
}

// Meta is the profile's Meta, to be filled in at any time.
func (b *Builder) Meta() *Meta { return &b.p.Meta }

// Event adds an event and returns its number. Samples and Value of e are
// ignored.
func (b *Builder) Event(e EventInfo) int {
	e.Samples, e.Value = 0, 0
	b.p.Events = append(b.p.Events, e)
	return len(b.p.Events) - 1
}

// Labels interns l.
func (b *Builder) Labels(l Labels) LabelsID {
	h := maphash.Comparable(b.hash.seed, l)
	id, ok := b.labels.find(h, func(id uint32) bool { return *b.p.labels.at(id) == l })
	if !ok {
		id = b.p.labels.push(l)
		b.labels.insert(h, id)
	}
	return LabelsID(id)
}

// maxTotal keeps totals, and with them every sum of parts, within what pprof
// and signed integers elsewhere can hold.
const maxTotal = math.MaxInt64

// Add counts samples of an event: count of them with value in all, in the
// event's unit. An event's totals end at 1<<63 - 1, which only a hostile
// recording can reach; what is beyond is not counted.
func (b *Builder) Add(l LabelsID, s StackID, event int, count, value uint64) {
	e := &b.p.Events[event]
	count, value = min(count, maxTotal-e.Samples), min(value, maxTotal-e.Value)
	e.Samples += count
	e.Value += value
	c := b.p.samples.at(b.sample(b.hashSample(l, s, uint32(event)), sample{stack: s, labels: l, event: uint32(event)}))
	c.count += count
	c.value += value
}

// sample is the number of the sample s, whose hash is known and which counts
// nothing yet if it is new.
func (b *Builder) sample(h uint64, s sample) uint32 {
	x := &b.samples
	mask := uint64(len(x.slots) - 1)
	for i := x.slot(h); x.slots[i] != 0; i = (i + 1) & mask {
		slot := x.slots[i]
		if slot>>32 != h>>32 {
			continue
		}
		c := b.p.samples.at(uint32(slot) - 1)
		if c.stack == s.stack && c.labels == s.labels && c.event == s.event {
			return uint32(slot) - 1
		}
	}
	id := b.p.samples.push(s)
	x.insert(h, id)
	return id
}

func (b *Builder) hashSample(l LabelsID, s StackID, event uint32) uint64 {
	return b.hash.pair(uint64(s)<<32|uint64(l), uint64(event)<<1)
}

// Lost adds to the samples known to be lost.
func (b *Builder) Lost(l LostCount) {
	for i := range b.p.Lost {
		c := &b.p.Lost[i]
		if c.Event == l.Event && c.Container == l.Container && c.CPU == l.CPU {
			c.Samples += l.Samples
			return
		}
	}
	b.p.Lost = append(b.p.Lost, l)
}

// Profile returns what was built. The Builder must not be used afterwards; its
// tables are free to be collected.
func (b *Builder) Profile() *Profile {
	p := b.p
	*b = Builder{}
	return p
}
