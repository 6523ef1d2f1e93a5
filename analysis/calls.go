// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
)

// Calls appends the calls that the address ip of th belonged to, as Locate
// names them: leaf first, each but the last inlined into the next one. It
// appends nothing where no source line is known, as in the kernel but for BPF
// programs.
func (s *Session) Calls(dst []symbol.Call, th *timeline.Thread, ip uint64, kernel bool) []symbol.Call {
	if kernel {
		if k, ok := s.Timeline.Ksyms.Lookup(ip); ok {
			if l, ok := s.bpfLine(&k, ip); ok {
				dst = append(dst, symbol.Call{Name: k.Name, File: l.File, Line: l.Line, Source: "bpf"})
			}
		}
		return dst
	}
	p := s.locateUser(th, ip)
	if p.bin == nil || p.bin.obj == nil {
		return dst
	}
	start := len(dst)
	dst = s.lines(p.bin).Calls(dst, p.addr)
	if n := len(dst) - 1; n >= start && p.sym != noSymbol {
		dst[n].Name = p.bin.obj.Demangled(p.sym)
	}
	return dst
}

// lines is the line information of a binary.
func (s *Session) lines(b *binary) *symbol.Lines {
	switch {
	case b.lines != nil:
	case timeline.IsPerfMap(b.file.Path):
		b.lines = new(symbol.Lines) // of generated code, names are all there is
	default:
		b.lines = s.resolver.Lines(s.ref(b.file))
	}
	return b.lines
}

// lineWarnings tell which line information could not be read.
func (s *Session) lineWarnings() []string {
	var out []string
	seen := make(map[*symbol.Lines]bool)
	for _, b := range s.binaries {
		if b == nil || b.lines == nil || seen[b.lines] {
			continue
		}
		seen[b.lines] = true
		if err := b.lines.Err(); err != nil {
			out = append(out, fmt.Sprintf("source lines of %s are not complete: %v", b.file.Path, err))
		}
	}
	return out
}

// groupBit marks the number of a group of frames among those of frames: an
// address with the calls that were inlined there. noFrame is no group.
const groupBit = 1 << 31

// detailed reports whether frames tell more than the function of an address.
func (o *CollectOptions) detailed() bool { return o.Lines || o.Inline }

// detail is the frame, or the group of frames, of an address in a binary.
func (c *collector) detail(p frameSource, ip uint64) profile.FrameID {
	if p.bin.addrs == nil {
		p.bin.addrs = make(map[uint64]profile.FrameID)
	}
	id, ok := p.bin.addrs[p.addr]
	if !ok {
		id = c.newDetail(p, ip)
		p.bin.addrs[p.addr] = id
	}
	return id
}

func (c *collector) newDetail(p frameSource, ip uint64) profile.FrameID {
	c.calls = c.s.lines(p.bin).Calls(c.calls[:0], p.addr)
	last := len(c.calls) - 1
	f := c.frame(p, ip, c.o.Addresses || p.sym == noSymbol)
	if last < 0 {
		return c.b.Frame(f)
	}
	function, in := &c.calls[last], &c.calls[last]
	if !c.o.Inline {
		in = &c.calls[0] // the line that the address belongs to
	}
	if f.Name == "" && function.Name != "" {
		f.Name, f.Source = function.Name, function.Source
	}
	if c.o.Lines {
		f.File, f.Line = in.File, in.Line
	}
	if last == 0 || !c.o.Inline {
		return c.b.Frame(f)
	}
	group := make([]profile.FrameID, 0, last+1)
	for i := range c.calls[:last] {
		call := &c.calls[i]
		x := f
		x.Name, x.Source, x.Inlined, x.File, x.Line = call.Name, call.Source, true, "", 0
		if c.o.Lines {
			x.File, x.Line = call.File, call.Line
		}
		group = append(group, c.b.Frame(x))
	}
	c.groups = append(c.groups, append(group, c.b.Frame(f)))
	return groupBit | profile.FrameID(len(c.groups)-1)
}

// expand puts the frames of groups in their place.
func (c *collector) expand(frames []profile.FrameID) []profile.FrameID {
	c.expanded = c.expanded[:0]
	for _, f := range frames {
		if f&groupBit == 0 {
			c.expanded = append(c.expanded, f)
		} else {
			c.expanded = append(c.expanded, c.groups[f&^groupBit]...)
		}
	}
	return c.expanded
}
