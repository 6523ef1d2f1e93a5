// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"encoding/binary"
	"path"
)

// pprofLocations turns frames into locations: one per frame, but one for a
// frame together with all calls inlined into it. A lone frame's location has
// the number FrameID+1; those of inlined calls come after.
type pprofLocations struct {
	p       *Profile
	flags   []locationFlags // by FrameID
	groups  map[string]uint64
	lists   [][]FrameID // of groups, in order of their numbers
	keyRoom []byte
}

type locationFlags struct{ inlined, alone, grouped bool }

func newPprofLocations(p *Profile) *pprofLocations {
	l := &pprofLocations{p: p, flags: make([]locationFlags, p.NumFrames()), groups: map[string]uint64{}}
	for id := range l.flags {
		l.flags[id].inlined = p.frames.frames.at(uint32(id)).isInlined
	}
	return l
}

// of appends the locations of a stack to ids.
func (l *pprofLocations) of(ids []uint64, stack []FrameID) []uint64 {
	for i := 0; i < len(stack); i++ {
		start := i
		for i < len(stack)-1 && l.flags[stack[i]].inlined {
			i++
		}
		if start == i {
			l.flags[stack[i]].alone = true
			ids = append(ids, uint64(stack[i])+1)
			continue
		}
		ids = append(ids, l.group(stack[start:i+1]))
	}
	return ids
}

func (l *pprofLocations) group(frames []FrameID) uint64 {
	l.keyRoom = l.keyRoom[:0]
	for _, f := range frames {
		l.keyRoom = binary.LittleEndian.AppendUint32(l.keyRoom, uint32(f))
		l.flags[f].grouped = true
	}
	id, ok := l.groups[string(l.keyRoom)]
	if !ok {
		l.lists = append(l.lists, frames)
		id = uint64(len(l.flags) + len(l.lists))
		l.groups[string(l.keyRoom)] = id
	}
	return id
}

// pprofObject is what a mapping says of the frames in it.
type pprofObject struct {
	id                 uint64
	start, limit       uint64
	hasName, hasFile   bool // all frames have one
	hasLine, hasInline bool
	used, kernel       bool
}

func (e *pprofEncoder) tables() {
	objects := e.objects()
	e.mappings(objects)
	for id, f := range e.locations.flags {
		if f.alone {
			e.location(uint64(id)+1, []FrameID{FrameID(id)}, objects)
		}
	}
	for i, list := range e.locations.lists {
		e.location(uint64(len(e.locations.flags)+i)+1, list, objects)
	}
	e.functions()
	for _, s := range e.strings {
		e.msg.reset()
		e.msg.bytes(pprofString, []byte(s))
		e.write(e.msg)
	}
}

// objects looks at the frames in use and numbers their mappings, the main
// program first.
func (e *pprofEncoder) objects() []pprofObject {
	t := &e.p.frames
	objects := make([]pprofObject, len(t.objects))
	for id, flags := range e.locations.flags {
		if flags.alone || flags.grouped {
			objects[t.frames.at(uint32(id)).object].look(t, t.frames.at(uint32(id)))
		}
	}
	main := e.mainObject(objects)
	next := uint64(1)
	if main >= 0 {
		objects[main].id = next
		next++
	}
	for i := range objects {
		o := &objects[i]
		if i != main && o.used && t.objects[i].named() {
			o.id = next
			next++
		}
	}
	return objects
}

// named tells whether it is known what is mapped. Number 0 is the empty string.
func (o *object) named() bool { return o.dso|o.path|o.buildID != 0 }

