// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// frameKey is what makes two frames the same function to a reader.
type frameKey struct {
	name, dso string
	addr      uint64 // of a frame without a name
	kernel    bool
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
		cmp.Compare(k.addr, o.addr), kernel)
}

// symbol is the function's name, with perf's way to show that there is none.
func (k frameKey) symbol() string {
	switch {
	case k.name != "":
		return k.name
	case k.addr != 0:
		return fmt.Sprintf("0x%016x", k.addr)
	}
	return unknown
}

const unknown = "[unknown]"

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

// keyspace numbers the functions of a profile. Number 0 is no function: the
// empty stack.
type keyspace struct {
	of   []uint32 // by FrameID
	list []frameKey
}

func newKeyspace(p *profile.Profile, keyOf func(*profile.Frame) frameKey) *keyspace {
	k := &keyspace{of: make([]uint32, p.NumFrames()), list: []frameKey{{}}}
	seen := map[frameKey]uint32{{}: 0}
	for id := range k.of {
		f := p.Frame(profile.FrameID(id))
		key := keyOf(&f)
		n, ok := seen[key]
		if !ok {
			n = uint32(len(k.list))
			seen[key] = n
			k.list = append(k.list, key)
		}
		k.of[id] = n
	}
	return k
}

// rowKey tells rows apart: by nothing but what the sort keys ask for.
func rowKey(o *Options) func(*profile.Frame) frameKey {
	sym, dso := o.has(KeySym), o.has(KeyDSO)
	return func(f *profile.Frame) frameKey {
		var k frameKey
		if sym {
			k.name, k.kernel = f.Name, f.Kernel
			if f.Name == "" {
				k.addr = f.Addr
			}
		}
		if dso {
			k.dso = dsoText(f)
		}
		return k
	}
}

// callKey tells the nodes of a call graph apart.
func callKey(f *profile.Frame) frameKey {
	k := frameKey{name: f.Name, dso: dsoText(f), kernel: f.Kernel}
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
