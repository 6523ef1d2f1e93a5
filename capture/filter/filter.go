// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Filter is the filter of one recording. Its methods are called in one
// goroutine, SetView in any.
type Filter struct {
	plan *Plan
	fs   procfs.FS
	now  func() time.Time

	next atomic.Pointer[View] // what SetView brought
	view *View

	cache      *cache // nil: nothing is decided in the kernel
	tasks      *tasks
	cgroups    map[uint64]*cgroup
	identities map[kernel.Identity]*identity
	nsRules    []nsRules // by nsID
	pending    int       // how many cgroups and identities are not settled
	clocks     bool      // time namespaces count
	bootOffset uint64    // how much CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC

	// perfTree is the hierarchy of the cgroups of samples, nil if there is
	// none, tree its mount point; prefix is what is in front of the paths in
	// it.
	perfTree *procfs.CgroupTree
	tree     *sys.FD
	prefix   string
	missing  map[uint64]bool // not found there
	ids      map[string]uint64
	sweepAt  int
	// blind: sideband was lost, or does not tell of namespaces. Then what is
	// known of tasks may be wrong.
	blind bool
	stats Stats
}

// Stats is what the filter decided about samples that the kernel took.
type Stats struct {
	// Dropped are those of tasks that were not chosen.
	Dropped uint64 `json:"dropped"`
	// Unknown are those that were dropped because no record said where their
	// task was.
	Unknown uint64 `json:"unknown,omitempty"`
	// Undecided are those that were kept although it is not known whether
	// their task was chosen: no runtime named its container in time
	// called.
	Undecided uint64 `json:"undecided,omitempty"`
}

// cgroup is one cgroup of the machine.
type cgroup struct {
	state
	path string
	seen time.Time // zero: it was there before the recording
}

// identity is one identity under the mask with the index mask.
type identity struct {
	state
	key  kernel.Identity
	mask int
	// at is all namespaces with this identity.
	at   []nsID
	seen time.Time
	// empty: no task is left in it. died is when the last one left for the
	// last time, by CLOCK_BOOTTIME: the kernel gives the numbers of namespaces
	// that are gone to new ones, so that what is told of containers that
	// started before does not count any more.
	empty bool
	died  uint64
	// left: its namespaces are forgotten. fixed: the kernel has it from the
	// start, because it was chosen by its numbers.
	left, fixed bool
}

// waiting: it is not settled what the identity satisfies, and it matters.
func (i *identity) waiting() bool { return i.maybe != 0 && !i.empty }

// nsRules is what namespaces mean under the masks of the plan.
type nsRules struct {
	known bool // it has been worked out
	any   kernel.Rules
	// maybe are the rules that it may satisfy, as far as is known of it.
	maybe kernel.Rules
	ids   []*identity
}

// New is a filter in user space. view is what the names mean at the start. The
// caller closes it.
func New(p *Plan, view *View, fsys procfs.FS) (*Filter, error) {
	f := newFilter(p, view, fsys)
	if boot, err := sys.ClockBoottime.Now(); err == nil {
		if mono, err := sys.ClockMonotonic.Now(); err == nil {
			f.bootOffset = uint64(max(boot-mono, 0))
		}
	}
	trees, err := fsys.CgroupTrees()
	if err != nil {
		return nil, fmt.Errorf("find cgroups: %w", err)
	}
	t := trees.Perf()
	if t == nil {
		return f, nil
	}
	f.setTree(t)
	if f.tree, err = sys.Open(t.Point, os.O_RDONLY|sys.ODirectory); err != nil {
		return nil, fmt.Errorf("open cgroups: %w", err)
	}
	return f, nil
}

func newFilter(p *Plan, view *View, fsys procfs.FS) *Filter {
	return &Filter{
		plan: p, view: view, fs: fsys, now: time.Now, tasks: newTasks(p.host), missing: make(map[uint64]bool),
		ids:     make(map[string]uint64),
		cgroups: make(map[uint64]*cgroup), identities: make(map[kernel.Identity]*identity), clocks: p.needsTime(),
		sweepAt: manyCgroups,
	}
}

// Close releases the filter. Closing twice does nothing.
func (f *Filter) Close() error {
	errs := []error{f.tree.Close()}
	if f.cache != nil {
		errs = append(errs, f.cache.programs.Close())
	}
	return errors.Join(errs...)
}

// SetView brings in what the names mean by now. It counts from the next call of
// Refresh on.
func (f *Filter) SetView(v *View) { f.next.Store(v) }

