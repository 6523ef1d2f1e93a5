// SPDX-License-Identifier: Apache-2.0

//go:build linux

package filter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture/proctable"
	"github.com/gantry-tools/gantry/container"
	kernel "github.com/gantry-tools/gantry/internal/linux/bpf/filter"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// host is the namespaces of the host: 1 to 8.
func host() (ns container.Namespaces) {
	for n := range ns {
		ns[n] = uint64(n) + 1
	}
	return ns
}

// with is the host's namespaces with some exchanged: "pid:20,mnt:21".
func with(t testing.TB, text string) container.Namespaces {
	t.Helper()
	ns := host()
	id, err := container.ParseIdentity(text)
	if err != nil && text != "" {
		t.Fatal(err)
	}
	for n, ino := range id.Namespaces {
		if ino != 0 {
			ns[n] = ino
		}
	}
	return ns
}

func definitions(t testing.TB) container.Definitions {
	t.Helper()
	defs := container.BuiltIn()
	for _, text := range []string{"vm=uts,pid", "job=mnt;cgroup=/jobs/*", "tree=cgroup=/tree/**/x", "six=uts,ipc,mnt,pid,net,cgroup"} {
		d, err := container.ParseDefinition(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := defs.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return defs
}

func choices(t testing.TB, selectors ...string) (list []container.Choice) {
	t.Helper()
	for _, s := range selectors {
		c, err := definitions(t).ParseChoice(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// fixture is a filter over a table whose clock the test moves.
type fixture struct {
	*Filter
	procs *proctable.Table
	table *container.Table
	time  time.Time
	tid   int32
}

func newFixture(t testing.TB, table *container.Table, selectors ...string) *fixture {
	t.Helper()
	table.Host = host()
	p, err := NewPlan(choices(t, selectors...), table.Host)
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{table: table, time: time.Unix(1000, 0), tid: 100}
	x.procs = proctable.New(procfs.FS{}, 0)
	x.Filter = newFilter(p, p.View(table, x.time, false), procfs.FS{})
	x.procs.Subscribe(x.Filter)
	x.now = func() time.Time { return x.time }
	return x
}

// ask lets some time pass and asks the runtimes.
func (x *fixture) ask(after time.Duration, final bool) bool {
	x.time = x.time.Add(after)
	x.SetView(x.plan.View(x.table, x.time, final))
	return x.Refresh()
}

// task is a new task in a cgroup and namespaces, and what becomes of its sample.
func (x *fixture) task(cgroup uint64, ns container.Namespaces, passed bool) (Verdict, Origin) {
	x.tid++
	rec := &perf.Namespaces{PID: x.tid, TID: x.tid}
	for _, ino := range ns[:perf.NSCgroup+1] {
		rec.Links = append(rec.Links, perf.NSLink{Ino: ino})
	}
	rec.SampleID.Time = 10
	x.procs.Decoded(rec)
	return x.Decide(&Sample{TID: x.tid, Time: 20, Cgroup: cgroup, Passed: passed})
}

// By identities, a filter chooses what the definitions say.
func TestChoosesWhatDefinitionsSay(t *testing.T) {
	paths := []string{"/", "/jobs", "/jobs/a", "/jobs/a/b", "/jobs/b", "/tree/x", "/tree/y/x/z", "/user.slice"}
	selectors := []string{
		"pod:any", "vm:any", "six:any", "job:any", "tree:any", "kernel-default:any",
		"pod:net:10,ipc:10", "pod:net:10", "vm:pid:11", "job:mnt:10,cgroup:/jobs/a", "job:mnt:10", "job:cgroup:/jobs/b",
		"tree:cgroup:/tree/x", "net:10,ipc:11", "pid:10,cgroup:/jobs",
	}
	defs := definitions(t)
	rng := rand.New(rand.NewPCG(1, 2))
	chosen := 0
	for round := range 400 {
		var table container.Table
		picked := []string{selectors[rng.IntN(len(selectors))], selectors[rng.IntN(len(selectors))]}
		x := newFixture(t, &table, picked...)
		for i, path := range paths {
			x.table.AddCgroup(container.CgroupID(i+1), path)
			x.Cgroup(uint64(i+1), path, true)
		}
		cgroup := rng.IntN(len(paths))
		ns := host()
		for n := range container.TimeNS {
			if rng.IntN(2) == 0 {
				ns[n] = 10 + rng.Uint64N(2)
			}
		}
		want := Drop
		task := container.Task{Cgroup: container.CgroupID(cgroup + 1), CgroupPath: paths[cgroup], Namespaces: ns}
		for _, c := range choices(t, picked...) {
			if means(&table, defs, &c, &task) {
				want = Keep
			}
		}
		got, _ := x.task(uint64(cgroup+1), ns, round%2 == 0)
		if got != want {
			t.Errorf("%v: task in %s with %v: verdict %d, want %d", picked, paths[cgroup], ns, got, want)
		}
		if want == Keep {
			chosen++
		}
	}
	if chosen < 50 || chosen > 350 {
		t.Errorf("%d of 400 are chosen: this tests little", chosen)
	}
}

// means says by the definition alone whether a choice means a task.
func means(t *container.Table, defs container.Definitions, c *container.Choice, task *container.Task) bool {
	d := c.Definition
	if d == nil {
		d = &container.Definition{Name: "bare"}
		for n, ino := range c.Identity.Namespaces {
			if ino != 0 {
				d.Namespaces = append(d.Namespaces, container.Namespace(n))
			}
		}
		if path := c.Identity.CgroupPath; path != "" && task.CgroupPath != path && !strings.HasPrefix(task.CgroupPath, path+"/") {
			return false
		}
		c.Identity.CgroupPath = ""
	}
	id, ok := t.Identify(d, task)
	s := container.Selector{Identity: c.Identity}
	return ok && s.Matches(&id)
}

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// twoContainers is a table with web and db, each in a cgroup and namespaces.
func twoContainers(t testing.TB) *container.Table {
	table := &container.Table{Host: host()}
	table.AddCgroup(1, "/")
	table.AddCgroup(2, "/docker/"+idA)
	table.AddCgroup(3, "/docker/"+idB)
	table.AddCgroup(4, "/docker/"+idA+"/below")
	table.Add(container.Container{ID: idA, Name: "web", Pod: "shop-0", PID: 1000, CgroupPath: "/docker/" + idA, Namespaces: with(t, "pid:20,mnt:20,net:20,ipc:20")})
	table.Add(container.Container{ID: idB, Name: "db", PID: 2000, CgroupPath: "/docker/" + idB, Namespaces: with(t, "pid:30,mnt:30,net:20,ipc:20")})
	return table
}

func TestByName(t *testing.T) {
	web, db := with(t, "pid:20,mnt:20,net:20,ipc:20"), with(t, "pid:30,mnt:30,net:20,ipc:20")
	for _, tt := range []struct {
		name     string
		selector string
		cgroup   uint64
		ns       container.Namespaces
		want     Verdict
	}{
		{"itself", "web", 2, web, Keep},
		{"below it", "web", 4, web, Keep},
		{"whatever its namespaces", "web", 2, host(), Keep},
		{"the other", "web", 3, db, Drop},
		{"the host", "web", 1, host(), Drop},
		{"entered from the host", "web", 1, web, Keep},
		{"entered by half", "web", 1, with(t, "pid:20"), Drop},
		{"entered from the other", "web", 3, web, Drop},
		{"the other entered from the host", "web", 1, db, Drop},
		{"by id", idA[:8], 2, web, Keep},
		{"by pattern", "d*", 3, db, Keep},
		{"any, in a cgroup", "container:any", 3, host(), Keep},
		{"any, by namespaces", "container:any", 1, with(t, "pid:40,mnt:40"), Keep},
		{"any, the host", "container:any", 1, with(t, "pid:40,net:40"), Drop},
		{"its cgroup", "container:cgroup:/docker/" + idA, 4, web, Keep},
		{"its namespaces", "container:pid:20,mnt:20", 1, web, Keep},
		{"its namespaces in another", "container:pid:20,mnt:20", 3, web, Drop},
		{"its pod", "pod:web", 3, db, Keep},
		{"its pod by namespaces", "pod:web", 1, with(t, "net:20,ipc:20"), Keep},
		{"no pod", "pod:web", 1, with(t, "net:20,ipc:21"), Drop},
	} {
		x := newFixture(t, twoContainers(t), tt.selector)
		for _, c := range x.table.Cgroups() {
			x.Cgroup(uint64(c.ID), c.Path, true)
		}
		_, place := x.task(tt.cgroup, tt.ns, false)
		x.ask(2*settleTime, false)
		if got := x.Settle(place, false); got != tt.want {
			t.Errorf("%s: verdict %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A container that appears is held until the runtimes were asked late enough.
func TestNamesComeLate(t *testing.T) {
	x := newFixture(t, twoContainers(t), "late*")
	for _, c := range x.table.Cgroups() {
		x.Cgroup(uint64(c.ID), c.Path, true)
	}
	if x.Waiting() {
		t.Error("waiting for the names of what was there")
	}
	id := strings.Repeat("c", 64)
	x.Cgroup(10, "/docker/"+id, false)
	x.Cgroup(11, "/some/where", false)
	own := with(t, "pid:50,mnt:50")
	if v, _ := x.task(1, host(), false); v != Drop {
		t.Errorf("the host: %d", v)
	}
	places := make(map[uint64]Origin)
	for _, cg := range []uint64{10, 11, 1} {
		v, place := x.task(cg, own, true)
		if v != Hold {
			t.Errorf("cgroup %d: verdict %d, want it to be held", cg, v)
		}
		places[cg] = place
	}
	if x.ask(settleTime/2, false) || !x.Waiting() {
		t.Error("settled too early")
	}
	x.table.AddCgroup(10, "/docker/"+id)
	x.table.Add(container.Container{ID: id, Name: "late-1", PID: 3000, CgroupPath: "/docker/" + id, Namespaces: own})
	if !x.ask(settleTime/4, false) || x.Settle(places[10], false) != Keep {
		t.Error("a name that is known is not enough")
	}
	if v := x.Settle(places[1], false); v != Keep {
		t.Errorf("entered from the host: %d", v)
	}
	if v := x.Settle(places[11], false); v != Hold {
		t.Errorf("another cgroup: %d", v)
	}
	if !x.ask(settleTime, false) || x.Waiting() {
		t.Error("not settled")
	}
	// In a cgroup that is no container's, the namespaces count.
	if v := x.Settle(places[11], false); v != Keep {
		t.Errorf("entered from another cgroup: %d", v)
	}
	if v, _ := x.task(11, host(), true); v != Drop {
		t.Errorf("another cgroup: %d", v)
	}
	if s := x.Stats(); s.Undecided != 0 || s.Unknown != 0 || s.Dropped != 2 {
		t.Errorf("%+v", s)
	}
}

// A container by its path that no runtime tells of is kept until it had the
// time to get a name.
func TestNameless(t *testing.T) {
	x := newFixture(t, twoContainers(t), "late")
	x.Cgroup(10, "/docker/"+strings.Repeat("c", 64), false)
	x.Cgroup(12, "/docker/"+strings.Repeat("d", 64)+"/below", false)
	_, place := x.task(10, host(), true)
	x.ask(2*settleTime, false)
	if v := x.Settle(place, false); v != Hold {
		t.Errorf("verdict %d", v)
	}
	if v := x.Settle(place, true); v != Keep || x.Stats().Undecided != 1 {
		t.Errorf("verdict %d, %+v", v, x.Stats())
	}
	x.ask(nameTime, false)
	if v, _ := x.task(10, host(), true); v != Drop || x.Waiting() {
		t.Errorf("verdict %d", v)
	}
	// At the end it is as it is, but for what had no time.
	x.Cgroup(11, "/docker/"+strings.Repeat("e", 64), false)
	x.Cgroup(13, "/else", false)
	x.ask(0, true)
	if v, _ := x.task(13, host(), true); v != Drop {
		t.Errorf("no container: verdict %d", v)
	}
	if _, place = x.task(11, host(), true); x.Settle(place, true) != Keep {
		t.Error("dropped what may be chosen")
	}
}

// The kernel gives the numbers of namespaces that are gone to new ones: what is
// known of the container that had them does not count for the next.
func TestNumbersUsedAgain(t *testing.T) {
	pod := with(t, "net:20,ipc:20")
	x := newFixture(t, twoContainers(t), "pod:web")
	for _, c := range x.table.Cgroups() {
		x.Cgroup(uint64(c.ID), c.Path, true)
	}
	if v, _ := x.task(1, pod, false); v != Keep {
		t.Fatalf("verdict %d", v)
	}
	x.task(1, pod, false)
	exit := func(tid int32) { x.procs.Decoded(&perf.Exit{Task: perf.Task{PID: tid, TID: tid, Time: 1e9}}) }
	exit(x.tid)
	if v, _ := x.task(1, pod, false); v != Keep {
		t.Errorf("one is left: verdict %d", v)
	}
	exit(x.tid)
	exit(x.tid - 2)
	if x.Waiting() {
		t.Error("waiting for the name of nothing")
	}
	v, place := x.task(1, pod, false)
	if v != Hold || !x.Waiting() {
		t.Errorf("others with the same numbers: verdict %d", v)
	}
	x.ask(2*settleTime, false)
	if v := x.Settle(place, false); v != Drop {
		t.Errorf("others with the same numbers: verdict %d", v)
	}
	// Unless the name is that of a container that started since.
	exit(x.tid)
	_, place = x.task(1, pod, false)
	x.table.Add(container.Container{ID: strings.Repeat("f", 64), Name: "web", PID: 9, StartTime: 2e9, Namespaces: pod})
	x.ask(0, false)
	if v := x.Settle(place, false); v != Keep {
		t.Errorf("the next of the name: verdict %d", v)
	}
	// An identity that was written out is what it is.
	x = newFixture(t, twoContainers(t), "pod:net:20,ipc:20")
	x.task(1, pod, false)
	exit(x.tid)
	if v, _ := x.task(1, pod, true); v != Keep {
		t.Errorf("verdict %d", v)
	}
}

// Who is told apart by the text of its cgroup needs no runtime.
func TestByTextOfPath(t *testing.T) {
	x := newFixture(t, &container.Table{}, strings.Repeat("c", 12), "container:any")
	x.Cgroup(10, "/docker/"+strings.Repeat("c", 64), false)
	if v, _ := x.task(10, host(), false); v != Keep {
		t.Errorf("verdict %d", v)
	}
	x = newFixture(t, &container.Table{}, "container:any")
	x.Cgroup(10, "/docker/"+strings.Repeat("c", 64)+"/below", false)
	if v, _ := x.task(10, host(), false); v != Keep {
		t.Errorf("any: verdict %d", v)
	}
}

func TestUnknown(t *testing.T) {
	x := newFixture(t, twoContainers(t), "pod:any")
	decide := func(s Sample) Verdict { v, _ := x.Decide(&s); return v }
	if v := decide(Sample{TID: 5, Time: 1, Cgroup: 1}); v != Drop || x.Stats().Unknown != 1 {
		t.Errorf("a task of which nothing tells: %d, %+v", v, x.Stats())
	}
	if v := decide(Sample{TID: 5, Time: 1, Cgroup: 1, Passed: true}); v != Keep {
		t.Errorf("the same, which the kernel let pass: %d", v)
	}
	if v := decide(Sample{TID: -1, Time: 1, Cgroup: 1, Passed: true}); v != Drop || x.Stats().Unknown != 2 {
		t.Errorf("a task that was reaped: %d, %+v", v, x.Stats())
	}
	if v := decide(Sample{TID: 0, Time: 1, Cgroup: 1, Passed: true}); v != Drop {
		t.Errorf("the idle task: %d", v)
	}
	_, place := x.task(1, host(), true)
	if v := x.Settle(place, false); v != Drop {
		t.Errorf("the host: %d", v)
	}
	x.Blind()
	if v := x.Settle(place, false); v != Keep || x.Stats().Undecided != 1 {
		t.Errorf("the host as it was before something was lost: %d", v)
	}
	// A cgroup of which nothing tells.
	x = newFixture(t, twoContainers(t), "job:any")
	if v, _ := x.task(99, with(t, "mnt:9"), false); v != Drop || x.Stats().Unknown != 1 {
		t.Errorf("verdict %d, %+v", v, x.Stats())
	}
	if v, _ := x.task(99, host(), false); v != Drop || x.Stats().Unknown != 1 {
		t.Errorf("the host in it: verdict %d, %+v", v, x.Stats())
	}
}

func TestPlanErrors(t *testing.T) {
	many := func(n int, format string) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf(format, i+100))
		}
		return list
	}
	for name, tt := range map[string]struct {
		selectors []string
		want      error
	}{
		"the host's":      {[]string{"pod:net:1,ipc:30"}, ErrHost},
		"cgroup number":   {[]string{"tree:cgroup:#5"}, errCgroupNumber},
		"conditions":      {many(63, "job:cgroup:/jobs/%d"), ErrTooMany},
		"few conditions":  {many(62, "job:cgroup:/jobs/%d"), nil},
		"many identities": {many(500, "pod:net:%d,ipc:9"), nil},
	} {
		if _, err := NewPlan(choices(t, tt.selectors...), host()); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	var list []container.Choice
	for set := 1; set < 64; set++ {
		id := container.Identity{}
		for n := range 6 {
			if set>>n&1 != 0 {
				id.Namespaces[n] = 99
			}
		}
		list = append(list, container.Choice{Text: "x", Identity: id})
	}
	if _, err := NewPlan(list[:kernel.MaxMasks], host()); err != nil {
		t.Error(err)
	}
	if _, err := NewPlan(list, host()); !errors.Is(err, ErrTooMany) {
		t.Errorf("%v", err)
	}
}

// A cgroup of which no record told is found by its id, and one that is gone is
// forgotten.
func TestCgroupsOfThisMachine(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2)
	cg := testutil.NewCgroup(t, "/docker/"+strings.Repeat("c", 64))
	p, err := NewPlan(choices(t, "container:any", "tree:any"), host())
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(p, p.View(new(container.Table), time.Now(), false), procfs.FS{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id := cg.ID(t)
	if v, _ := f.Decide(&Sample{TID: 1, Time: 1, Cgroup: id}); v != Keep || f.cgroups[id] == nil || f.cgroups[id].path != cg.Path {
		t.Errorf("verdict %d, cgroup %+v, want %s", v, f.cgroups[id], cg.Path)
	}
	if path, err := f.cgroupOf(int32(os.Getpid())); err != nil || path == "" || path[0] != '/' {
		t.Errorf("this process is in cgroup %q (%v)", path, err)
	}
	if v, _ := f.Decide(&Sample{TID: 1, Time: 1, Cgroup: 1 << 60}); v != Drop || f.stats.Unknown != 1 || !f.missing[1<<60] {
		t.Errorf("no cgroup: verdict %d, %+v", v, f.stats)
	}
	plain := testutil.NewCgroup(t, "/plain")
	f.Cgroup(1<<60, plain.Path, false) // one that is gone had its path
	f.Cgroup(plain.ID(t), plain.Path, false)
	gone := testutil.NewCgroup(t, "/gone")
	f.Cgroup(gone.ID(t), gone.Path, false)
	goneID, waiting := gone.ID(t), f.pending
	if err := os.Remove(gone.Dir); err != nil {
		t.Fatal(err)
	}
	f.sweep()
	if f.cgroups[1<<60] != nil || f.ids[plain.Path] != plain.ID(t) {
		t.Errorf("the path of a cgroup that is gone leads to %d, want the one that has it now", f.ids[plain.Path])
	}
	if f.cgroups[goneID] != nil || f.cgroups[plain.ID(t)] == nil || f.cgroups[id] == nil || f.pending != waiting-2 {
		t.Errorf("left are %d cgroups, %d of them not settled", len(f.cgroups), f.pending)
	}
}
