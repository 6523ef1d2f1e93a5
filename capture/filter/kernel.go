// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// cache mirrors the maps in the kernel, which hold the cgroups and identities that are
// decided. Samples of all others are undecided there, and left to user space.
type cache struct {
	programs *kernel.Programs
	masks    []mask
	tree     *sys.FD
	cgroups  fifo[uint64]
	ids      fifo[kernel.Identity]
	err      error // the first that was not expected
}

// fifo holds the keys of a map in the order of insertion.
type fifo[K comparable] struct {
	in    map[K]bool
	order []K
}

const (
	// mapSlack is how many cgroups and identities the maps of the kernel take
	// beside those that there are: more than appear in hours.
	mapSlack = 1 << 14
	// maxAlive is how many cgroups that exist are passed over when one that
	// does not is looked for to make room.
	maxAlive = 64
)

// LoadKernel loads the filter into the kernel. It is slow; Attach sets it on
// events. cgroups is how many there are, about. The errors are those of
// bpf.Load: without it everything is decided in user space.
func (f *Filter) LoadKernel(cgroups int) error {
	c := &kernel.Config{ByCgroup: f.plan.byCgroup(), Identities: mapSlack, Cgroups: mapSlack + 2*cgroups}
	for n, ino := range f.plan.host {
		c.Host[n] = uint32(ino)
	}
	for i := range f.plan.masks {
		m := f.plan.masks[i].Mask
		m.ByIdentity = m.ByIdentity || m.Open != 0
		m.All = f.plan.masks[i].all()
		c.Masks = append(c.Masks, m)
		c.Identities += len(f.plan.masks[i].listed)
	}
	p, err := kernel.Load(c)
	if err != nil {
		return err
	}
	f.cache = &cache{programs: p, masks: f.plan.masks, tree: f.tree}
	for i := range f.plan.masks {
		m := &f.plan.masks[i]
		for _, l := range m.listed {
			if id, ok := m.identity(&l.ns, &f.plan.host); ok {
				f.identity(i, &id, true).fixed = true
			}
		}
	}
	if err := f.cache.err; err != nil {
		f.cache = nil
		return errors.Join(err, p.Close())
	}
	return nil
}

// InKernel reports whether the filter is loaded into the kernel.
func (f *Filter) InKernel() bool { return f.cache != nil }

// Attach sets the filter of the kernel on an event, before it is enabled. Never
// call it for a tracepoint. probe: the event is one of the uprobe or kprobe
// device.
func (f *Filter) Attach(event *sys.FD, probe bool) error {
	return f.cache.programs.Attach(event, probe)
}

// Err is the first error of the maps of the kernel, nil if there was none. With
// it the filter goes on: what is missing there is decided in user space.
func (f *Filter) Err() error {
	if f.cache == nil {
		return nil
	}
	return f.cache.err
}

// Counts is what the kernel decided, on some CPUs together.
type Counts struct {
	Kept, Undecided, Dropped uint64
}

// KernelCounts adds up what the kernel decided on the CPUs. each is on how many
// of them each probe is open: it counts every hit so often.
func (f *Filter) KernelCounts(cpus []int, each int) (Counts, error) {
	var sum Counts
	samples, probes, err := f.cache.programs.Counts()
	if err != nil {
		return sum, err
	}
	add := func(list []kernel.Counts, times uint64) {
		for _, cpu := range cpus {
			if cpu < len(list) {
				sum.Kept += list[cpu].Kept / times
				sum.Undecided += list[cpu].Undecided / times
				sum.Dropped += list[cpu].Dropped / times
			}
		}
	}
	add(samples, 1)
	add(probes, uint64(max(each, 1)))
	return sum, nil
}

// cgroup puts the rules that a cgroup satisfies into the kernel's map, or removes them
// if they are undecided again.
func (c *cache) cgroup(id uint64, s state) {
	if s.maybe != 0 {
		if c.cgroups.remove(id) {
			c.note(c.programs.ForgetCgroup(id))
		}
		return
	}
	err := c.programs.SetCgroup(id, s.rules)
	if errors.Is(err, syscall.E2BIG) {
		c.note(c.programs.ForgetCgroup(c.cgroups.oldest(func(id uint64) bool { return exists(c.tree, id) })))
		err = c.programs.SetCgroup(id, s.rules)
	}
	c.cgroups.add(id)
	c.note(err)
}

// identity is the same for an identity. What is not in the map satisfies
// nothing under a mask that is not open, and need not be there.
func (c *cache) identity(id *kernel.Identity, mask int, s state) {
	if s.maybe != 0 {
		if c.ids.remove(*id) {
			c.note(c.programs.ForgetIdentity(id))
		}
		return
	}
	if c.masks[mask].Open == 0 && s.rules == 0 {
		return
	}
	err := c.programs.SetIdentity(id, s.rules)
	if errors.Is(err, syscall.E2BIG) {
		old := c.ids.oldest(func(kernel.Identity) bool { return false })
		c.note(c.programs.ForgetIdentity(&old))
		err = c.programs.SetIdentity(id, s.rules)
	}
	c.ids.add(*id)
	c.note(err)
}

// forget takes out an identity that no task has any more.
func (c *cache) forget(id *kernel.Identity) {
	if c.ids.remove(*id) {
		c.note(c.programs.ForgetIdentity(id))
	}
}

func (c *cache) note(err error) {
	if c.err == nil && err != nil {
		c.err = fmt.Errorf("filter in the kernel: %w", err)
	}
}

func (q *fifo[K]) add(k K) {
	if q.in == nil {
		q.in = make(map[K]bool)
	}
	if q.in[k] {
		return
	}
	if len(q.order) > 2*len(q.in)+64 { // most have been removed since
		q.tidy()
	}
	q.in[k] = true
	q.order = append(q.order, k)
}

// tidy forgets the places of keys that were removed. One that came again has
// its last place.
func (q *fifo[K]) tidy() {
	seen := make(map[K]bool, len(q.in))
	kept := q.order[len(q.order):]
	for _, k := range slices.Backward(q.order) {
		if q.in[k] && !seen[k] {
			seen[k] = true
			kept = append(kept, k)
		}
	}
	slices.Reverse(kept)
	q.order = kept
}

// remove takes a key out and reports whether it was there.
func (q *fifo[K]) remove(k K) bool {
	was := q.in[k]
	delete(q.in, k)
	return was
}

// oldest takes out the oldest key that is not in use, or after maxAlive of them
// the oldest of all.
func (q *fifo[K]) oldest(inUse func(K) bool) (k K) {
	for range maxAlive {
		for len(q.order) > 0 && !q.in[q.order[0]] {
			q.order = q.order[1:]
		}
		if len(q.order) == 0 {
			return k
		}
		k, q.order = q.order[0], q.order[1:]
		if !inUse(k) {
			break
		}
		q.order = append(q.order, k)
	}
	delete(q.in, k)
	return k
}
