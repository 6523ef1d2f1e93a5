// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math/bits"
	"path"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// frameKey is what makes two frames the same function to a reader.
type frameKey struct {
	name, dso string
	addr      uint64  // of a frame without a name
	source    *source // nil if it is not asked for; keyspace has one of each
	program   string  // the BPF program, and the container that loaded it
	loader    string
	kernel    bool
	inlined   bool
}

// source is what is asked for of a source line: itself, and its file.
type source struct{ line, file string }

// line is the source line, "" if it is not asked for, or of no function.
func (k *frameKey) line() string {
	if k.source == nil {
		return ""
	}
	return k.source.line
}

// file is the same for the source file.
func (k *frameKey) file() string {
	if k.source == nil {
		return ""
	}
	return k.source.file
}

func (k *frameKey) compareSource(o *frameKey) int {
	if k.source == o.source {
		return 0
	}
	return cmp.Or(strings.Compare(k.line(), o.line()), strings.Compare(k.file(), o.file()))
}

func (k frameKey) compare(o frameKey) int {
	kernel := 0
	if k.kernel != o.kernel {
		kernel = 1
		if o.kernel {
			kernel = -1
		}
	}
	return cmp.Or(strings.Compare(k.name, o.name), strings.Compare(k.dso, o.dso),
		cmp.Compare(k.addr, o.addr), kernel, k.compareSource(&o), k.compareInlined(o),
		strings.Compare(k.program, o.program), strings.Compare(k.loader, o.loader))
}

func (k frameKey) compareInlined(o frameKey) int {
	switch {
	case k.inlined == o.inlined:
		return 0
	case o.inlined:
		return -1
	}
	return 1
}

// plain is symbol without the mark of an inlined call.
func (k frameKey) plain() string {
	k.inlined = false
	return k.symbol()
}

// symbol is the function's name, with perf's way to show that there is none.
func (k frameKey) symbol() string {
	switch {
	case k.name != "" && k.inlined:
		return k.name + inlinedMark
	case k.name != "":
		return k.name
	case k.addr != 0:
		b := append(make([]byte, 0, len("0x0123456789abcdef")), "0x"...)
		return string(hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, k.addr)))
	}
	return unknown
}

const (
	unknown     = "[unknown]"
	inlinedMark = " (inlined)" // as perf has it
)

// level is perf's mark of the privilege level.
func (k frameKey) level() string {
	if k.kernel {
		return "[k] "
	}
	return "[.] "
}

func dsoText(f *profile.Frame) string { return cmp.Or(f.DSO, unknown) }

// sourceLine is FILE:LINE with the last part of the file's path, as perf has it;
// where no line is known the function, or the address.
func sourceLine(f *profile.Frame) string {
	if f.File == "" {
		return frameKey{name: f.Name, addr: f.Addr}.symbol()
	}
	return path.Base(f.File) + ":" + strconv.FormatUint(uint64(f.Line), 10)
}

func sourceFile(f *profile.Frame) string {
	if f.File == "" {
		return unknown
	}
	return path.Base(f.File)
}

// keyspace numbers the functions of a profile. Number 0 is no function: the
// empty stack.
type keyspace struct {
	of   []uint32 // by FrameID
	list []frameKey
	dso  []uint32 // by number: which of the objects
	dsos []string
	// seen has the numbers of keys with a source line or file, dsoOf those of
	// objects.
	seen  map[frameKey]uint32
	dsoOf map[string]uint32
	// inlined is set if there are inlined calls at all.
	inlined bool
	// leaves are the keys of functions whose inlined calls say at which line the
	// sample fell.
	leaves map[[2]profile.FrameID]uint32
}

// function is where in a stack the function of the leaf is: behind the calls
// that were inlined into it.
func function(p *profile.Profile, st []profile.FrameID) int {
	n := 0
	for n < len(st)-1 && p.Inlined(st[n]) {
		n++
	}
	return n
}

// leaf is the key of the row that a sample with this stack counts for: that of
// its n-th frame, which is the function, at the line where the sample fell.
func (k *keyspace) leaf(st []profile.FrameID, n uint32) uint32 {
	key := k.of[st[n]]
	if n == 0 || k.list[key].source == nil {
		return key
	}
	pair := [2]profile.FrameID{st[0], st[n]}
	if known, ok := k.leaves[pair]; ok {
		return known
	}
	f, inner := k.list[key], &k.list[k.of[st[0]]]
	f.source = inner.source
	if k.leaves == nil {
		k.leaves = make(map[[2]profile.FrameID]uint32)
	}
	k.leaves[pair] = k.number(f)
	return k.leaves[pair]
}

// keyKind says what makes functions different.
type keyKind struct {
	sym, dso, line, src bool
	program, loader     bool
	// folded puts all functions without a name of an object in one, with a
	// name made of the object's, and inlined calls with the others: in a flame
	// graph, single addresses would be dust.
	folded bool
}

