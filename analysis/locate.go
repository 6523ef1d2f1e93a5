// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"fmt"
	"path"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/buildid"
)

// Location is what an address was at one moment.
type Location struct {
	// Addr is the address in the object's own address space, as symbols
	// and line tables have it; the address itself if nothing was mapped.
	Addr uint64
	// Mapping is zero if nothing was mapped.
	Mapping timeline.Mapping
	// DSO is the short name of the object, "" if nothing was mapped.
	DSO string
	// Path is the long one.
	Path string
	// Name is the function's, demangled, "" if it has none, and Offset how
	// far behind its start the address is, in bytes.
	Name   string
	Offset uint64
	// Source says where Name comes from.
	Source string
	Kernel bool
}

// noSymbol marks an address without a symbol.
const noSymbol = -1

// binary is a File with its symbols.
type binary struct {
	file *timeline.File
	obj  *symbol.Object // nil if it could not be read
	err  error          // why not
	// lines are the source lines, read when they are asked for.
	lines *symbol.Lines
	dso   string
	id    buildid.ID
	// shared is the Ref of all files that are this one.
	shared symbol.Ref
	// hexID is id as text.
	hexID string
	// frames are the ids of the profile being built, by symbol; 0 is none
	// yet, otherwise the id plus one.
	frames []profile.FrameID
	// addrs are those by address.
	addrs map[uint64]profile.FrameID
	// object is what the frames by symbol have in common, plus one.
	object profile.ObjectID
}

// frameSource is a Location in numbers.
type frameSource struct {
	addr    uint64
	mapping timeline.Mapping // File is nil if nothing is mapped
	bin     *binary
	sym     int32
	kernel  bool
	isKsym  bool
	ksym    symbol.Ksym
}

// Locate says what the address ip of th was, as of the record that Next gave
// last. kernel says in which of the two address spaces ip is.
func (s *Session) Locate(th *timeline.Thread, ip uint64, kernel bool) Location {
	return s.describe(s.locate(th, ip, kernel), ip)
}

func (s *Session) locate(th *timeline.Thread, ip uint64, kernel bool) frameSource {
	if kernel {
		return s.locateKernel(ip)
	}
	return s.locateUser(th, ip)
}

func (s *Session) locateUser(th *timeline.Thread, ip uint64) frameSource {
	p := frameSource{addr: ip, sym: noSymbol}
	if th == nil {
		return p
	}
	m := th.Process.Maps().Find(ip)
	if m == nil {
		return p
	}
	p.mapping = *m
	b := s.binary(m.File)
	p.bin = b
	if b.obj == nil {
		// The offset in the file: the best that can be said.
		p.addr = ip - m.Start + m.PgOff
		return p
	}
	p.addr = b.obj.Addr(m.Start, m.PgOff, ip)
	if sym, ok := b.obj.Lookup(p.addr); ok {
		p.sym = sym
	}
	return p
}

// binary reads the symbols of f, once.
func (s *Session) binary(f *timeline.File) *binary {
	for len(s.binaries) <= f.Index {
		s.binaries = append(s.binaries, nil)
	}
	if b := s.binaries[f.Index]; b != nil {
		return b
	}
	b := s.newBinary(f)
	s.binaries[f.Index] = b
	if openable(f.Path) {
		b.setObject(s.object(f))
	}
	return b
}

// newBinary is f without symbols yet.
func (s *Session) newBinary(f *timeline.File) *binary {
	b := &binary{file: f, dso: shortName(f.Path)}
	if !openable(f.Path) {
		return b
	}
	ref := s.ref(f)
	b.id, b.shared = ref.BuildID, ref.Shared()
	b.hexID = b.id.String()
	return b
}

// forgetFrames forgets the ids of a profile that is done.
func (b *binary) forgetFrames() {
	if b != nil {
		clear(b.frames)
		b.addrs, b.object = nil, 0
	}
}

// setObject takes what reading the symbols gave.
func (b *binary) setObject(obj *symbol.Object, err error) {
	if b.err = err; err == nil {
		b.obj, b.frames = obj, make([]profile.FrameID, obj.Len())
	}
}

// origin is where the file was found, "" if it was not.
func (b *binary) origin() string {
	if b.obj == nil {
		return ""
	}
	return b.obj.Place
}

// object reads the symbols of f, or of the code that is generated in its memory.
func (s *Session) object(f *timeline.File) (*symbol.Object, error) {
	ref := s.ref(f)
	if !timeline.IsPerfMap(f.Path) {
		return s.resolver.Object(ref)
	}
	var dumps []symbol.Ref
	for _, other := range s.jitdumps(f.PID) {
		dumps = append(dumps, s.ref(other))
	}
	return s.resolver.JIT(ref, dumps)
}

// codeWarnings tell what of perf maps and jitdump files was left out.
func (s *Session) codeWarnings() []string {
	lost := 0
	for _, b := range s.binaries {
		if b != nil && b.obj != nil {
			lost += b.obj.Lost
		}
	}
	if lost == 0 {
		return nil
	}
	return []string{fmt.Sprintf("generated code may lack names: %d entries of perf maps and jitdump files make no "+
		"sense, or are too many", lost)}
}

// isJitdump reports whether a mapping is that by which a process tells where its
// jitdump file is.
func isJitdump(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump")
}

