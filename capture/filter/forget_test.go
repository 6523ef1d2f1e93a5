// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"fmt"
	"testing"

	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
)

// lifetime has a task live in a cgroup and namespaces.
func (x *fixture) lifetime(cgroup uint64, ns container.Namespaces) (Verdict, Origin) {
	v, place := x.task(cgroup, ns, false)
	x.procs.Decoded(&perf.Exit{Task: perf.Task{PID: x.tid, TID: x.tid, Time: 1e9}})
	return v, place
}

// rounds lets so many rounds of so many seconds pass.
func (x *fixture) rounds(n int, seconds uint64) {
	for range n {
		x.procs.Round()
		x.Round(x.tasks.last + seconds*1e9)
	}
}

// What nobody is in any more takes no memory, however long a recording is.
func TestForgetsWhatIsEmpty(t *testing.T) {
	for _, selectors := range [][]string{{"web"}, {"pod:web"}, {"vm:any"}, {"vm:uts:7,pid:20"}, {"six:any", "pod:web"}} {
		x := newFixture(t, twoContainers(t), selectors...)
		stays := with(t, "uts:999999,pid:999999,net:999999,ipc:999999,mnt:999999")
		x.task(1, stays, false)
		before := x.tasks.at(x.tid, 20)
		most := 0
		for i := range 3000 {
			x.lifetime(1, with(t, fmt.Sprintf("uts:%d,pid:%[1]d,net:%[1]d,ipc:%[1]d,mnt:%[1]d", 1000+i)))
			x.rounds(1, 1)
			x.ask(settleTime, false)
			most = max(most, len(x.tasks.known), len(x.nsRules), len(x.identities), len(x.tasks.ids), len(x.tasks.byTID), len(x.tasks.in))
		}
		if most > 50 {
			t.Errorf("%v: %d of 3000 are remembered at a time", selectors, most)
		}
		if now := x.tasks.at(x.tid-3000, 20); now != before || x.tasks.known[now] == (container.Namespaces{}) {
			t.Errorf("%v: who is left is in %d, was in %d", selectors, now, before)
		}
		x.ask(2*settleTime, false)
		if x.Waiting() {
			t.Errorf("%v: waiting for the name of nothing", selectors)
		}
	}
}

// A sample of a task that has ended is decided about as before, as long as it may
// be held.
func TestRemembersLongEnough(t *testing.T) {
	x := newFixture(t, twoContainers(t), "vm:any")
	in := with(t, "uts:50,pid:50")
	want, place := x.lifetime(1, in)
	if want != Keep {
		t.Fatalf("verdict %d", want)
	}
	x.rounds(rememberRounds, 100) // slow rounds
	x.lifetime(1, with(t, "uts:51"))
	if got := x.Settle(place, false); got != want {
		t.Errorf("after slow rounds: verdict %d, want %d", got, want)
	}
	x = newFixture(t, twoContainers(t), "vm:any")
	_, place = x.lifetime(1, in)
	x.rounds(90, 0) // quick ones
	x.rounds(9, 1)
	x.lifetime(1, with(t, "uts:51"))
	if got := x.Settle(place, false); got != want {
		t.Errorf("after quick rounds: verdict %d, want %d", got, want)
	}
	// They come again, before and after they were forgotten.
	for _, n := range []int{9, 2, 90} {
		x.rounds(n, 1)
		if got, _ := x.lifetime(1, in); got != want {
			t.Errorf("%d seconds later: verdict %d, want %d", n, got, want)
		}
	}
}

// The numbers of a container that the runtimes still tell of, and that has ended,
// may be those of another one: also when the rest of it was forgotten.
func TestForgetsNoName(t *testing.T) {
	pod := with(t, "net:20,ipc:20")
	x := newFixture(t, twoContainers(t), "pod:web")
	if v, _ := x.lifetime(1, pod); v == Drop {
		t.Fatalf("verdict %d", v)
	}
	x.rounds(20, 1)
	if len(x.tasks.ids) != 1 {
		t.Errorf("%d namespaces are remembered", len(x.tasks.ids))
	}
	x.ask(2*settleTime, false)
	_, place := x.task(1, pod, false)
	x.ask(2*settleTime, false)
	if v := x.Settle(place, false); v != Drop {
		t.Errorf("others with the same numbers: verdict %d", v)
	}
	// When the runtimes do not tell of it any more there is nothing to mistake.
	x.procs.Decoded(&perf.Exit{Task: perf.Task{PID: x.tid, TID: x.tid, Time: 1e9}})
	x.rounds(20, 1)
	x.table = &container.Table{Host: host()}
	x.ask(settleTime, false)
	if len(x.identities) != 0 {
		t.Errorf("%d identities are remembered", len(x.identities))
	}
}
