// SPDX-License-Identifier: Apache-2.0

package profile

// Frame is one resolved entry of a stack.
type Frame struct {
	// Name of the function, demangled. Empty if it could not be resolved.
	Name string
	// DSO is the short name of the object: the last part of its path, or
	// [kernel.kallsyms], [vdso] and the like.
	DSO string
	// Path and BuildID (lower-case hex) name the object's file.
	Path, BuildID string
	// Addr is the address of the frame, zero when frames are aggregated per
	// function. It is in the address space of MapStart and MapLimit: either
	// that of the process or, better as it is the same in every process,
	// that of the object file.
	Addr uint64
	// MapStart, MapLimit and MapOffset say where the file is mapped, as in
	// /proc/PID/maps. All zero if not known.
	MapStart, MapLimit, MapOffset uint64
	// Source says where the name comes from: symtab, kallsyms, perf-map...
	// Of a frame without a name it may say why it has none.
	Source string
	// Program is the BPF program that the function is a part of, NAME#ID, and
	// Loader the name of the container that loaded it, or Host.
	Program, Loader string
	// Origin says where the object's file was found: path, process, store...
	Origin string
	File   string
	Line   uint32
	Kernel bool
	// Inlined marks a call that the compiler inlined into its caller, the
	// next frame of the stack, which has the same address.
	Inlined bool
}

// Host is what reports show in place of a container for what is in none.
const Host = "[host]"

// stringID is the number of an interned string; 0 is the empty one.
type stringID uint32

// frame is a Frame without pointers: 40 bytes, and nothing to scan.
type frame struct {
	addr              uint64
	name, source      stringID
	object            uint32
	file              stringID
	line              uint32
	kernel, isInlined bool
}

// object is what the frames of one mapping have in common.
type object struct {
	dso, path, buildID   stringID
	origin               stringID
	program, loader      stringID
	start, limit, offset uint64
}

type frameTable struct {
	strings []string
	objects []object
	frames  column[frame]
}

func (t *frameTable) get(id FrameID) Frame {
	f := t.frames.at(uint32(id))
	o := &t.objects[f.object]
	return Frame{
		Name: t.strings[f.name], Source: t.strings[f.source],
		DSO: t.strings[o.dso], Path: t.strings[o.path], BuildID: t.strings[o.buildID], Origin: t.strings[o.origin],
		Program: t.strings[o.program], Loader: t.strings[o.loader],
		Addr: f.addr, MapStart: o.start, MapLimit: o.limit, MapOffset: o.offset,
		File: t.strings[f.file], Line: f.line,
		Kernel: f.kernel, Inlined: f.isInlined,
	}
}

// A FrameRef is what tells the function of a frame, in numbers: equal texts
// have equal numbers, and the empty one has 0.
type FrameRef struct {
	Name, DSO       uint32
	Program, Loader uint32
	Addr            uint64
	Kernel, Inlined bool
}

// FrameRef returns what tells the function of the frame id.
func (p *Profile) FrameRef(id FrameID) FrameRef {
	f := p.frames.frames.at(uint32(id))
	o := &p.frames.objects[f.object]
	return FrameRef{
		Name: uint32(f.name), DSO: uint32(o.dso), Program: uint32(o.program), Loader: uint32(o.loader),
		Addr: f.addr, Kernel: f.kernel, Inlined: f.isInlined,
	}
}

// SameFunction reports whether two frames are of one function: of the same name
// in the same object, which may be none.
func (b *Builder) SameFunction(x, y FrameID) bool {
	f, g := b.p.frames.frames.at(uint32(x)), b.p.frames.frames.at(uint32(y))
	if f.name != g.name || f.kernel != g.kernel {
		return false
	}
	o, p := &b.p.frames.objects[f.object], &b.p.frames.objects[g.object]
	return o.dso == p.dso && o.path == p.path && o.buildID == p.buildID
}

// Text is the text of a number of a FrameRef.
func (p *Profile) Text(n uint32) string { return p.frames.strings[n] }

// frameIndex finds frames that the table already has.
type frameIndex struct {
	strings, objects, frames index
}

func (b *Builder) intern(s string) stringID {
	if s == "" {
		return 0
	}
	t, h := &b.p.frames, b.hash.string(s)
	id, ok := b.frames.strings.find(h, func(id uint32) bool { return t.strings[id] == s })
	if !ok {
		id = uint32(len(t.strings))
		t.strings = append(t.strings, s)
		b.frames.strings.insert(h, id)
	}
	return stringID(id)
}

func (b *Builder) object(o object) uint32 {
	t, h := &b.p.frames, b.hashObject(&o)
	id, ok := b.frames.objects.find(h, func(id uint32) bool { return t.objects[id] == o })
	if !ok {
		id = uint32(len(t.objects))
		t.objects = append(t.objects, o)
		b.frames.objects.insert(h, id)
	}
	return id
}

func (b *Builder) hashObject(o *object) uint64 {
	h := b.hash.pair(uint64(o.dso)<<32|uint64(o.path), uint64(o.buildID)<<32|uint64(o.origin))
	h = b.hash.pair(h, uint64(o.program)<<32|uint64(o.loader))
	return b.hash.pair(h, b.hash.pair(o.start, o.limit)^o.offset)
}

func (b *Builder) hashFrame(f *frame) uint64 {
	h := b.hash.pair(uint64(f.name)<<32|uint64(f.object), uint64(f.file)<<32|uint64(f.line))
	return b.hash.pair(h, f.addr)
}

// ObjectID names what the frames of one mapped object have in common.
type ObjectID uint32

// Object interns what f has in common with the other frames of its object:
// DSO, Path, BuildID, Origin, Program, Loader and where it is mapped.
func (b *Builder) Object(f *Frame) ObjectID {
	return ObjectID(b.object(object{
		dso: b.intern(f.DSO), path: b.intern(f.Path), buildID: b.intern(f.BuildID), origin: b.intern(f.Origin),
		program: b.intern(f.Program), loader: b.intern(f.Loader),
		start: f.MapStart, limit: f.MapLimit, offset: f.MapOffset,
	}))
}

// Frame interns f. It costs a few string hashes: keep the id per address.
func (b *Builder) Frame(f Frame) FrameID { return b.FrameIn(b.Object(&f), &f) }

// FrameIn is Frame for who keeps the number of the object. What Object looks
// at does not count.
func (b *Builder) FrameIn(o ObjectID, f *Frame) FrameID {
	c := frame{
		addr: f.Addr,
		name: b.intern(f.Name), source: b.intern(f.Source), file: b.intern(f.File),
		object: uint32(o), line: f.Line, kernel: f.Kernel, isInlined: f.Inlined,
	}
	t, h := &b.p.frames, b.hashFrame(&c)
	id, ok := b.frames.frames.find(h, func(id uint32) bool { return *t.frames.at(id) == c })
	if !ok {
		id = t.frames.push(c)
		b.frames.frames.insert(h, id)
	}
	return FrameID(id)
}
