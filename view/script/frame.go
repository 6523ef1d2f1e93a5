// SPDX-License-Identifier: Apache-2.0

package script

import (
	"cmp"
	"path"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/perf"
)

// markedBlank is where an address means something.
type markedBlank uint8

const (
	nowhere markedBlank = iota // a hypervisor, a guest, or not told
	userSpace
	kernelSpace
)

func spaceOf(m perf.Misc) markedBlank {
	switch m.CPUMode() {
	case perf.MiscKernel:
		return kernelSpace
	case perf.MiscUser:
		return userSpace
	}
	return nowhere
}

// frames prints addresses, and remembers what it printed.
type frames struct {
	p      *printer
	slots  []frameSlot
	styles []Field
	calls  []symbol.Call // of one address

	nameless nameless
}

// frameSlot is the text of an address, from the second time on that it comes:
// many come once. context is the id of the mappings that it was found in, with
// kernelContext set for the kernel's; 0 is no address.
type frameSlot struct {
	ip      uint64
	context uint32
	style   uint8
	text    []byte
	// nameless is the number of its path if it has no name, else 0.
	nameless uint32
}

const (
	frameBits     = 16
	kernelContext = 1 << 31
)

func (f *frames) init(p *printer) {
	f.p = p
	f.slots = make([]frameSlot, 1<<frameBits)
}

const (
	// leafStyle marks the style of an address that is not a line of its own.
	leafStyle = 1 << 7
	// inlineStyle marks the style of an address with the calls inlined there.
	inlineStyle = 1 << 6
)

// spot is an address of a thread.
type spot struct {
	thread *timeline.Thread
	ip     uint64
	in     markedBlank
}

// style numbers a choice of columns.
func (f *frames) style(fields Field) uint8 {
	for i, s := range f.styles {
		if s == fields {
			return uint8(i)
		}
	}
	f.styles = append(f.styles, fields)
	return uint8(len(f.styles) - 1)
}

// chain prints the call chain of a sample, a line for each frame. Of a stack
// that was dumped it prints what unwinding gives, or at least where the task
// was.
func (p *printer) chain(dst []byte, pl *plan, it *analysis.Item) []byte {
	in := spaceOf(it.Sample.Misc)
	if in == nowhere {
		in = userSpace
	}
	user := p.s.UserStack(it)
	n := 0
	for _, ip := range it.Sample.Callchain {
		if ip >= perf.ContextMax {
			in = markedSpace(ip, in)
			continue
		}
		if in == userSpace && len(user) > 0 {
			continue
		}
		if n++; p.o.MaxStack > 0 && n > p.o.MaxStack {
			break
		}
		dst = p.frames.append(dst, it.Thread, ip, in, pl.style)
	}
	for _, ip := range user {
		if n++; p.o.MaxStack > 0 && n > p.o.MaxStack {
			break
		}
		dst = p.frames.append(dst, it.Thread, ip, userSpace, pl.style)
	}
	if n == 0 && it.Event.Attr.SampleType&perf.SampleStackUser != 0 { // the stack is in a dump
		dst = p.frames.append(dst, it.Thread, it.Sample.IP, spaceOf(it.Sample.Misc), pl.style)
	}
	return dst
}

// markedSpace is the space behind a mark. Values that are no mark, such as the
// -1 that walking a stack without frame pointers may end in, change nothing.
func markedSpace(mark uint64, in markedBlank) markedBlank {
	switch mark {
	case perf.ContextKernel:
		return kernelSpace
	case perf.ContextUser, perf.ContextUserDeferred:
		return userSpace
	case perf.ContextHV, perf.ContextGuest, perf.ContextGuestKernel, perf.ContextGuestUser:
		return nowhere
	}
	return in
}

// leaf prints the address of a sample.
func (p *printer) leaf(dst []byte, pl *plan, it *analysis.Item) []byte {
	return p.frames.append(dst, it.Thread, it.Sample.IP, spaceOf(it.Sample.Misc), pl.style|leafStyle)
}

