// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// frameKey is what makes two frames the same function to a reader.
type frameKey struct {
	name, dso string
	addr      uint64 // of a frame without a name
	kernel    bool
	inlined   bool
	line, src string // the source line and the source file, if they are asked for
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
		cmp.Compare(k.addr, o.addr), kernel, strings.Compare(k.line, o.line), strings.Compare(k.src, o.src), k.compareInlined(o))
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
		return fmt.Sprintf("0x%016x", k.addr)
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

func dsoText(f *profile.Frame) string {
	if f.DSO == "" {
		return unknown
	}
	return f.DSO
}

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
	seen map[frameKey]uint32
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
	if n == 0 || k.list[key].line == "" && k.list[key].src == "" {
		return key
	}
	pair := [2]profile.FrameID{st[0], st[n]}
	if known, ok := k.leaves[pair]; ok {
		return known
	}
	f, inner := k.list[key], &k.list[k.of[st[0]]]
	f.line, f.src = inner.line, inner.src
	if k.leaves == nil {
		k.leaves = make(map[[2]profile.FrameID]uint32)
	}
	k.leaves[pair] = k.number(f)
	return k.leaves[pair]
}

// number is the number of a key, which is given now if it is new.
func (k *keyspace) number(key frameKey) uint32 {
	n, ok := k.seen[key]
	if !ok {
		n = uint32(len(k.list))
		k.seen[key] = n
		k.list = append(k.list, key)
	}
	return n
}

func newKeyspace(p *profile.Profile, keyOf func(*profile.Frame) frameKey) *keyspace {
	k := &keyspace{of: make([]uint32, p.NumFrames()), list: []frameKey{{}}, seen: map[frameKey]uint32{{}: 0}}
	for id := range k.of {
		f := p.Frame(profile.FrameID(id))
		k.of[id] = k.number(keyOf(&f))
		k.inlined = k.inlined || f.Inlined
	}
	return k
}

// rowKey tells rows apart: by nothing but what the sort keys ask for.
func rowKey(o *Options) func(*profile.Frame) frameKey {
	sym, dso, line, file := o.has(KeySym), o.has(KeyDSO), o.has(KeySrcline), o.has(KeySrcfile)
	return func(f *profile.Frame) frameKey {
		var k frameKey
		if sym {
			k.name, k.kernel, k.inlined = f.Name, f.Kernel, f.Inlined
			if f.Name == "" {
				k.addr = f.Addr
			}
		}
		if dso {
			k.dso = dsoText(f)
		}
		if line {
			k.line = sourceLine(f)
		}
		if file {
			k.src = sourceFile(f)
		}
		return k
	}
}

// callKey tells the nodes of a call graph apart.
func callKey(f *profile.Frame) frameKey {
	k := frameKey{name: f.Name, dso: dsoText(f), kernel: f.Kernel, inlined: f.Inlined}
	if f.Name == "" {
		k.addr = f.Addr
	}
	return k
}

// flameKey is callKey with all unknown functions of an object in one: in a
// flame graph, single addresses would be dust.
func flameKey(f *profile.Frame) frameKey {
	return frameKey{name: profile.FoldedName(f), dso: dsoText(f), kernel: f.Kernel}
}
