// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"slices"

	"github.com/gantry-tools/gantry/container"
)

// vacant is namespaces that no task is in. They are forgotten when nothing that
// is still to be decided can refer to them: there may be ever more of them, on a
// machine that starts containers for weeks.
type vacant struct {
	queue []nsID   // in the order in which they were put there
	by    []moment // when that was, by nsID
	asked []moment // when they were asked for last, by nsID
	in    []bool   // the queue, by nsID
	free  []nsID   // forgotten
}

// moment is the round at which something was so, and the time when that began.
type moment struct{ round, time uint64 }

// Empty namespaces are remembered for so many nanoseconds, which is longer than
// samples are held, and so many rounds, which is longer than tasks are that have
// ended.
const (
	rememberTime   = 10e9
	rememberRounds = 3
)

// past: it is long enough ago that what was empty then may be forgotten.
func (m moment) past(now moment) bool {
	return m.time+rememberTime < now.time && m.round+rememberRounds < now.round
}

// take is a number that was given back, or else the next one.
func (v *vacant) take(next nsID) nsID {
	n := len(v.free)
	if n == 0 {
		return next
	}
	id := v.free[n-1]
	v.free = v.free[:n-1]
	return id
}

// empty notes that namespaces are empty now, and were asked for.
func (v *vacant) empty(ns nsID, now moment) {
	for int(ns) >= len(v.in) {
		v.by, v.asked, v.in = append(v.by, now), append(v.asked, now), append(v.in, false)
	}
	v.asked[ns] = now
	if !v.in[ns] && ns != 0 {
		v.in[ns] = true
		v.by[ns] = now
		v.queue = append(v.queue, ns)
	}
}

// over gives the namespaces that may be forgotten: no task has been in them for
// some time, and none in the two last rounds.
func (t *tasks) over() (list []nsID) {
	now := t.now()
	for len(t.queue) > 0 {
		ns := t.queue[0]
		if !t.by[ns].past(now) {
			break
		}
		t.queue = t.queue[1:]
		t.in[ns] = false
		switch {
		case t.live[ns] > 0:
		case t.asked[ns].past(now):
			list = append(list, ns)
		default:
			t.empty(ns, t.asked[ns])
		}
	}
	return list
}

// forget gives the number of namespaces back.
func (t *tasks) forget(ns nsID) {
	delete(t.ids, t.known[ns])
	t.known[ns] = container.Namespaces{}
	t.free = append(t.free, ns)
}

// forget drops namespaces, and the identities without tasks. One
// of which the runtimes tell is remembered as long as they do: when its numbers
// are given to new namespaces, that must not be what they are called.
func (f *Filter) forget(ns nsID) {
	if int(ns) < len(f.nsRules) {
		for _, i := range f.nsRules[ns].ids {
			i.at = slices.DeleteFunc(i.at, func(at nsID) bool { return at == ns })
			i.left = len(i.at) == 0
			f.dropIdentity(i)
		}
		f.nsRules[ns] = nsRules{}
	}
	f.tasks.forget(ns)
}

// dropIdentity forgets an identity that was left, unless the runtimes tell of it or the
// kernel was told of it before there was a task.
func (f *Filter) dropIdentity(i *identity) {
	if _, found := f.view.known[i.key]; !i.left || i.fixed || found {
		return
	}
	if _, chosen := f.view.identities[i.key]; chosen {
		return
	}
	f.pending -= toInt(i.waiting())
	delete(f.identities, i.key)
	if f.cache != nil {
		f.cache.forget(&i.key)
	}
}