func (o *pprofObject) look(t *frameTable, f *frame) {
	if !o.used {
		*o = pprofObject{used: true, hasName: true, hasFile: true, hasLine: true}
		o.start, o.limit = t.objects[f.object].start, t.objects[f.object].limit
	}
	if t.objects[f.object].limit == 0 && f.addr >= o.limit {
		o.limit = f.addr + 1 // bounds not known: as large as needed
	}
	o.kernel = o.kernel || f.kernel
	o.hasName = o.hasName && t.strings[f.name] != ""
	o.hasFile = o.hasFile && t.strings[f.file] != ""
	o.hasLine = o.hasLine && f.line != 0
	o.hasInline = o.hasInline || f.isInlined
}

// commLength is how much of its name a thread keeps: TASK_COMM_LEN of
// include/linux/sched.h without the end.
const commLength = 15

// mainObject is the main program (see WritePprof), -1 if there is none.
func (e *pprofEncoder) mainObject(objects []pprofObject) int {
	t, first, most := &e.p.frames, -1, uint64(0)
	named := make(map[string]uint64) // samples, by the thread's name
	for id, n := range e.counts {
		named[e.p.Labels(LabelsID(id)).Comm] += n
	}
	for i := range objects {
		o := &objects[i]
		if !o.used || o.kernel || t.strings[t.objects[i].path] == "" {
			continue
		}
		file := t.strings[t.objects[i].path]
		if file == e.p.Meta.Main {
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

func (e *pprofEncoder) mappings(objects []pprofObject) {
	t := &e.p.frames
	byID := make([]int, len(objects)+1)
	for i := range objects {
		byID[objects[i].id] = i
	}
	for id := uint64(1); int(id) < len(byID); id++ {
		i := byID[id]
		o := &objects[i]
		if o.id != id {
			return // ids have no gaps: that was the last one
		}
		src := &t.objects[i]
		name := t.strings[src.path]
		if name == "" {
			name = t.strings[src.dso]
		}
		e.msg.reset()
		e.msg.uint(1, id)
		e.msg.uint(2, o.start)
		e.msg.uint(3, o.limit)
		e.msg.uint(4, src.offset)
		e.msg.uint(5, e.str(name))
		e.msg.uint(6, e.str(t.strings[src.buildID]))
		e.msg.bool(7, o.hasName)
		e.msg.bool(8, o.hasFile)
		e.msg.bool(9, o.hasLine)
		e.msg.bool(10, o.hasInline)
		e.emit(pprofMapping)
	}
}

// location writes the location of frames, of which all but the last are
// inlined calls.
func (e *pprofEncoder) location(id uint64, frames []FrameID, objects []pprofObject) {
	t := &e.p.frames
	last := t.frames.at(uint32(frames[len(frames)-1]))
	o := &objects[last.object]
	e.msg.reset()
	e.msg.uint(1, id)
	e.msg.uint(2, o.id)
	if o.id == 0 || o.start <= last.addr && last.addr < o.limit {
		e.msg.uint(3, last.addr)
	}
	for _, f := range frames {
		c := t.frames.at(uint32(f))
		if t.strings[c.name] == "" && c.addr != 0 {
			continue // for a back end to find
		}
		e.inner.reset()
		e.inner.uint(1, e.function(f))
		e.inner.uint(2, uint64(c.line))
		e.msg.bytes(4, e.inner)
	}
	e.emit(pprofLocation)
}

// pprofFunction is a function as pprof knows it: a name in a file.
type pprofFunction struct{ name, file uint64 }

func (e *pprofEncoder) function(id FrameID) uint64 {
	f := e.p.Frame(id)
	key := pprofFunction{e.str(FoldedName(&f)), e.str(f.File)}
	n, ok := e.functionIDs[key]
	if !ok {
		e.functionList = append(e.functionList, key)
		n = uint64(len(e.functionList))
		e.functionIDs[key] = n
	}
	return n
}

func (e *pprofEncoder) functions() {
	for i, f := range e.functionList {
		e.msg.reset()
		e.msg.uint(1, uint64(i)+1)
		e.msg.uint(2, f.name)
		e.msg.uint(3, f.name)
		e.msg.uint(4, f.file)
		e.emit(pprofFunctionField)
	}
}