// Refresh applies the latest view. It reports whether something was settled.
func (f *Filter) Refresh() bool {
	v := f.next.Swap(nil)
	if v == nil {
		return false
	}
	f.view = v
	before := f.pending
	for id, c := range f.cgroups {
		f.setCgroup(id, c, v.cgroup(c.path, c.seen))
	}
	for _, i := range f.identities {
		f.settleIdentity(i)
	}
	settled := f.pending < before
	for _, i := range f.identities {
		f.dropIdentity(i)
	}
	return settled
}

// Waiting reports whether asking the runtimes again, if they were not asked
// since, may settle something.
func (f *Filter) Waiting() bool { return f.pending > 0 }

// Stats is what was decided so far.
func (f *Filter) Stats() Stats { return f.stats }

// Blind marks the sideband as incomplete from now on: records of tasks were lost.
func (f *Filter) Blind() { f.blind = true }

func (f *Filter) setCgroup(id uint64, c *cgroup, s state) {
	f.pending += toInt(s.maybe != 0) - toInt(c.maybe != 0)
	changed := c.state != s
	c.state = s
	if changed && f.cache != nil {
		f.cache.cgroup(id, s)
	}
}

// settleIdentity works out what an identity satisfies by now. One that is empty
// stays open: who comes next may be another container.
func (f *Filter) settleIdentity(i *identity) {
	s := f.view.identity(i.mask, &i.key, i.seen, i.died)
	if i.empty {
		s.maybe = f.plan.lateUnder(i.mask) &^ s.rules
	}
	was := i.waiting()
	changed := i.state != s
	i.state = s
	f.pending += toInt(i.waiting()) - toInt(was)
	if changed && f.cache != nil {
		f.cache.identity(&i.key, i.mask, s)
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Cgroup adds a cgroup. status: it was found when the recording began.
func (f *Filter) Cgroup(id uint64, path string, status bool) {
	if f.cgroups[id] != nil {
		return
	}
	c := &cgroup{path: path}
	if !status || !f.view.cgroups[container.CgroupID(id)] {
		c.seen = f.now()
	}
	if len(f.cgroups) >= f.sweepAt {
		f.sweep()
	}
	f.cgroups[id] = c
	f.ids[path] = id
	c.state.maybe = ^kernel.Rules(0) // so that setCgroup sees a change
	f.pending++
	f.setCgroup(id, c, f.view.cgroup(path, c.seen))
}

// manyCgroups is how many cgroups are remembered at least.
const manyCgroups = 1 << 16

// sweep forgets the cgroups that are gone and were not chosen: of a machine
// that starts jobs for weeks there are ever more.
func (f *Filter) sweep() {
	for id, c := range f.cgroups {
		if c.rules&kernel.ByCgroup == 0 && !exists(f.tree, id) {
			f.pending -= toInt(c.maybe != 0)
			delete(f.cgroups, id)
			if f.ids[c.path] == id { // and not that of a new one
				delete(f.ids, c.path)
			}
		}
	}
	f.sweepAt = max(manyCgroups, 2*len(f.cgroups))
}

// exists reports whether there still is a cgroup.
func exists(tree *sys.FD, id uint64) bool {
	dir, err := sys.OpenCgroup(tree, id)
	dir.Close()
	return !errors.Is(err, syscall.ESTALE)
}

var _ proctable.Observer = (*Filter)(nil)

// Observe implements proctable.Observer.
func (f *Filter) Observe(ev *proctable.Event) {
	switch ev.Kind {
	case proctable.Cgroup:
		f.Cgroup(ev.CgroupID, ev.CgroupPath, ev.Status)
		return
	case proctable.Namespaces:
		f.namespaces(ev)
	case proctable.Exec:
		f.tasks.execute(ev.TID, ev.Time)
	case proctable.Fork:
		f.tasks.fork(ev)
	case proctable.Exit:
		f.tasks.exit(ev.TID, ev.Time)
	case proctable.ThreadForgot:
		f.tasks.forgetThread(ev.TID)
		return
	default:
		return
	}
	f.updateEmpty()
	if ev.Kind == proctable.Exec && f.clocks { // execve may bring it into another one
		f.tasks.enterClock(ev.TID, ev.Time, f.timeNS(ev.TID))
	}
}

// namespaces takes the namespaces of a task. The time namespace is not in the
// kernel's records: it is read from the task, if that lives long enough, and else
// taken to be the one that it had.
func (f *Filter) namespaces(ev *proctable.Event) {
	var ns container.Namespaces
	for i, ino := range ev.NS {
		if i < int(container.TimeNS) {
			ns[i] = ino
		}
	}
	f.tasks.enter(ev.TID, ev.Time, f.tasks.id(ns))
	if f.clocks {
		f.tasks.enterClock(ev.TID, ev.Time, f.timeNS(ev.TID))
	}
	f.rulesOf(f.at(ev.TID, ev.Time), ev.Status)
}

// updateEmpty updates the identities whose last task left, or that have tasks again.
func (f *Filter) updateEmpty() {
	for _, t := range f.tasks.changes {
		if f.clocks || int(t.ns) >= len(f.nsRules) {
			continue // which identity it is depends on more
		}
		for _, i := range f.nsRules[t.ns].ids {
			if f.plan.lateUnder(i.mask) == 0 {
				continue
			}
			if empty := !f.inhabited(i); empty != i.empty {
				f.setEmpty(i, empty, t.time)
			}
		}
	}
	f.tasks.changes = f.tasks.changes[:0]
}

// inhabited reports whether a task is in an identity.
func (f *Filter) inhabited(i *identity) bool {
	return slices.ContainsFunc(i.at, func(ns nsID) bool { return f.tasks.live[ns] > 0 })
}

func (f *Filter) setEmpty(i *identity, empty bool, time uint64) {
	was := i.waiting()
	i.empty = empty
	f.pending += toInt(i.waiting()) - toInt(was)
	if empty {
		i.died = time + f.bootOffset
	} else {
		i.seen = f.now()
	}
	f.settleIdentity(i)
}

// at is the namespaces of a task at a time.
func (f *Filter) at(tid int32, time uint64) nsID {
	id := f.tasks.at(tid, time)
	if !f.clocks || id == 0 {
		return id
	}
	ns := f.tasks.known[id]
	ns[container.TimeNS] = f.tasks.clockAt(tid, time)
	return f.tasks.id(ns)
}

func (f *Filter) timeNS(tid int32) uint64 {
	ino, err := f.fs.Proc(int(tid)).Namespace(container.TimeNS.String())
	if err != nil {
		return 0
	}
	return ino
}

// rulesOf works out what namespaces mean, once. The kernel learns of an identity
// as soon as a task is in it.
func (f *Filter) rulesOf(id nsID, status bool) *nsRules {
	for int(id) >= len(f.nsRules) {
		f.nsRules = append(f.nsRules, nsRules{})
	}
	p := &f.nsRules[id]
	if p.known {
		return p
	}
	p.known = true
	ns := &f.tasks.known[id]
	for i := range f.plan.masks {
		m := &f.plan.masks[i]
		switch key, ok := m.identity(ns, &f.plan.host); {
		case ok:
			p.any |= m.Any
			if m.ByIdentity || m.Open != 0 {
				in := f.identity(i, &key, status)
				in.at, in.left = append(in.at, id), false
				p.ids = append(p.ids, in)
			}
		case m.unknown(ns, &f.plan.host):
			p.maybe |= m.all()
		}
	}
	return p
}

func (f *Filter) identity(m int, id *kernel.Identity, status bool) *identity {
	i := f.identities[*id]
	if i != nil {
		return i
	}
	i = &identity{key: *id, mask: m}
	if _, known := f.view.known[*id]; !status || !known {
		i.seen = f.now()
	}
	f.identities[*id] = i
	i.state.maybe = ^kernel.Rules(0) // so that a change is seen
	f.pending++
	f.settleIdentity(i)
	return i
}

// unknown: a namespace of the mask is not known, and none is the host's.
func (m *mask) unknown(ns, host *container.Namespaces) bool {
	unknown := false
	for n := range container.NumNS {
		if m.set.Has(n) {
			if ns[n] == host[n] && ns[n] != 0 {
				return false
			}
			unknown = unknown || ns[n] == 0
		}
	}
	return unknown
}

// all is the rules that some identity of the mask may satisfy.
func (m *mask) all() kernel.Rules {
	rules := m.Any | m.Open
	for _, l := range m.listed {
		rules |= l.rules
	}
	return rules
}

// Round says that the samples of a round have been decided about. now is the
// time of the recording's clock.
func (f *Filter) Round(now uint64) {
	f.tasks.round(now)
	for _, ns := range f.tasks.over() {
		f.forget(ns)
	}
}
