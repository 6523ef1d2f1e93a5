// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"strings"
	"time"

	"github.com/gantry-tools/gantry/container"
	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
)

// View is a plan with its names resolved, by the containers that are known at one time.
// It is immutable.
type View struct {
	plan *Plan
	// asked is when the query of the runtimes began.
	asked time.Time
	// final: the runtimes are not queried again.
	final bool
	own   map[string]ownCgroup
	// identities are those of the chosen containers, known those of all.
	identities map[kernel.Identity]identityInfo
	known      map[kernel.Identity]identityInfo
	cgroups    map[container.CgroupID]bool // known cgroups
}

// identityInfo sums up the containers of one identity.
type identityInfo struct {
	rules kernel.Rules
	named bool
	start uint64 // of the one that started last, by CLOCK_BOOTTIME
}

// startSlack is how exact the start of a container is, in nanoseconds.
const startSlack = 20e6

// counts reports whether one of the containers started after the identity was
// empty.
func (t *identityInfo) counts(died uint64) bool { return died == 0 || t.start+startSlack >= died }

// ownCgroup is the cgroup of a container or a unit.
type ownCgroup struct {
	container bool // and not a unit of the host
	named     bool // by a runtime
	chosen    bool
}

// View looks the names up in a table of which the runtimes were asked, as of
// that time. final says that they will not be asked again.
func (p *Plan) View(t *container.Table, asked time.Time, final bool) *View {
	v := &View{
		plan: p, asked: asked, final: final, own: make(map[string]ownCgroup),
		identities: make(map[kernel.Identity]identityInfo), known: make(map[kernel.Identity]identityInfo),
		cgroups: make(map[container.CgroupID]bool),
	}
	if !p.late() {
		return v
	}
	for _, c := range t.Containers() {
		if c.CgroupPath != "" && c.CgroupPath != "/" {
			o := v.own[c.CgroupPath]
			o.container = o.container || c.Kind == container.KindContainer
			o.named = o.named || c.Name != ""
			v.own[c.CgroupPath] = o
		}
		for i := range p.masks {
			if id, ok := p.masks[i].identity(&c.Namespaces, &p.host); ok {
				k := v.known[id]
				k.named, k.start = k.named || c.Name != "", max(k.start, c.StartTime)
				v.known[id] = k
			}
		}
	}
	for _, cg := range t.Cgroups() {
		v.cgroups[cg.ID] = true
	}
	for i := range p.byName {
		found, err := t.Select(p.byName[i].match)
		if err != nil {
			continue // none, or an ambiguous prefix of an id: none yet
		}
		for _, c := range found {
			v.choose(&p.byName[i], c)
		}
	}
	return v
}

// choose notes one container that a name means.
func (v *View) choose(n *named, c *container.Container) {
	path := c.CgroupPath
	if n.glob != nil {
		path, _ = n.glob.CgroupOf(path)
	}
	if n.own && path != "" && path != "/" {
		o := v.own[path]
		o.chosen = true
		v.own[path] = o
	}
	if n.mask < 0 {
		return
	}
	if id, ok := v.plan.masks[n.mask].identity(&c.Namespaces, &v.plan.host); ok {
		k := v.identities[id]
		k.rules, k.start = k.rules|n.rules, max(k.start, c.StartTime)
		v.identities[id] = k
	}
}

// identity is what a task with these namespaces is under the mask. It is not ok
// if one of them is the host's or not known.
func (m *mask) identity(ns, host *container.Namespaces) (kernel.Identity, bool) {
	id := kernel.Identity{Mask: m.Set}
	for n := range container.NumNS {
		if !m.set.Has(n) {
			continue
		}
		if ns[n] == 0 || ns[n] == host[n] {
			return id, false
		}
		id.NS[n] = uint32(ns[n])
	}
	return id, true
}

// state is what is known of a cgroup or an identity: the rules that it satisfies
// and those that it may turn out to satisfy.
type state struct {
	rules, maybe kernel.Rules
}

const (
	// settleTime is how long after the first sight of a cgroup what the
	// runtimes say about it counts: before, they may not know it yet.
	settleTime = time.Second
	// nameTime is how long a container without a name may yet get one.
	nameTime = 10 * time.Second
)