// callKey tells the nodes of a call graph apart.
func callKey() keyKind { return keyKind{sym: true, dso: true} }

// flameKey tells those of a flame graph apart.
func flameKey() keyKind { return keyKind{sym: true, dso: true, folded: true} }

// rowKey tells rows apart: by nothing but what the sort keys ask for.
func rowKey(o *Options) keyKind {
	return keyKind{
		sym: o.has(KeySym), dso: o.has(KeyDSO), line: o.has(KeySrcline), src: o.has(KeySrcfile),
		program: o.has(KeyBPF), loader: o.has(KeyBPFLoader),
	}
}

// ref keeps of r what counts, lines aside.
func (k keyKind) ref(r profile.FrameRef) profile.FrameRef {
	if !k.sym {
		r.Name, r.Kernel, r.Inlined = 0, false, false
	}
	if !k.sym || k.folded || r.Name != 0 {
		r.Addr = 0
	}
	if k.folded {
		r.Inlined = false
	}
	if !k.dso {
		r.DSO = 0
	}
	if !k.program {
		r.Program = 0
	}
	if !k.loader {
		r.Loader = 0
	}
	return r
}

// key is r in texts.
func (k keyKind) key(p *profile.Profile, r profile.FrameRef) frameKey {
	f := frameKey{name: p.Text(r.Name), dso: p.Text(r.DSO), addr: r.Addr, kernel: r.Kernel, inlined: r.Inlined}
	if k.folded {
		f.name = profile.FoldedName(&profile.Frame{Name: f.name, DSO: f.dso})
	}
	if k.dso {
		f.dso = cmp.Or(f.dso, unknown)
	}
	f.program, f.loader = p.Text(r.Program), p.Text(r.Loader)
	return f
}

func newKeyspace(p *profile.Profile, kind keyKind) *keyspace {
	k := &keyspace{of: make([]uint32, p.NumFrames()), dsoOf: map[string]uint32{}}
	capacity := 1
	if kind.sym || kind.program {
		capacity += len(k.of)
	}
	k.list, k.dso = make([]frameKey, 0, capacity), make([]uint32, 0, capacity)
	k.add(frameKey{})
	if kind.line || kind.src {
		k.numberLines(p, kind)
	} else {
		k.numberFunctions(p, kind)
	}
	return k
}

// numberLines numbers what looks the same alike: files of different directories
// do.
func (k *keyspace) numberLines(p *profile.Profile, kind keyKind) {
	k.seen = map[frameKey]uint32{{}: 0}
	sources := map[source]*source{}
	for id := range k.of {
		ref := p.FrameRef(profile.FrameID(id))
		f := p.Frame(profile.FrameID(id))
		key := kind.key(p, kind.ref(ref))
		key.source = kind.source(&f, sources)
		k.of[id] = k.number(key)
		k.inlined = k.inlined || f.Inlined
	}
}

// source is the one source that equals what is asked for of f.
func (k keyKind) source(f *profile.Frame, known map[source]*source) *source {
	var s source
	if k.line {
		s.line = sourceLine(f)
	}
	if k.src {
		s.file = sourceFile(f)
	}
	if known[s] == nil {
		known[s] = &s
	}
	return known[s]
}

// number is the number of a key, which is given now if it is new.
func (k *keyspace) number(key frameKey) uint32 {
	n, ok := k.seen[key]
	if !ok {
		n = k.add(key)
		k.seen[key] = n
	}
	return n
}

// numberFunctions is numberLines without lines. Functions differ where the
// numbers of their texts do.
func (k *keyspace) numberFunctions(p *profile.Profile, kind keyKind) {
	first := make([]profile.FrameID, 1, cap(k.list)) // by number
	of := func(id profile.FrameID) profile.FrameRef { return kind.ref(p.FrameRef(id)) }
	slots := make([]uint32, 2<<bits.Len(uint(len(k.of))))
	mask, seed := uint64(len(slots)-1), maphash.MakeSeed()
	for id := range k.of {
		ref := p.FrameRef(profile.FrameID(id))
		k.inlined = k.inlined || ref.Inlined
		ref = kind.ref(ref)
		if !kind.dso && ref == (profile.FrameRef{}) {
			continue // number 0
		}
		i := maphash.Comparable(seed, ref) & mask
		for slots[i] != 0 && of(first[slots[i]]) != ref {
			i = (i + 1) & mask
		}
		if slots[i] == 0 {
			slots[i] = k.add(kind.key(p, ref))
			first = append(first, profile.FrameID(id))
		}
		k.of[id] = slots[i]
	}
}

// add appends f.
func (k *keyspace) add(f frameKey) uint32 {
	dso, ok := k.dsoOf[f.dso]
	if !ok {
		dso = uint32(len(k.dsos))
		k.dsoOf[f.dso] = dso
		k.dsos = append(k.dsos, f.dso)
	}
	k.list, k.dso = append(k.list, f), append(k.dso, dso)
	return uint32(len(k.list) - 1)
}
