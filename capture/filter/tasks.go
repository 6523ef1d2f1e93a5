// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"slices"
	"sort"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
)

// nsID is a number for namespaces: their place in tasks.known. 0 is not known.
type nsID uint32

// tasks is which namespaces each task is in, over the time of the last rounds.
// The namespaces of spans are without that of time.
type tasks struct {
	byTID  map[int32]*task
	known  []container.Namespaces
	ids    map[container.Namespaces]nsID
	moved  []int32 // those with more than one span
	last   uint64  // time of the last round
	rounds uint64
	// live is how many tasks are in namespaces, by nsID; turns are when nobody
	// was left, or somebody came again.
	live    []int
	changes []occupancyChange
	vacant
}

// occupancyChange is when the first task came into namespaces, or the last one left.
type occupancyChange struct {
	ns   nsID
	time uint64
}

// task is one thread. A thread with the number of an earlier one goes on with
// its spans.
type task struct {
	spans []span // by time, not empty
	// clocks are the time namespaces, by time too. They are kept only if they
	// count, and apart: what tells of them comes in no order with the rest.
	clocks []clock
	gone   bool
}

// span begins when a task came into namespaces.
type span struct {
	time uint64
	ns   nsID
}

// clock begins when a task came into a time namespace.
type clock struct {
	time, ino uint64
}

func newTasks(host container.Namespaces) *tasks {
	t := &tasks{byTID: make(map[int32]*task), known: make([]container.Namespaces, 1),
		ids: make(map[container.Namespaces]nsID), live: make([]int, 1)}
	clock := host[container.TimeNS]
	host[container.TimeNS] = 0
	t.enter(0, 0, t.id(host)) // the idle task of each CPU
	t.enterClock(0, 0, clock)
	return t
}

// id is the number of namespaces.
func (t *tasks) id(ns container.Namespaces) nsID {
	if ns == (container.Namespaces{}) {
		return 0
	}
	id, ok := t.ids[ns]
	if !ok {
		id = t.take(nsID(len(t.known)))
		if int(id) == len(t.known) {
			t.known = append(t.known, container.Namespaces{})
			t.live = append(t.live, 0)
		}
		t.known[id] = ns
		t.ids[ns] = id
	}
	if t.live[id] == 0 {
		t.empty(id, t.now())
	}
	return id
}

// enter notes that a task is in namespaces from a time on. Records of different
// CPUs, and those of the snapshot, come out of order.
func (t *tasks) enter(tid int32, time uint64, ns nsID) {
	k := t.byTID[tid]
	if k == nil {
		t.byTID[tid] = &task{spans: []span{{time, ns}}}
		t.come(ns, time)
		return
	}
	before, gone := k.spans[len(k.spans)-1].ns, k.gone
	k.gone = false
	k.insert(time, ns)
	if len(k.spans) == 2 {
		t.moved = append(t.moved, tid)
	}
	now := k.spans[len(k.spans)-1].ns
	if !gone && now != before {
		t.leave(before, time)
	}
	if gone || now != before {
		t.come(now, time)
	}
}

// insert adds a span in the order of time.
func (k *task) insert(time uint64, ns nsID) {
	i := len(k.spans)
	for i > 0 && k.spans[i-1].time > time {
		i--
	}
	switch {
	case i > 0 && k.spans[i-1].time == time:
		k.spans[i-1].ns = ns
	case i > 0 && k.spans[i-1].ns == ns:
	default:
		k.spans = slices.Insert(k.spans, i, span{time, ns})
	}
}

func (t *tasks) come(ns nsID, time uint64) {
	if t.live[ns]++; t.live[ns] == 1 {
		t.changes = append(t.changes, occupancyChange{ns, time})
	}
}

func (t *tasks) leave(ns nsID, time uint64) {
	if t.live[ns]--; t.live[ns] == 0 {
		t.changes = append(t.changes, occupancyChange{ns, time})
		t.empty(ns, t.now())
	}
}

// at is the namespaces of a task at a time.
func (t *tasks) at(tid int32, time uint64) nsID {
	k := t.byTID[tid]
	if k == nil {
		return 0
	}
	if last := &k.spans[len(k.spans)-1]; last.time <= time {
		return last.ns
	}
	i := sort.Search(len(k.spans), func(i int) bool { return k.spans[i].time > time })
	return k.spans[max(i-1, 0)].ns
}

// enterClock notes that a task that is known is in a time namespace.
func (t *tasks) enterClock(tid int32, time, ino uint64) {
	k := t.byTID[tid]
	if k == nil || ino == 0 {
		return
	}
	i := len(k.clocks)
	for i > 0 && k.clocks[i-1].time > time {
		i--
	}
	k.clocks = slices.Insert(k.clocks, i, clock{time, ino})
	if len(k.clocks) > maxClocks {
		k.clocks = append(k.clocks[:0], k.clocks[maxClocks/2:]...)
	}
}

// maxClocks bounds the time namespaces of a task that are remembered.
const maxClocks = 64

// clockAt is the time namespace of a task at a time, 0 if it is not known.
func (t *tasks) clockAt(tid int32, time uint64) (ino uint64) {
	k := t.byTID[tid]
	if k == nil {
		return 0
	}
	for i, c := range k.clocks {
		if i == 0 || c.time <= time {
			ino = c.ino
		}
	}
	return ino
}

// fork notes a new task, which is where its parent is. A status record describes
// a process that runs already, whose parent tells nothing; a thread is where the
// others are unless another record says otherwise.
func (t *tasks) fork(r *proctable.Event) {
	if r.Status && r.PID == r.TID {
		if t.byTID[r.TID] == nil {
			t.enter(r.TID, r.Time, 0)
		}
		return
	}
	ino := t.clockAt(r.PTID, r.Time)
	t.enter(r.TID, r.Time, t.at(r.PTID, r.Time))
	t.enterClock(r.TID, r.Time, ino)
}

// exit notes the end of a task. Its last samples come behind this record.
func (t *tasks) exit(tid int32, time uint64) {
	if k := t.byTID[tid]; k != nil && !k.gone {
		k.gone = true
		t.leave(k.spans[len(k.spans)-1].ns, time)
	}
}

// execute notes that a task has executed a program. If that was not the first
// thread of its process, it goes on with the number of the first, which has
// exited.
func (t *tasks) execute(tid int32, time uint64) {
	if k := t.byTID[tid]; k != nil && k.gone {
		k.gone = false
		t.come(k.spans[len(k.spans)-1].ns, time)
	}
}

// forgetThread forgets a task of which no more samples come.
func (t *tasks) forgetThread(tid int32) {
	if k := t.byTID[tid]; k != nil && k.gone {
		delete(t.byTID, tid)
	}
}

// slack is how much older than a round a sample of the next one may be, in
// nanoseconds.
const slack = 1e9

// round forgets the spans that no sample of a later round asks for.
func (t *tasks) round(now uint64) {
	still := t.moved[:0]
	for _, tid := range t.moved {
		k := t.byTID[tid]
		if k == nil {
			continue
		}
		over := 0
		for over+1 < len(k.spans) && k.spans[over+1].time+slack < t.last {
			over++
		}
		k.spans = append(k.spans[:0], k.spans[over:]...)
		if len(k.spans) > 1 {
			still = append(still, tid)
		}
	}
	t.moved, t.last = still, now
	t.rounds++
}

func (t *tasks) now() moment { return moment{t.rounds, t.last} }
