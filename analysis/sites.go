// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/analysis/timeline"
	"github.com/gantry-tools/gantry/perf"
)

// A site is an address that samples of one label set fell on. Reports without
// stacks count sites while they read, and look up what they were at the end:
// once for each, and with the symbols of only these addresses. What depends on
// the moment is put into addr and context when the sample is read.
type site struct {
	// addr is the offset in a file, an address of the kernel, the index of a
	// symbol that the kernel added, or an address where nothing is mapped, as
	// context says.
	addr         uint64
	count, value uint64
	context      uint32
	labels       profile.LabelsID
}

// Contexts of sites: noContext, kernelContext plus an index into kernelMaps,
// ksymContext, or the index of the user space file, plus one.
const ksymContext = kernelContext - 2

// sites counts samples by site.
type sites struct {
	events  []*siteTable // by the profile's number of the event
	pending []pendingSite
	a, b    uint64 // secret of the hashes: addresses come from containers
	touch   uint64 // keeps the loads that only warm the caches

	kernelMaps numbered[timeline.Mapping] // what kernel addresses lay in; 0 is none
	ksyms      numbered[symbol.Ksym]
}

// numbered numbers values from 0.
type numbered[T comparable] struct {
	list []T
	of   map[T]uint32
	last uint32 // asked for last, likely to be asked for again
}

func (n *numbered[T]) number(v T) uint32 {
	if int(n.last) < len(n.list) && n.list[n.last] == v {
		return n.last
	}
	i, ok := n.of[v]
	if !ok {
		if n.of == nil {
			n.of = make(map[T]uint32)
		}
		i = uint32(len(n.list))
		n.list = append(n.list, v)
		n.of[v] = i
	}
	n.last = i
	return i
}

// pendingSite is a sample that waits to be counted. They are counted many at
// a time, since each misses the processor's caches: in short loops of nothing
// else the misses overlap.
type pendingSite struct {
	site
	hash  uint64
	table *siteTable
	known uint64 // what the table's slot holds
}

func newSites() *sites {
	seed := maphash.MakeSeed()
	x := &sites{
		pending: make([]pendingSite, 0, batchSize),
		a:       maphash.String(seed, "a"), b: maphash.String(seed, "b") | 1,
	}
	x.kernelMaps.number(timeline.Mapping{})
	return x
}

// push counts a sample by its own address.
func (x *sites) push(t *timeline.Timeline, th *timeline.Thread, sm *perf.Sample, labels profile.LabelsID, event int) {
	for event >= len(x.events) {
		x.events = append(x.events, newSiteTable())
	}
	x.pending = x.pending[:len(x.pending)+1]
	p := &x.pending[len(x.pending)-1]
	*p = pendingSite{site: site{addr: sm.IP, count: 1, value: sm.Period, labels: labels, context: noContext},
		table: x.events[event]}
	switch {
	case sm.Misc.CPUMode() == perf.MiscKernel:
		x.kernel(t, p)
	case th != nil:
		if m := th.Process.Maps().Find(sm.IP); m != nil {
			p.addr, p.context = sm.IP-m.Start+m.PgOff, uint32(m.File.Index+1)
		}
	}
	p.hash = x.hash(&p.site)
	if len(x.pending) == batchSize {
		x.flush()
	}
}

// kernel fills in the context of a kernel address.
func (x *sites) kernel(t *timeline.Timeline, p *pendingSite) {
	if sym, ok := t.Ksyms.Lookup(p.addr); ok {
		p.addr, p.context = uint64(x.ksyms.number(sym)), ksymContext
		return
	}
	p.context = kernelContext
	if m := t.Kernel.Find(p.addr); m != nil {
		p.context |= x.kernelMaps.number(*m)
	}
}

// flush counts what is pending. It is called before the timeline changes.
func (x *sites) flush() {
	for i := range x.pending {
		p := &x.pending[i]
		p.known = p.table.slots[p.table.slot(p.hash)]
	}
	for i := range x.pending {
		if p := &x.pending[i]; p.known>>32 == p.hash>>32 && p.known > 0 {
			x.touch += p.table.at(uint32(p.known) - 1).addr
		}
	}
	for i := range x.pending {
		p := &x.pending[i]
		p.table.add(p)
	}
	x.pending = x.pending[:0]
}

// siteTable is a hash table of sites, which are kept in the order in which
// they came.
type siteTable struct {
	chunks [][]site
	n      uint32
	// slots have the upper half of a site's hash, which also says where the
	// slot is, and its number, plus one: so the table grows without a look at
	// the sites. At most three of four are in use: the fewer there are, the
	// more of them are in the processor's caches.
	slots []uint64
}

const (
	siteBits = 12 // of the sites in a chunk
	minSlots = 1 << 12
)

func newSiteTable() *siteTable { return &siteTable{slots: make([]uint64, minSlots)} }

// slot is where the search for a hash begins.
func (t *siteTable) slot(hash uint64) uint64 { return hash >> 32 & uint64(len(t.slots)-1) }

func (t *siteTable) at(i uint32) *site { return &t.chunks[i>>siteBits][i&(1<<siteBits-1)] }

// add counts p.
func (t *siteTable) add(p *pendingSite) {
	mask := uint64(len(t.slots) - 1)
	i := t.slot(p.hash)
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		slot := t.slots[i]
		if slot>>32 != p.hash>>32 {
			continue
		}
		if s := t.at(uint32(slot) - 1); s.addr == p.addr && s.context == p.context && s.labels == p.labels {
			s.count += p.count
			s.value += min(p.value, math.MaxUint64-s.value)
			return
		}
	}
	if t.n&(1<<siteBits-1) == 0 {
		t.chunks = append(t.chunks, make([]site, 1<<siteBits))
	}
	*t.at(t.n) = p.site
	t.n++
	t.slots[i] = p.hash>>32<<32 | uint64(t.n)
	if 4*int(t.n) > 3*len(t.slots) {
		t.grow()
	}
}

func (t *siteTable) grow() {
	old := t.slots
	t.slots = make([]uint64, 2*len(old))
	const page = 4096 / 8
	for i := 0; i < len(t.slots); i += page {
		t.slots[i] = 0 // a page that is read first takes two faults to come to memory
	}
	mask := uint64(len(t.slots) - 1)
	for _, slot := range old {
		if slot == 0 {
			continue
		}
		i := t.slot(slot)
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = slot
	}
}

func (x *sites) hash(s *site) uint64 {
	hi, lo := bits.Mul64(s.addr^x.a, (uint64(s.context)<<32|uint64(s.labels))^x.b)
	return hi ^ lo
}
