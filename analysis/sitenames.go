// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
)

// nameSites looks up what the sites were and adds them to the profile.
func (c *collector) nameSites() {
	kernel, files := c.sites.addresses(len(c.s.Timeline.Files()))
	if len(kernel) > 0 {
		c.s.loadKernel(kernel)
	}
	c.s.loadBinaries(files)
	for event := range c.sites.events {
		t := c.sites.events[event]
		for i := range t.n {
			s := t.at(i)
			c.out.AddFrame(s.labels, c.siteFrame(s), event, s.count, s.value)
		}
	}
}

// addresses are those that sites fell on: of the kernel, and by file in user
// space the offsets.
func (x *sites) addresses(files int) (kernel []uint64, byFile [][]uint64) {
	counts := make([]int, files+1) // the last is the kernel's
	x.each(files, func(file int, _ uint64) { counts[file]++ })
	byFile = make([][]uint64, files+1)
	for i, n := range counts {
		byFile[i] = make([]uint64, 0, n)
	}
	x.each(files, func(file int, addr uint64) { byFile[file] = append(byFile[file], addr) })
	return byFile[files], byFile[:files]
}

// each calls f for the sites that symbols are needed for, with files in place
// of a file for those of the kernel.
func (x *sites) each(files int, f func(file int, addr uint64)) {
	for event := range x.events {
		t := x.events[event]
		for i := range t.n {
			switch s := t.at(i); {
			case s.context >= kernelContext:
				f(files, s.addr)
			case s.context < ksymContext:
				f(int(s.context)-1, s.addr)
			}
		}
	}
}

// loadBinaries reads the symbols of files at the offsets given for each.
// Files that are the same are one binary.
func (s *Session) loadBinaries(offsets [][]uint64) {
	s.binaries = append(s.binaries, make([]*binary, max(len(offsets)-len(s.binaries), 0))...)
	shared := make(map[symbol.Ref][]*binary)
	for i, f := range s.Timeline.Files()[:len(offsets)] {
		if len(offsets[i]) == 0 || s.binaries[i] != nil {
			continue
		}
		b := s.newBinary(f)
		s.binaries[i] = b
		switch {
		case !openable(f.Path):
		case timeline.IsPerfMap(f.Path):
			b.setObject(s.object(f))
		case b.id.IsZero():
			s.loadBinary([]*binary{b}, offsets)
		default:
			shared[b.shared] = append(shared[b.shared], b)
		}
	}
	for _, b := range s.binaries {
		if b != nil && shared[b.shared] != nil {
			s.loadBinary(shared[b.shared], offsets)
			delete(shared, b.shared)
		}
	}
}

// loadBinary reads the symbols of one binary that was seen as several files,
// from the first of them that can be read.
func (s *Session) loadBinary(files []*binary, offsets [][]uint64) {
	all := offsets[files[0].file.Index]
	for _, b := range files[1:] {
		all = append(all, offsets[b.file.Index]...)
	}
	for _, b := range files {
		obj, err := s.resolver.ObjectAt(s.ref(b.file), all)
		if err != nil {
			b.err = err
			continue
		}
		for _, b := range files {
			b.setObject(obj, nil)
		}
		return
	}
}

// siteFrame is the frame of what was at a site.
func (c *collector) siteFrame(s *site) profile.FrameID {
	p := frameSource{addr: s.addr, sym: noSymbol}
	switch {
	case s.context >= kernelContext:
		return c.kernelFrame(s)
	case s.context == ksymContext:
		p.kernel, p.isKsym, p.ksym = true, true, c.sites.ksyms.list[s.addr]
		return c.newFrame(p, p.ksym.Start, false)
	case s.context == noContext:
		return c.newFrame(p, s.addr, true)
	}
	p.bin = c.s.binaries[s.context-1]
	if obj := p.bin.obj; obj != nil {
		p.addr = obj.Addr(0, 0, s.addr)
		if sym, ok := obj.Lookup(p.addr); ok {
			if id := p.bin.frames[sym]; id != 0 {
				return id - 1
			}
			p.sym = sym
			return c.frameOf(p, p.addr)
		}
	}
	// Which part of its file an address lies in, only call stacks ask for.
	return c.b.FrameIn(c.objectOf(p.bin), &profile.Frame{Addr: p.addr})
}

// kernelFrame is the frame of an address of the kernel that was not in a
// symbol that the kernel added while it ran.
func (c *collector) kernelFrame(s *site) profile.FrameID {
	p := frameSource{addr: s.addr, sym: noSymbol, kernel: true,
		mapping: c.sites.kernelMaps.list[s.context&^kernelContext]}
	if sym, addr, ok := c.s.kernel.lookup(s.addr); ok {
		if c.kernel != nil && c.kernel[sym] != 0 {
			return c.kernel[sym] - 1
		}
		p.sym, p.addr = sym, addr
	}
	return c.frameOf(p, s.addr)
}
