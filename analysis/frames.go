// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"slices"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/perf"
)

// frameSlot remembers what an address was. In user space the address is the
// offset in a file and context the file's index plus one, so that processes
// share what they run; with kernelContext set it is that of the kernel's
// symbols.
type frameSlot struct {
	addr    uint64
	context uint32
	frame   profile.FrameID
}

const (
	frameBits     = 16
	kernelContext = 1 << 31
)

// pending is a sample whose addresses wait in the batch.
type pending struct {
	thread *timeline.Thread
	period uint64
	labels profile.LabelsID
	event  int32
	end    int32 // of its addresses in batch.addrs; they begin where those before end
	// sampled: the first address is the sample's own, in front of a call chain
	// that begins elsewhere.
	sampled bool
}

// batch holds samples until their addresses are looked up, many at a time.
// Each look-up misses the processor's caches; in a short loop of nothing else
// the misses overlap. Nothing may be applied to the timeline in between.
type batch struct {
	samples []pending
	addrs   []address
	frames  []profile.FrameID
}

// address is an address of a sample: as sampled, and as the cache has it.
type address struct {
	ip, addr uint64
	context  uint32
}

// add adds an address of a sample of a process with these mappings, nil if it
// is not known. kernel is the context of kernel addresses, else 0.
func (b *batch) add(maps *timeline.Maps, ip uint64, kernel uint32) {
	a := address{ip, ip, kernel}
	if kernel == 0 {
		a.context = noContext
		if maps != nil {
			if m := maps.Find(ip); m != nil {
				a.addr, a.context = ip-m.Start+m.PgOff, uint32(m.File.Index+1)
			}
		}
	}
	b.addrs = append(b.addrs, a)
}

// batchSize is how many samples a batch holds.
const batchSize = 128

const (
	// noContext is where nothing can be found: nothing is mapped there.
	noContext = kernelContext - 1
	// noFrame marks an address that the cache does not know.
	noFrame = ^profile.FrameID(0)
)

// push adds a sample to the batch: its call chain, or its leaf.
//
// A caller is known by the address that its call returns to, which belongs to
// another line, and behind a call that never returns to another function: one
// byte less lies in the call. The first address behind a mark of a context is
// where the task was, to the byte.
//
// The sample's own address comes first, as perf counts: a precise event's is
// that of the instruction that caused it, and the chain begins where the task
// was interrupted, a little or a function later.
func (c *collector) push(th *timeline.Thread, sm *perf.Sample, labels profile.LabelsID, event int) {
	b := &c.batch
	symbols := kernelContext | c.s.Timeline.KernelID()
	var maps *timeline.Maps
	if th != nil {
		maps = th.Process.Maps()
	}
	kernel := uint32(0)
	if sm.Misc.CPUMode() == perf.MiscKernel {
		kernel = symbols
	}
	start, own := len(b.addrs), kernel
	if c.o.Stacks {
		user := c.s.UserStack(&c.s.item)
		caller := uint64(0)
		for _, ip := range sm.Callchain {
			if ip < perf.ContextMax {
				if kernel != 0 || len(user) == 0 {
					b.add(maps, ip-min(ip, caller), kernel)
				}
				caller = 1
				continue
			}
			caller = 0
			switch ip {
			case perf.ContextKernel:
				kernel = symbols
			case perf.ContextUser, perf.ContextUserDeferred:
				kernel = 0
			}
		}
		for _, ip := range user {
			b.add(maps, ip, 0)
		}
	}
	if len(b.addrs) == start { // no stacks, or nothing but marks in the chain
		b.add(maps, sm.IP, own)
	}
	sampled := c.o.Stacks && c.ownAddress(start, maps, sm, own)
	b.samples = append(b.samples, pending{th, sm.Period, labels, int32(event), int32(len(b.addrs)), sampled})
	if len(b.samples) == batchSize {
		c.flush()
	}
}

