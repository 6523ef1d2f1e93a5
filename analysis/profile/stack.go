// SPDX-License-Identifier: Apache-2.0

package profile

import "slices"

// stackTable keeps every stack as a sequence of frames, leaf first, one behind
// the other. A calling-context tree would share the outer frames, but pays one
// table lookup per frame: on a system-wide profile (226 k samples, 82 k
// distinct stacks of 16 frames) building it took 670 ns a sample and 150 bytes for each
// distinct stack; sequences take 170 ns and 90 bytes.
type stackTable struct {
	chunks [][]FrameID
	stacks column[stackRef]
}

// stackRef says where the frames of a stack are.
type stackRef struct{ chunk, start, n uint32 }

const stackChunk = 1 << 15

func (t *stackTable) get(id StackID) []FrameID {
	r := t.stacks.at(uint32(id))
	end := r.start + r.n
	return t.chunks[r.chunk][r.start:end:end]
}

// push adds a stack; frames are copied. No stack spans two chunks.
func (t *stackTable) push(frames []FrameID) uint32 {
	last := len(t.chunks) - 1
	if last < 0 || len(t.chunks[last])+len(frames) > stackChunk {
		var chunk []FrameID
		if last >= 0 {
			chunk = make([]FrameID, 0, max(stackChunk, len(frames)))
		}
		t.chunks = append(t.chunks, chunk)
		last++
	}
	start := len(t.chunks[last])
	t.chunks[last] = append(t.chunks[last], frames...)
	return t.stacks.push(stackRef{uint32(last), uint32(start), uint32(len(frames))})
}

// Stack interns a stack, leaf first. It keeps no reference to the slice.
func (b *Builder) Stack(leafFirst []FrameID) StackID {
	return b.stack(b.hashStack(leafFirst), leafFirst)
}

// stack interns a stack, whose hash is known.
func (b *Builder) stack(h uint64, leafFirst []FrameID) StackID {
	x, t := &b.stacks, &b.p.stacks
	mask := uint64(len(x.slots) - 1)
	for i := x.slot(h); x.slots[i] != 0; i = (i + 1) & mask {
		slot := x.slots[i]
		if slot>>32 == h>>32 && slices.Equal(t.get(StackID(uint32(slot)-1)), leafFirst) {
			return StackID(uint32(slot) - 1)
		}
	}
	id := t.push(leafFirst)
	x.insert(h, id)
	return StackID(id)
}

// hashStack hashes two frames at a time in two lanes, so that a multiplication
// need not wait for the one before.
func (b *Builder) hashStack(s []FrameID) uint64 {
	x, y := uint64(len(s)), b.hash.a
	for ; len(s) >= 4; s = s[4:] {
		x = b.hash.pair(x, uint64(s[0])<<32|uint64(s[1]))
		y = b.hash.pair(y, uint64(s[2])<<32|uint64(s[3]))
	}
	for _, f := range s {
		x = b.hash.pair(x, uint64(f))
	}
	return b.hash.pair(x, y)
}
