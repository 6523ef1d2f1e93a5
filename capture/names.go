// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
)

const (
	// settleTime is how long after a cgroup appeared the runtimes are asked:
	// at once they know nothing of it yet.
	settleTime = 50 * time.Millisecond
	// refreshShare bounds the time spent on asking: one part in so many.
	refreshShare = 20
	// waitingShare is the same while samples wait for the answer.
	waitingShare = 2
	// minRefresh is the shortest time between two questions.
	minRefresh = 250 * time.Millisecond
	// maxQueue bounds the cgroups that appear while the runtimes are asked.
	maxQueue = 1 << 16
	// lastRefresh bounds the question at the end.
	lastRefresh = 5 * time.Second
)

// names keeps the table of containers while a recording runs. The runtimes
// are asked in the background: they may be slow to answer.
type names struct {
	resolver *container.Resolver // nil: only what the paths of cgroups tell
	fresh    chan struct{}       // a new cgroup was seen
	waiting  atomic.Bool         // samples wait for the next answer
	asked    chan struct{}       // closed when the runtimes have been asked once
	stop     context.CancelFunc
	done     chan struct{}
	// watch is nil without a resolver, or if watchErr says why.
	watch    *container.StateWatch
	watchErr error
	watched  chan struct{} // closed when watch is not read any more

	qmu   sync.Mutex
	queue []container.Cgroup
	told  []container.Info // by watch
	// dropped: a cgroup, or a container, came when there were maxQueue in the queue.
	dropped bool
	newest  time.Time // when a cgroup appeared last

	// mu is taken before qmu. It is held while the runtimes are asked, so
	// the reader of the rings never waits for it.
	mu       sync.Mutex
	table    *container.Table
	warnings []container.Warning
	seen     time.Time // answered, when changed looked
	answered time.Time // when the runtimes were asked last that have answered
	// view is called after the runtimes were asked, with the time when that
	// began; last says that they will not be asked again. It may be nil.
	view func(t *container.Table, asked time.Time, last bool)

	// namespaced is where the resolver looks; nil without one.
	namespaced *proctable.Namespaced

	recent  bool            // the runtimes were asked before the recording
	early   container.Table // what is known before anything was asked
	counted int             // what count gave last
}

// newNames makes the table of a recording whose clock CLOCK_BOOTTIME is ahead of
// by bootOffset nanoseconds.
func newNames(r *container.Resolver, defs container.Definitions, bootOffset uint64) *names {
	n := &names{resolver: r, table: new(container.Table), fresh: make(chan struct{}, 1), asked: make(chan struct{}),
		done: make(chan struct{}), watched: make(chan struct{})}
	if r != nil {
		r.RememberEnded()
		n.table = r.Table()
		n.recent = len(n.table.Containers()) > 0
		n.namespaced = proctable.NewNamespaced(n.table.Host[container.PIDNS], n.table.Host[container.MntNS])
		r.Among(n.namespaced.List)
	}
	n.table.Definitions, n.table.BootOffset = defs, bootOffset
	n.early = container.Table{Host: n.table.Host, Definitions: defs, BootOffset: bootOffset}
	return n
}

// Observe implements proctable.Observer.
func (n *names) Observe(ev *proctable.Event) {
	if ev.Kind == proctable.Cgroup {
		n.addCgroup(ev.CgroupID, ev.CgroupPath)
	}
}

// addCgroup takes note of a cgroup. It never waits.
func (n *names) addCgroup(id uint64, path string) {
	n.qmu.Lock()
	n.newest = time.Now()
	if len(n.queue) < maxQueue {
		n.queue = append(n.queue, container.Cgroup{ID: container.CgroupID(id), Path: path})
	} else {
		n.dropped = true
	}
	n.qmu.Unlock()
	n.wake()
}

// wake has the runtimes asked again.
func (n *names) wake() {
	select {
	case n.fresh <- struct{}{}:
	default:
	}
}

// take moves the queue into the table; mu is held. last says that nothing more
// comes.
func (n *names) take(last bool) {
	n.qmu.Lock()
	for _, c := range n.queue {
		n.table.AddCgroup(c.ID, c.Path)
	}
	n.queue = n.queue[:0]
	told := n.told
	n.told = nil
	// A Refresh finds those that are still there.
	n.table.Full = n.table.Full || n.dropped
	n.qmu.Unlock()
	if len(told) == 0 {
		return
	}
	again := n.resolver.Told(told, last)
	n.qmu.Lock()
	n.told = append(again, n.told...)
	n.qmu.Unlock()
}

// start asks in the background until wait is called.
func (n *names) start() {
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	if n.resolver != nil {
		n.watch, n.watchErr = n.resolver.WatchStates()
	}
	if n.watch != nil {
		go n.watchStates()
	} else {
		close(n.watched)
	}
	go func() {
		defer close(n.done)
		n.run(ctx)
	}()
}