// ownAddress puts the sample's own address, in the kernel if that is its
// context, in front of its others if they begin elsewhere.
func (c *collector) ownAddress(start int, maps *timeline.Maps, sm *perf.Sample, kernel uint32) bool {
	b := &c.batch
	if sm.IP == 0 || b.addrs[start].ip == sm.IP { // 0 is not recorded
		return false
	}
	b.add(maps, sm.IP, kernel)
	own := b.addrs[len(b.addrs)-1]
	copy(b.addrs[start+1:], b.addrs[start:])
	b.addrs[start] = own
	return true
}

// sameFunction reports whether two frames, or groups of them, are of one
// function.
func (c *collector) sameFunction(a, b profile.FrameID) bool {
	outermost := func(id profile.FrameID) profile.FrameID {
		if id&groupBit == 0 {
			return id
		}
		group := c.groups[id&^groupBit]
		return group[len(group)-1]
	}
	a, b = outermost(a), outermost(b)
	return a == b || c.b.SameFunction(a, b)
}

// flush looks the batch up and adds it to the profile.
func (c *collector) flush() {
	if c.sites != nil {
		c.sites.flush()
		return
	}
	b := &c.batch
	b.frames = slices.Grow(b.frames[:0], len(b.addrs))[:len(b.addrs)]
	for i := range b.addrs {
		a := &b.addrs[i]
		slot := &c.cache[slotOf(a.addr, a.context)]
		frame := slot.frame
		if slot.addr != a.addr || slot.context != a.context {
			frame = noFrame
		}
		b.frames[i] = frame
	}
	start := int32(0)
	for i := range b.samples {
		s := &b.samples[i]
		frames := b.frames[start:s.end]
		for j := range frames {
			if frames[j] == noFrame {
				frames[j] = c.locate(s.thread, &b.addrs[start+int32(j)])
			}
		}
		start = s.end
		if s.sampled && len(frames) > 1 && c.sameFunction(frames[0], frames[1]) {
			frames[1] = frames[0]
			frames = frames[1:]
		}
		if c.groups != nil {
			frames = c.expand(frames)
		}
		if !c.o.Stacks {
			c.out.AddFrame(s.labels, frames[0], int(s.event), 1, s.period)
		} else {
			c.out.Add(s.labels, frames, int(s.event), 1, s.period)
		}
	}
	b.samples, b.addrs = b.samples[:0], b.addrs[:0]
}

// slotOf is the slot of the cache that remembers an address in a context.
func slotOf(addr uint64, context uint32) uint64 {
	h := (addr ^ uint64(context)*0x9E3779B97F4A7C15) * 0xFF51AFD7ED558CCD
	return h >> (64 - frameBits)
}

// locate looks an address up and remembers its frame.
func (c *collector) locate(th *timeline.Thread, a *address) profile.FrameID {
	slot := &c.cache[slotOf(a.addr, a.context)]
	if slot.addr == a.addr && slot.context == a.context {
		return slot.frame // found by another sample of the batch
	}
	id := c.known(a)
	if id == noFrame {
		id = c.frameOf(c.s.locate(th, a.ip, a.context >= kernelContext), a.ip)
	}
	*slot = frameSlot{a.addr, a.context, id}
	return id
}

// known is the frame of a function that was found at another address before,
// which is so for nine of ten addresses that the cache does not know: they
// need no place, only the symbol.
func (c *collector) known(a *address) profile.FrameID {
	if c.o.Addresses {
		return noFrame
	}
	if a.context >= kernelContext {
		if _, ok := c.s.Timeline.Ksyms.Lookup(a.ip); ok || c.kernel == nil {
			return noFrame
		}
		if sym, _, ok := c.s.kernel.lookup(a.ip); ok {
			return c.kernel[sym] - 1 // noFrame if it has none yet
		}
		return noFrame
	}
	file := int(a.context) - 1
	if c.o.detailed() || file >= len(c.s.binaries) || c.s.binaries[file] == nil || c.s.binaries[file].obj == nil {
		return noFrame
	}
	b := c.s.binaries[file]
	if sym, ok := b.obj.Lookup(b.obj.Addr(0, 0, a.addr)); ok {
		return b.frames[sym] - 1
	}
	return noFrame
}

