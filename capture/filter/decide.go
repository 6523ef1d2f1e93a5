// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"os"

	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Verdict is what becomes of a sample.
type Verdict uint8

// The verdicts.
const (
	Drop Verdict = iota
	Keep
	// Hold: it is not settled yet what the sample's container is called.
	Hold
	unknown // nothing tells where the task was
)

// Sample is what decides about a sample.
type Sample struct {
	TID    int32 // -1: the task has been reaped
	Time   uint64
	Cgroup uint64 // 0 is not known
	// Passed: the filter in the kernel has let it pass.
	Passed bool
}

// Origin is where the task of a sample was. It can be decided about again later.
type Origin struct {
	cgroup uint64
	ns     nsID
	passed bool
	dead   bool // the task has been reaped
}

// Decide decides about a sample. One to be held is decided about by Settle when
// Refresh has settled something.
func (f *Filter) Decide(s *Sample) (Verdict, Origin) {
	p := Origin{cgroup: s.Cgroup, passed: s.Passed, dead: s.TID < 0}
	if len(f.plan.masks) > 0 {
		p.ns = f.at(s.TID, s.Time)
	}
	return f.Settle(p, false), p
}

// Settle decides about a sample that was held. last: it is not held any longer.
func (f *Filter) Settle(p Origin, last bool) Verdict {
	v := f.judge(p)
	switch {
	case v == Hold && last:
		f.stats.Undecided++
		v = Keep
	case v == unknown && p.passed && !p.dead:
		// The kernel knew where the task was: only of a task that has given
		// up its namespaces it takes what it does not know.
		v = Keep
	case v == Drop && p.passed && f.blind:
		f.stats.Undecided++
		v = Keep
	case v == unknown:
		f.stats.Unknown++
		v = Drop
	case v == Drop:
		f.stats.Dropped++
	}
	return v
}

// judge is verdict of filter.bpf.c, by what user space knows.
func (f *Filter) judge(at Origin) Verdict {
	said, known := f.lookUp(at.cgroup)
	return f.weigh(said, known, at.ns)
}

// weigh decides by what is known of a cgroup, if it is known, and by namespaces.
func (f *Filter) weigh(said state, known bool, ns nsID) Verdict {
	if said.rules&kernel.ByCgroup != 0 {
		return Keep
	}
	rules, maybe, dark := f.byNamespaces(ns)
	if rules&(said.rules|kernel.ByNamespaces) != 0 {
		return Keep
	}
	// What may yet hold needs both conditions to hold, perhaps.
	if said.maybe&(rules|kernel.ByCgroup) != 0 || maybe&(said.rules|said.maybe|kernel.ByNamespaces) != 0 {
		if known {
			return Hold
		}
		return unknown
	}
	if dark&(said.rules|said.maybe|kernel.ByNamespaces) != 0 {
		return unknown
	}
	return Drop
}

// lookUp is what is known of a cgroup. One of which no record told, for it was
// lost, is looked for.
func (f *Filter) lookUp(id uint64) (s state, known bool) {
	c := f.cgroups[id]
	if c == nil {
		if path := f.find(id); path != "" {
			f.Cgroup(id, path, false)
			c = f.cgroups[id]
		}
	}
	if c == nil {
		return state{maybe: f.plan.cgroupRules()}, false
	}
	return c.state, true
}

// find is the path of a cgroup that exists now, "" if there is none.
func (f *Filter) find(id uint64) string {
	if f.tree == nil || id == 0 || f.missing[id] {
		return ""
	}
	dir, err := sys.OpenCgroup(f.tree, id)
	if err != nil {
		if len(f.missing) >= maxMissing {
			clear(f.missing)
		}
		f.missing[id] = true
		return ""
	}
	defer dir.Close()
	path, err := os.Readlink(dir.Path())
	if err != nil {
		return ""
	}
	return f.full(path)
}

// maxMissing bounds the cgroups that are remembered to be gone.
const maxMissing = 1 << 12

// byNamespaces is the rules whose condition on namespaces holds, those of which
// that is not settled, and those of which nothing tells.
func (f *Filter) byNamespaces(ns nsID) (rules, maybe, dark kernel.Rules) {
	if len(f.plan.masks) == 0 {
		return 0, 0, 0
	}
	p := f.rulesOf(ns, false)
	rules = p.any
	for _, i := range p.ids {
		rules |= i.rules
		maybe |= i.maybe
	}
	return rules, maybe, p.maybe
}