// ref says which file f is.
func (s *Session) ref(f *timeline.File) symbol.Ref {
	ref := symbol.Ref{Path: f.Path, Inode: f.Ino, MountNS: s.mountNS(f), PID: f.PID}
	if timeline.IsPerfMap(f.Path) && len(s.files[f.Path]) > 0 {
		// Processes of several mount namespaces may have had the number.
		ref.BuildID, _ = s.files.find(&buildid.Mapped{Path: f.Path, MountNS: f.MountNS})
		if ref.BuildID.IsZero() {
			ref.Unchanged = s.wallTime(f)
		}
		return ref
	}
	if id, err := buildid.New([]byte(f.BuildID)); err == nil {
		ref.BuildID = id
		if other, ok := s.files.find(&buildid.Mapped{Path: f.Path, BuildID: id, MountNS: f.MountNS}); ok {
			ref.BuildID = other // another file has the same build-id
		}
	} else if id, ok := s.ids.of(f.Path); ok && s.oneContent(f) {
		ref.BuildID = id
	} else if id, ok := s.files.find(&buildid.Mapped{
		Path: f.Path, Major: f.Maj, Minor: f.Min, Inode: f.Ino, Gen: f.InoGen, MountNS: f.MountNS}); ok && f.Ino != 0 {
		ref.BuildID = id // that of its content
	} else if isVDSO(f.Path) {
		ref.BuildID = s.vdsoID(f.Path)
	}
	if ref.BuildID.IsZero() {
		ref.Unchanged = s.wallTime(f)
	}
	return ref
}

// wallTime is when a file was mapped first, by the clock of file systems, in
// nanoseconds since 1970; 0 if the recording does not tell. Of a perf map it is 0 if
// the process had code before the recording.
func (s *Session) wallTime(f *timeline.File) int64 {
	d := s.r.Features().ClockData
	if d == nil || f.First == 0 || f.Status && timeline.IsPerfMap(f.Path) {
		return 0
	}
	return int64(d.WallNS + (f.First - d.ClockNS))
}

// vdsoID is the build-id of a vdso that has none of its own.
func (s *Session) vdsoID(name string) (id buildid.ID) {
	k := s.kernelAsked(nil)
	if narrow(k.Arch) {
		// Its processes have one of 32 bits only.
		id, _ = s.ids.of("[vdso]")
	} else if name == "[vdso]" && s.opts.VDSO != nil {
		id = s.opts.VDSO(k)
	}
	return id
}

// narrow reports whether addresses of a machine, as uname -m, have 32 bits.
func narrow(arch string) bool {
	i386, _ := path.Match("i?86", arch)
	return i386 || strings.HasPrefix(arch, "arm") && arch != "arm64"
}

// Binary is a file that addresses were looked up in.
type Binary struct {
	File *timeline.File
	Ref  symbol.Ref
}

// Binaries are the files of processes that addresses were looked up in, whether
// they were found or not, in the order of the timeline.
func (s *Session) Binaries() (list []Binary) {
	for _, b := range s.binaries {
		if b != nil && !b.file.Kernel && openable(b.file.Path) && !isVDSO(b.file.Path) &&
			!timeline.IsPerfMap(b.file.Path) {
			ref := s.ref(b.file)
			ref.BuildID = b.id // as it was looked up
			list = append(list, Binary{b.file, ref})
		}
	}
	return list
}

// Resolver is what finds the binaries.
func (s *Session) Resolver() *symbol.Resolver { return s.resolver }

// mountNS is f's mount namespace, 0 if it is the host's.
func (s *Session) mountNS(f *timeline.File) uint64 {
	if f.MountNS == s.hostMountNS() {
		return 0
	}
	return f.MountNS
}

// openable reports whether a mapping's name can be that of an ELF file.
func openable(name string) bool {
	return strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "//") || isVDSO(name)
}

func isVDSO(name string) bool { return name == "[vdso]" || name == "[vdso32]" }

// shortName is what perf calls the object in a report.
func shortName(name string) string {
	switch {
	case strings.HasPrefix(name, "["), name == "":
		return name
	case strings.HasPrefix(name, "/tmp/perf-") && strings.HasSuffix(name, ".map"):
		return "[JIT] tid " + strings.TrimSuffix(strings.TrimPrefix(name, "/tmp/perf-"), ".map")
	}
	return path.Base(name)
}

// describe puts p into words.
func (s *Session) describe(p frameSource, ip uint64) Location {
	l := Location{Addr: p.addr, Mapping: p.mapping, Kernel: p.kernel}
	switch {
	case p.isKsym:
		l.DSO, l.Path, l.Name, l.Offset, l.Source = p.ksym.Name, p.ksym.Name, p.ksym.Name, ip-p.ksym.Start,
			ksymSource(&p.ksym)
	case p.kernel:
		s.describeKernel(&l, p)
	case p.bin != nil:
		l.DSO, l.Path = p.bin.dso, p.bin.file.Path
		if p.sym != noSymbol {
			l.Name, l.Offset, l.Source = p.bin.obj.Demangled(p.sym), p.addr-p.bin.obj.Sym(p.sym).Start,
				p.bin.obj.Source(p.sym)
			if isVDSO(l.Path) {
				l.Source = "vdso"
			}
		}
	}
	return l
}

func ksymSource(k *symbol.Ksym) string {
	if k.Type == symbol.KsymBPF {
		return "bpf"
	}
	return "ksymbol"
}

func (s *Session) describeKernel(l *Location, p frameSource) {
	if f := p.mapping.File; f != nil {
		l.DSO, l.Path = moduleName(f.Path), f.Path
		if strings.HasPrefix(f.Path, symbol.KernelDSO) {
			l.Path = symbol.KernelDSO
		}
	}
	if p.sym == noSymbol {
		return
	}
	t := s.kernel.table
	l.Name, l.Offset, l.Source = t.Name(p.sym), p.addr-t.Sym(p.sym).Start, "kallsyms"
	if dso := t.DSO(p.sym); l.DSO == "" || dso != symbol.KernelDSO {
		l.DSO = dso
		if l.Path == "" || dso == "[bpf]" {
			l.Path = dso
		}
	}
}