// append prints an address.
func (f *frames) append(dst []byte, th *timeline.Thread, ip uint64, in markedBlank, style uint8) []byte {
	var context uint32
	switch {
	case in == kernelSpace:
		context = kernelContext | f.p.s.Timeline.KernelID()
	case in == userSpace && th != nil:
		context = th.Process.Maps().ID()
	}
	h := (ip ^ uint64(context^uint32(style)<<24)*0x9E3779B97F4A7C15) * 0xFF51AFD7ED558CCD
	slot := &f.slots[h>>(64-frameBits)]
	again := slot.ip == ip && slot.context == context && slot.style == style && context != 0
	if again && len(slot.text) > 0 {
		if slot.nameless > 0 {
			f.nameless.add(slot.nameless, f.p.tally.Printed)
		}
		return append(dst, slot.text...)
	}
	start := len(dst)
	var loc analysis.Location
	if in != nowhere {
		loc = f.p.s.Locate(th, ip, in == kernelSpace)
	}
	dst = f.format(dst, &loc, &spot{th, ip, in}, style)
	if in == userSpace && loc.Path == "" {
		return dst // something may yet be mapped here
	}
	slot.nameless = 0
	if loc.Name == "" && in == userSpace {
		slot.nameless = f.nameless.number(loc.Path)
		f.nameless.add(slot.nameless, f.p.tally.Printed)
	}
	slot.ip, slot.context, slot.style, slot.text = ip, context, style, slot.text[:0]
	if again {
		slot.text = append(slot.text, dst[start:]...)
	}
	return dst
}

// format prints a frame as perf does: of user space, call chains show the
// offset in the file. Calls that were inlined there have lines of their own.
func (f *frames) format(dst []byte, loc *analysis.Location, at *spot, style uint8) []byte {
	fields := f.styles[style&^(leafStyle|inlineStyle)]
	var calls []symbol.Call
	if in := style&inlineStyle != 0; in || fields&Srcline != 0 {
		f.calls = f.p.s.Calls(f.calls[:0], at.thread, at.ip, at.in != userSpace)
		if calls = f.calls; !in && len(calls) > 1 {
			calls = calls[:1] // the line that the address belongs to
		}
	}
	line := frameLine{loc: loc, ip: at.ip, fields: fields, leaf: style&leafStyle != 0}
	for len(calls) > 1 {
		line.name, line.call, line.inlined = calls[0].Name, &calls[0], true
		dst = line.append(dst)
		calls = calls[1:]
	}
	line.name, line.call, line.inlined = loc.Name, nil, false
	if len(calls) > 0 {
		line.call = &calls[0]
		line.name = cmp.Or(loc.Name, calls[0].Name)
	}
	return line.append(dst)
}

// frameLine is a line of a call chain, or what stands at the end of the line of
// a sample without one.
type frameLine struct {
	loc           *analysis.Location
	ip            uint64
	name          string
	call          *symbol.Call // nil if no source line is known
	fields        Field
	leaf, inlined bool
}

func (l *frameLine) append(dst []byte) []byte {
	loc, ip := l.loc, l.ip
	if l.leaf {
		dst = append(dst, ' ')
	} else {
		dst = append(dst, '\t')
		if loc.Mapping.File != nil && !loc.Kernel && !isJIT(loc.Path) {
			ip = ip - loc.Mapping.Start + loc.Mapping.PgOff
		}
	}
	dst = appendHex(dst, ip, 16)
	if l.fields&Sym != 0 {
		dst = append(dst, ' ')
		if l.name == "" {
			dst = append(dst, "[unknown]"...)
		} else {
			dst = appendText(dst, l.name, 0)
			if l.fields&SymOff != 0 {
				dst = appendHex(append(dst, "+0x"...), loc.Offset, 0)
			}
		}
	}
	if l.fields&DSO != 0 && !l.inlined {
		dst = append(dst, " ("...)
		dst = appendText(dst, objectName(loc), 0)
		dst = append(dst, ')')
	}
	if l.fields&Srcline != 0 {
		dst = l.appendSource(append(dst, "\n  "...))
	}
	if l.inlined {
		dst = append(dst, " (inlined)"...)
	}
	if !l.leaf {
		dst = append(dst, '\n')
	}
	return dst
}

// appendSource prints the source line; where none is known, as perf does, the
// object and the address in it.
func (l *frameLine) appendSource(dst []byte) []byte {
	if l.call == nil || l.call.File == "" {
		dst = appendText(dst, objectName(l.loc), 0)
		return append(appendHex(append(dst, '['), l.loc.Addr, 0), ']')
	}
	dst = append(appendText(dst, path.Base(l.call.File), 0), ':')
	return strconv.AppendUint(dst, uint64(l.call.Line), 10)
}

// objectName is what perf script calls the object: by its path, or in
// brackets.
func objectName(loc *analysis.Location) string {
	switch {
	case loc.Kernel && loc.DSO != "":
		return loc.DSO
	case !loc.Kernel && loc.Path != "":
		return loc.Path
	}
	return "[unknown]"
}

// isJIT reports whether the path is that of generated code, whose addresses are
// those of memory.
func isJIT(path string) bool {
	return strings.HasPrefix(path, "/tmp/perf-") && strings.HasSuffix(path, ".map")
}
