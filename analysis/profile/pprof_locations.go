// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/binary"
	"path"
	"slices"

	"github.com/google/pprof/profile"
)

// stack returns the locations of a stack: one per frame, but one for a frame
// together with all calls inlined into it.
func (b *pprofBuilder) stack(stack []FrameID) []*profile.Location {
	list := make([]*profile.Location, 0, len(stack))
	for i := 0; i < len(stack); i++ {
		start := i
		for i < len(stack)-1 && b.frame(stack[i]).isInlined {
			i++
		}
		list = append(list, b.location(stack[start:i+1]))
	}
	return list
}

func (b *pprofBuilder) frame(id FrameID) *frame { return b.p.frames.frames.at(uint32(id)) }

// location returns the location of frames, of which all but the last are
// inlined calls.
func (b *pprofBuilder) location(frames []FrameID) *profile.Location {
	b.key = b.key[:0]
	for _, f := range frames {
		b.key = binary.LittleEndian.AppendUint32(b.key, uint32(f))
	}
	if l := b.locations[string(b.key)]; l != nil {
		return l
	}
	t := &b.p.frames
	last := b.frame(frames[len(frames)-1])
	l := &profile.Location{ID: uint64(len(b.out.Location) + 1), Address: last.addr,
		Mapping: b.objects[last.object].mapping(t, last.object)}
	for _, id := range frames {
		f := b.frame(id)
		if !b.grouped[id] {
			b.grouped[id] = true
			b.objects[f.object].add(t, f)
		}
		if t.strings[f.name] == "" && f.addr != 0 {
			continue // for a back end to find
		}
		l.Line = append(l.Line, profile.Line{Function: b.function(id), Line: int64(f.line)})
	}
	b.locations[string(b.key)] = l
	b.out.Location = append(b.out.Location, l)
	return l
}

// function returns the function of a frame, as pprof knows it: a name in a file.
func (b *pprofBuilder) function(id FrameID) *profile.Function {
	f := b.p.Frame(id)
	name := utf8(FoldedName(&f))
	key := profile.Function{Name: name, SystemName: name, Filename: utf8(f.File)}
	fn := b.functions[key]
	if fn == nil {
		fn = new(profile.Function)
		*fn = key
		fn.ID = uint64(len(b.out.Function) + 1)
		b.functions[key] = fn
		b.out.Function = append(b.out.Function, fn)
	}
	return fn
}

// pprofObject is a mapping of a pprof profile, and what its frames say of it.
type pprofObject struct {
	m            *profile.Mapping // nil: no location is in it, or it is not known what is mapped
	used, kernel bool
}

// named reports whether it is known what is mapped. Number 0 is the empty string.
func (o *object) named() bool { return o.dso|o.path|o.buildID != 0 }

// mapping returns the Mapping of object i, nil if it is not known what is mapped there.
func (o *pprofObject) mapping(t *frameTable, i uint32) *profile.Mapping {
	src := &t.objects[i]
	if o.m == nil && src.named() {
		name := t.strings[src.path]
		if name == "" {
			name = t.strings[src.dso]
		}
		o.m = &profile.Mapping{
			Start: src.start, Limit: src.limit, Offset: src.offset, File: utf8(name),
			BuildID:      utf8(t.strings[src.buildID]),
			HasFunctions: true, HasFilenames: true, HasLineNumbers: true,
		}
	}
	return o.m
}

// add takes note of a frame in the object.
func (o *pprofObject) add(t *frameTable, f *frame) {
	o.used = true
	o.kernel = o.kernel || f.kernel
	m := o.mapping(t, f.object)
	if m == nil {
		return
	}
	if t.objects[f.object].limit == 0 && f.addr >= m.Limit {
		m.Limit = f.addr + 1 // bounds not known: as large as needed
	}
	m.HasFunctions = m.HasFunctions && t.strings[f.name] != ""
	m.HasFilenames = m.HasFilenames && t.strings[f.file] != ""
	m.HasLineNumbers = m.HasLineNumbers && f.line != 0
	m.HasInlineFrames = m.HasInlineFrames || f.isInlined
}

// mappings numbers the mappings, the main program first. Addresses outside of
// their mapping are dropped: pprof refuses a profile that has one.
func (b *pprofBuilder) mappings() []*profile.Mapping {
	main := b.mainObject()
	var list []*profile.Mapping
	for i := range b.objects {
		if m := b.objects[i].m; m != nil && i != main {
			list = append(list, m)
		}
	}
	if main >= 0 && b.objects[main].m != nil {
		list = slices.Insert(list, 0, b.objects[main].m)
	}
	for i, m := range list {
		m.ID = uint64(i + 1)
	}
	for _, l := range b.out.Location {
		if m := l.Mapping; m != nil && (l.Address < m.Start || l.Address >= m.Limit) {
			l.Address = 0
		}
	}
	return list
}

// commLength is how much of its name a thread keeps: TASK_COMM_LEN of
// include/linux/sched.h without the end.
const commLength = 15

// mainObject is the main program (see WritePprof), -1 if there is none.
func (b *pprofBuilder) mainObject() int {
	t, first, most := &b.p.frames, -1, uint64(0)
	named := make(map[string]uint64) // samples, by the thread's name
	for id, n := range b.counts {
		named[b.p.Labels(LabelsID(id)).Comm] += n
	}
	for i := range b.objects {
		o := &b.objects[i]
		file := t.strings[t.objects[i].path]
		if !o.used || o.kernel || file == "" {
			continue
		}
		if file == b.p.Meta.Main {
			return i
		}
		comm := path.Base(file)
		comm = comm[:min(len(comm), commLength)]
		if n := named[comm]; first < 0 || n > most {
			first, most = i, n
		}
	}
	return first
}