// cgroup is what a cgroup satisfies. seen is when it was first seen, zero if it
// was there before the runtimes were first asked.
func (v *View) cgroup(path string, seen time.Time) state {
	p := v.plan
	var s state
	in, named, chosen := v.around(path)
	if chosen || p.always(path) || p.anyRuntime && in {
		s.rules |= kernel.ByCgroup
	}
	for i, c := range p.conds {
		if c.holds(path, in) {
			s.rules |= kernel.FirstRule << i
		}
	}
	if !p.late() || s.rules&kernel.ByCgroup != 0 || v.settled(seen, in && !named) {
		return s
	}
	if len(p.byName) > 0 || !in {
		s.maybe |= kernel.ByCgroup
	}
	if s.rules&p.free != 0 {
		s.rules, s.maybe = s.rules&^p.free, s.maybe|p.free
	}
	return s
}

// settled reports whether what is known by now of something that was seen first
// at that time is all that counts.
func (v *View) settled(seen time.Time, nameless bool) bool {
	switch {
	case seen.IsZero():
		return true
	case nameless:
		return v.asked.After(seen.Add(nameTime))
	}
	return v.final || v.asked.After(seen.Add(settleTime))
}

// around looks at a cgroup and those above it: whether it is in a container of a
// runtime, whether that one has a name, whether one is chosen.
func (v *View) around(path string) (in, named, chosen bool) {
	for at := path; at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
		o, ok := v.own[at]
		if !ok {
			continue
		}
		if o.container && !in {
			in, named = true, o.named
		}
		chosen = chosen || o.chosen
	}
	if in || !v.plan.late() {
		return in, named, chosen
	}
	// A new one: the text of the path may tell already.
	if ref, ok := container.FromCgroupPath(path); !ok || ref.Kind != container.KindContainer {
		return in, named, chosen
	}
	var t container.Table
	t.AddCgroup(1, path)
	for i := range v.plan.byName {
		if n := &v.plan.byName[i]; n.own && n.glob == nil {
			_, err := t.Select(n.match)
			chosen = chosen || err == nil
		}
	}
	return true, false, chosen
}

// always: the path itself chooses the cgroup.
func (p *Plan) always(path string) bool {
	for _, c := range p.cgroups {
		if below(path, c) {
			return true
		}
	}
	for _, d := range p.anyGlob {
		if _, ok := d.CgroupOf(path); ok {
			return true
		}
	}
	return false
}

// holds reports whether a cgroup meets a condition; in says that it is in a
// container of a runtime.
func (c *cond) holds(path string, in bool) bool {
	switch {
	case c.free:
		return !in
	case c.glob != nil:
		own, ok := c.glob.CgroupOf(path)
		return ok && (c.path == "" || c.path == own)
	}
	return below(path, c.path)
}

// identity returns the rules that an identity satisfies under mask m, beyond those that
// all identities of the mask satisfy. seen is as for cgroup; died is when it was empty last, 0 for never.
func (v *View) identity(m int, id *kernel.Identity, seen time.Time, died uint64) (s state) {
	if t := v.identities[*id]; t.counts(died) {
		s.rules = t.rules
	}
	for _, l := range v.plan.masks[m].listed {
		if l.means(id) {
			s.rules |= l.rules
		}
	}
	if t := v.known[*id]; !(t.named && t.counts(died)) && !v.settled(seen, false) {
		s.maybe = v.plan.lateUnder(m) &^ s.rules
	}
	return s
}

// means: the identity has all that is listed.
func (l *identityEntry) means(id *kernel.Identity) bool {
	for n, ino := range l.ns {
		if ino != 0 && uint32(ino) != id.NS[n] {
			return false
		}
	}
	return true
}

// lateUnder is the rules that names make identities of mask m satisfy.
func (p *Plan) lateUnder(m int) (rules kernel.Rules) {
	for i := range p.byName {
		if p.byName[i].mask == m {
			rules |= p.byName[i].rules
		}
	}
	return rules
}