// watchStates listens to the runtimes, which tell of containers that may be gone
// when they are asked, until the watch is closed.
func (n *names) watchStates() {
	defer close(n.watched)
	for {
		list, err := n.watch.Next()
		if err != nil {
			return
		}
		n.qmu.Lock()
		if len(n.told)+len(list) <= maxQueue {
			n.told = append(n.told, list...)
		} else {
			n.dropped = true
		}
		n.qmu.Unlock()
		n.wake()
	}
}

func (n *names) run(ctx context.Context) {
	pause := time.Duration(0)
	if n.recent {
		pause = minRefresh
	}
	first := true
	if pause > 0 {
		close(n.asked)
		first = false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		n.refresh(ctx, false)
		took := time.Since(begun)
		if first {
			close(n.asked)
			first = false
		}
		select {
		case <-n.fresh:
		case <-ctx.Done():
			return
		}
		timer.Reset(pauseFor(took, time.Since(begun), n.waiting.Swap(false)))
	}
}

// pauseFor is how long to wait with the next question when the last one took so
// long and was begun so long ago.
func pauseFor(took, ago time.Duration, waiting bool) time.Duration {
	share := time.Duration(refreshShare)
	if waiting {
		share = waitingShare
	}
	return max(settleTime, minRefresh-ago, share*took-ago)
}

func (n *names) refresh(ctx context.Context, last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := time.Now()
	n.take(false)
	if n.resolver != nil {
		n.warnings = n.resolver.Refresh(ctx)
		if n.watchErr != nil {
			n.warnings = append(n.warnings, container.Warning{Where: "containers that end at once", Err: n.watchErr})
		}
	}
	n.take(last)
	n.answered = asked
	if n.view != nil {
		n.view(n.table, asked, last)
	}
}

// wait ends the asking with a last question, and gives the table to the
// caller.
func (n *names) wait() *container.Table {
	n.namespaced.Finish(false) // if the snapshot failed
	n.stop()
	<-n.done
	n.watch.Close()
	<-n.watched
	ctx, cancel := context.WithTimeout(context.Background(), lastRefresh)
	defer cancel()
	n.refresh(ctx, true)
	return n.table
}

// firstAnswer is how long the recording's start waits for the runtimes.
const firstAnswer = 500 * time.Millisecond

// lockTable gives the table to the caller until unlock is called, once the runtimes have been
// asked for the cgroups that were there at a time; force gives it as it is, nil is not yet.
func (n *names) lockTable(at time.Time, force bool) (table *container.Table, unlock func()) {
	if force {
		n.mu.Lock()
	} else if !n.mu.TryLock() {
		return nil, nil
	}
	n.qmu.Lock()
	known := n.newest.IsZero() || n.answered.After(n.newest) || n.answered.After(at)
	n.qmu.Unlock()
	if !force && n.resolver != nil && !known {
		n.mu.Unlock()
		return nil, nil
	}
	n.take(false)
	return n.table, n.mu.Unlock
}

// section is the table as it is once the runtimes have been asked, or what of
// it was known before if they have not answered after firstAnswer: early.
func (n *names) section() (section []byte, early bool, err error) {
	select {
	case <-n.asked:
	case <-n.done:
	case <-time.After(firstAnswer):
		section, err = n.early.MarshalJSON()
		return section, true, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.take(false)
	section, err = n.table.MarshalJSON()
	return section, false, err
}

// changed reports whether the runtimes have answered since it reported that last.
func (n *names) changed() bool {
	if !n.mu.TryLock() {
		return false
	}
	defer n.mu.Unlock()
	if !n.answered.After(n.seen) {
		return false
	}
	n.seen = n.answered
	return true
}

// late is section without waiting; not ok: not yet.
func (n *names) late() (section []byte, ok bool, err error) {
	select {
	case <-n.asked:
	default:
		return nil, false, nil
	}
	if !n.mu.TryLock() {
		return nil, false, nil
	}
	defer n.mu.Unlock()
	n.take(false)
	section, err = n.table.MarshalJSON()
	return section, true, err
}

// count is how many containers own some of the cgroups, or while the runtimes
// are being asked what it was before.
func (n *names) count(cgroups map[uint64]uint64) int {
	if !n.mu.TryLock() {
		return n.counted
	}
	defer n.mu.Unlock()
	n.take(false)
	n.counted = countContainers(n.table, cgroups)
	return n.counted
}

func countContainers(t *container.Table, cgroups map[uint64]uint64) int {
	seen := make(map[*container.Container]bool)
	for id := range cgroups {
		if c := t.ByCgroup(container.CgroupID(id)); c != nil && c.Kind == container.KindContainer {
			seen[c] = true
		}
	}
	return len(seen)
}