// frameOf is the frame of a place: one per function or, if there is none or
// the report wants them, per address.
func (c *collector) frameOf(p frameSource, ip uint64) profile.FrameID {
	byAddr := c.o.Addresses || p.sym == noSymbol
	switch {
	case c.o.detailed() && !p.kernel && p.bin != nil && p.bin.obj != nil:
		return c.detail(p, ip)
	case p.isKsym:
		return c.newFrame(p, ip, byAddr)
	case p.kernel && !byAddr:
		if c.kernel == nil {
			c.kernel = make([]profile.FrameID, c.s.kernel.table.Len())
		}
		return c.once(&c.kernel[p.sym], p, ip, false)
	case p.bin != nil && !byAddr:
		return c.once(&p.bin.frames[p.sym], p, ip, false)
	case p.bin != nil:
		if p.bin.addrs == nil {
			p.bin.addrs = make(map[uint64]profile.FrameID)
		}
		id := p.bin.addrs[p.addr]
		if id == 0 {
			id = c.newFrame(p, ip, true) + 1
			p.bin.addrs[p.addr] = id
		}
		return id - 1
	}
	return c.newFrame(p, ip, byAddr)
}

// once makes the frame that slot remembers, plus one.
func (c *collector) once(slot *profile.FrameID, p frameSource, ip uint64, byAddr bool) profile.FrameID {
	if *slot == 0 {
		*slot = c.newFrame(p, ip, byAddr) + 1
	}
	return *slot - 1
}

func (c *collector) newFrame(p frameSource, ip uint64, byAddr bool) profile.FrameID {
	f := c.frame(p, ip, byAddr)
	if byAddr || p.bin == nil {
		id := c.b.Frame(f)
		if c.o.Places {
			c.s.keepPlace(id, p)
		}
		return id
	}
	return c.b.FrameIn(c.objectOf(p.bin), &f)
}

func (c *collector) frame(p frameSource, ip uint64, byAddr bool) profile.Frame {
	loc := c.s.describe(p, ip)
	f := profile.Frame{Name: loc.Name, DSO: loc.DSO, Path: loc.Path, Source: loc.Source, Kernel: loc.Kernel}
	if p.bin != nil {
		f.BuildID, f.Origin = p.bin.hexID, p.bin.origin()
	}
	if p.isKsym {
		f.Program, f.Loader = c.s.bpfOwner(&p.ksym)
		if l, ok := c.s.bpfLine(&p.ksym, ip); ok && c.o.Lines {
			f.File, f.Line = l.File, l.Line
		}
	}
	if c.o.Reasons && f.Name == "" {
		f.Source = c.s.whyNameless(&p)
	}
	if byAddr {
		f.Addr = loc.Addr
		c.s.placeInFile(&f, p)
	}
	return f
}

// objectOf is what the frames of the functions of a binary have in common.
func (c *collector) objectOf(b *binary) profile.ObjectID {
	if b.object == 0 {
		b.object = c.b.Object(&profile.Frame{DSO: b.dso, Path: b.file.Path, BuildID: b.hexID, Origin: b.origin()}) + 1
	}
	return b.object - 1
}

// placeInFile says which part of its file the frame's address lies in.
func (s *Session) placeInFile(f *profile.Frame, p frameSource) {
	switch {
	case p.bin != nil && p.bin.obj != nil && len(p.bin.obj.Segments) > 0:
		for _, seg := range p.bin.obj.Segments {
			if p.addr >= seg.Vaddr && p.addr-seg.Vaddr < seg.Memory {
				f.MapStart, f.MapLimit, f.MapOffset = seg.Vaddr, seg.Vaddr+seg.Memory, seg.Offset
				return
			}
		}
	case p.mapping.File != nil && !p.kernel:
		m := p.mapping
		f.MapStart, f.MapLimit, f.MapOffset = m.PgOff, m.PgOff+(m.End-m.Start), m.PgOff
	case p.mapping.File != nil:
		f.MapStart, f.MapLimit = p.mapping.Start, p.mapping.End
	}
}
