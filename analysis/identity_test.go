// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// inside is a NAMESPACES record of a task, by kind; the others are the host's.
func inside(pid, tid int32, own map[container.Namespace]uint64) *perf.Namespaces {
	links := make([]perf.NSLink, 7)
	for n := range links {
		links[n].Ino = hostNS(container.Namespace(n))
		if ino, ok := own[container.Namespace(n)]; ok {
			links[n].Ino = ino
		}
	}
	return &perf.Namespaces{PID: pid, TID: tid, Links: links}
}

// hostNS is the host's namespace of a kind.
func hostNS(n container.Namespace) uint64 { return uint64(n) + 1 }

func hostTable() *container.Table {
	t := new(container.Table)
	for n := range container.NumNS {
		t.Host[n] = hostNS(n)
	}
	return t
}

func gantryFeature(t *testing.T, table *container.Table) *perfdata.Features {
	t.Helper()
	b, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	return &perfdata.Features{Gantry: b}
}

func define(t *testing.T, texts ...string) (defs container.Definitions) {
	t.Helper()
	for _, text := range texts {
		d, err := container.ParseDefinition(text)
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, d)
	}
	return defs
}

// threadSample is a sample of a thread at an address that tells it from others.
func threadSample(pid, tid int32, n uint64) *perf.Sample {
	s := sample(pid, n)
	s.TID = tid
	return s
}

// identitiesOf is what each sample, by its address, shows under definitions.
func identitiesOf(t *testing.T, s *Session, defs ...string) map[uint64][]string {
	t.Helper()
	out := make(map[uint64][]string)
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if it.Sample == nil {
			continue
		}
		var texts []string
		for _, d := range defs {
			id := s.IdentityUnder(d, it.Sample.Cgroup, it.Thread)
			texts = append(texts, id.Text())
		}
		out[it.Sample.IP] = texts
	}
}

// TestIdentities: a sample is in the containers of all definitions that hold
// for its task at its time.
func TestIdentities(t *testing.T) {
	table := hostTable()
	table.Definitions = define(t, "vm=uts,pid", "host-pid=mnt")
	r := newRecording(t, perf.SampleCgroup)
	pod := map[container.Namespace]uint64{container.NetNS: 10, container.IPCNS: 30}
	app := map[container.Namespace]uint64{container.NetNS: 10, container.IPCNS: 30, container.PIDNS: 40, container.MntNS: 60}
	r.add(
		inside(1, 1, nil), threadSample(1, 1, 1),
		inside(5, 5, pod), threadSample(5, 5, 2),
		inside(6, 6, app), threadSample(6, 6, 3),
		threadSample(7, 7, 4), // nothing tells
	)
	s := r.open(gantryFeature(t, table), &Options{Definitions: define(t, "host-pid=net,user")})
	got := identitiesOf(t, s, "container", "pod", "kernel-default", "vm", "host-pid", "no-such")
	want := map[uint64][]string{
		1: {"", "", "", "", "", "-"},
		2: {"", "net:10,ipc:30", "", "", "", "-"},
		3: {"pid:40,mnt:60", "net:10,ipc:30", "", "", "", "-"},
		4: {"-", "-", "-", "-", "-", "-"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"container", "pod", "kernel-default", "vm", "host-pid"}, s.Definitions().Names()); diff != "" {
		t.Error(diff)
	}
	all := s.Identities(0, s.Timeline.Thread(6, 6))
	if len(all) != 2 || all[0].Definition != "container" || all[1].Definition != "pod" {
		t.Errorf("%+v", all)
	}
}

// TestIdentityAtTime: namespaces count as they are when the sample is taken,
// of the thread that it is of.
func TestIdentityAtTime(t *testing.T) {
	net := func(ino uint64) map[container.Namespace]uint64 {
		return map[container.Namespace]uint64{container.NetNS: ino}
	}
	for _, known := range []bool{true, false} { // the process's namespaces at the start
		r := newRecording(t, 0)
		r.add(inside(1, 1, nil))
		if known {
			r.add(inside(5, 5, nil))
		}
		r.add(
			threadSample(5, 5, 1),
			&perf.Fork{Task: perf.Task{PID: 5, TID: 6, PPID: 5, PTID: 5}},
			threadSample(5, 6, 2),
			inside(5, 6, net(10)), // the thread goes elsewhere: setns, unshare
			threadSample(5, 6, 3), threadSample(5, 5, 4),
			&perf.Fork{Task: perf.Task{PID: 5, TID: 7, PPID: 5, PTID: 6}}, // where its maker is
			&perf.Fork{Task: perf.Task{PID: 8, TID: 8, PPID: 5, PTID: 6}}, // so is a process
			&perf.Fork{Task: perf.Task{PID: 9, TID: 9, PPID: 5, PTID: 5}},
			threadSample(5, 7, 5), threadSample(8, 8, 6), threadSample(9, 9, 7),
			inside(5, 5, net(20)), // the first thread goes elsewhere, alone
			threadSample(5, 5, 8), threadSample(5, 6, 9), threadSample(8, 8, 10),
			inside(5, 6, nil), // and the other one comes back
			threadSample(5, 6, 11), threadSample(5, 5, 12), threadSample(5, 7, 13),
		)
		first := ""
		if !known {
			first = "-"
		}
		want := map[uint64]string{1: first, 2: first, 3: "net:10", 4: first, 5: "net:10", 6: "net:10", 7: first, 8: "net:20",
			9: "net:10", 10: "net:10", 11: "", 12: "net:20", 13: "net:10"}
		if !known {
			// The thread's was the first word on the process.
			want[4], want[7] = "net:10", "net:10"
		}
		o := &Options{Definitions: define(t, "own-net=net")}
		got := map[uint64]string{}
		for ip, texts := range identitiesOf(t, r.open(gantryFeature(t, hostTable()), o), "own-net") {
			got[ip] = texts[0]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("known %v: %s", known, diff)
		}
		// The collector, which remembers labels, sees the same.
		rd, err := perfdata.NewReader(bytes.NewReader(r.f.b), int64(len(r.f.b)), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := NewSession(rd, o).Collect(CollectOptions{Definitions: []string{"own-net"}, Symbols: true, Addresses: true})
		if err != nil {
			t.Fatal(err)
		}
		got = map[uint64]string{}
		for s := range p.Samples() {
			id := p.Labels(s.Labels).Identities.Under("own-net")
			got[p.Frame(p.Stack(s.Stack)[0]).Addr] = id.Text()
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("collected, known %v: %s", known, diff)
		}
	}
}

// TestIdentityNames: names of runtimes go before the numbers of namespaces.
func TestIdentityNames(t *testing.T) {
	table := hostTable()
	ns := func(pid uint64, own map[container.Namespace]uint64) container.Namespaces {
		n := table.Host
		n[container.PIDNS], n[container.MntNS], n[container.TimeNS] = pid, pid+1, pid+2
		for kind, ino := range own {
			n[kind] = ino
		}
		return n
	}
	pod := map[container.Namespace]uint64{container.NetNS: 10, container.IPCNS: 30}
	for _, c := range []container.Container{
		{ID: "app-id", Name: "app", Pod: "shop", PodNamespace: "prod", CgroupID: 21, CgroupPath: "/k/app", PID: 21, Namespaces: ns(100, pod)},
		{ID: "db-id", Name: "db", Pod: "shop", PodNamespace: "prod", CgroupID: 22, CgroupPath: "/k/db", PID: 22, Namespaces: ns(200, pod)},
		{ID: "agent-id", Name: "agent", Pod: "node-agent", CgroupID: 23, CgroupPath: "/k/agent", PID: 23, Namespaces: ns(300, nil)},
		{ID: "solo-id", Name: "solo", CgroupID: 24, CgroupPath: "/d/solo", PID: 24,
			Namespaces: ns(400, map[container.Namespace]uint64{container.NetNS: 11, container.IPCNS: 31})},
	} {
		table.AddCgroup(c.CgroupID, c.CgroupPath)
		table.Add(c)
	}
	r := newRecording(t, perf.SampleCgroup)
	r.add(inside(1, 1, nil))
	for i, c := range table.Containers() {
		links := make([]perf.NSLink, 7)
		for n := range links {
			links[n].Ino = c.Namespaces[n]
		}
		s := threadSample(int32(c.PID), int32(c.PID), uint64(i)+1)
		s.Cgroup = uint64(c.CgroupID)
		r.add(&perf.Namespaces{PID: int32(c.PID), TID: int32(c.PID), Links: links}, s)
	}
	o := &Options{Definitions: define(t, "t=pid,time", "tree=cgroup=/k", "both=mnt;cgroup=/*/*")}
	got := identitiesOf(t, r.open(gantryFeature(t, table), o), "container", "pod", "t", "tree", "both")
	want := map[uint64][]string{
		1: {"shop/app", "shop", "shop/app", "cgroup:/k", "shop/app"},
		2: {"shop/db", "shop", "shop/db", "cgroup:/k", "shop/db"},
		// The pod uses the host's network: only its runtime tells of it.
		3: {"node-agent/agent", "node-agent", "node-agent/agent", "cgroup:/k", "node-agent/agent"},
		4: {"solo", "solo", "solo", "", "solo"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHostOfPerf: a file of perf does not say what the host's namespaces are.
func TestHostOfPerf(t *testing.T) {
	const init = 4026531836
	links := func(pid int32, pidNS, net uint64) perf.Record {
		l := make([]perf.NSLink, 7)
		l[perf.NSPID].Ino, l[perf.NSMnt].Ino, l[perf.NSNet].Ino, l[perf.NSUTS].Ino, l[perf.NSIPC].Ino = pidNS, pidNS+1, net, 4026531838, 4026531839
		return &perf.Namespaces{PID: pid, TID: pid, Links: l}
	}
	for _, tt := range []struct {
		name  string
		first []perf.Record
		want  map[uint64][]string
	}{
		{"of all tasks", []perf.Record{links(1, init, 7)}, map[uint64][]string{
			1: {"", "", ""}, 2: {"", "net:8", ""}, 3: {"pid:50,mnt:51", "net:8", "pid:50"}, 4: {"", "", ""}}},
		{"where nobody may look at process 1", []perf.Record{&perf.Namespaces{PID: 1, TID: 1, Links: make([]perf.NSLink, 7)}, links(2, init, 7)},
			map[uint64][]string{1: {"", "", ""}, 2: {"", "net:8", ""}, 3: {"pid:50,mnt:51", "net:8", "pid:50"}, 4: {"", "", ""}}},
		{"with the kernel's threads", []perf.Record{links(2, init, 7)}, map[uint64][]string{
			1: {"", "", ""}, 2: {"", "net:8", ""}, 3: {"pid:50,mnt:51", "net:8", "pid:50"}, 4: {"", "", ""}}},
		// The kernel numbers its first namespaces the same everywhere, but for
		// networks and mounts.
		{"of one command", nil, map[uint64][]string{1: {"", "-", ""}, 2: {"", "-", ""}, 3: {"-", "-", "pid:50"}, 4: {"", "-", ""}}},
	} {
		r := newRecording(t, 0)
		r.add(tt.first...)
		r.add(links(11, init, 7), threadSample(11, 11, 1), links(12, init, 8), threadSample(12, 12, 2), links(13, 50, 8), threadSample(13, 13, 3),
			threadSample(0, 0, 4))
		got := identitiesOf(t, r.open(nil, &Options{Definitions: define(t, "own-net=net", "own-pid=pid")}), "container", "own-net", "own-pid")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

// TestDefinitionsOfAStream come late, and names of containers with them.
func TestDefinitionsOfAStream(t *testing.T) {
	table := hostTable()
	table.Definitions = define(t, "own-net=net")
	section, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecording(t, 0)
	r.add(inside(5, 5, map[container.Namespace]uint64{container.NetNS: 10}), threadSample(5, 5, 1))
	if err := r.w.FinishRound(); err != nil {
		t.Fatal(err)
	}
	if err := r.w.WriteGantry(section); err != nil {
		t.Fatal(err)
	}
	r.add(threadSample(5, 5, 2))
	// The recorder is killed: the file has neither size nor features.
	if err := r.w.FinishRound(); err != nil {
		t.Fatal(err)
	}
	rd, err := perfdata.NewReader(bytes.NewReader(r.f.b), int64(len(r.f.b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewSession(rd, nil).Collect(CollectOptions{Definitions: []string{"own-net"}, Symbols: true, Addresses: true})
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]profile.Identity{}
	for s := range p.Samples() {
		got[p.Frame(p.Stack(s.Stack)[0]).Addr] = p.Labels(s.Labels).Identities.Under("own-net")
	}
	// The first one may be of a time when nothing was known yet.
	if want := (profile.Identity{Definition: "own-net", ID: "net:10"}); got[2] != want {
		t.Errorf("%+v", got)
	}
}

// A recording changes its table of containers so often and no more: each is read
// as a whole.
func TestTablesAreBounded(t *testing.T) {
	r := newRecording(t, 0)
	const more = maxTables + 5
	for i := range more {
		table := hostTable()
		table.AddCgroup(container.CgroupID(100+i), fmt.Sprintf("/system.slice/unit%d.service", i))
		section, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.w.WriteGantry(section); err != nil {
			t.Fatal(err)
		}
		r.add(sample(1, uint64(i)))
		if err := r.w.FinishRound(); err != nil {
			t.Fatal(err)
		}
	}
	rd, err := perfdata.NewReader(bytes.NewReader(r.f.b), int64(len(r.f.b)), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSession(rd, nil)
	samples := 0
	for {
		item, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if item.Sample != nil {
			samples++
		}
	}
	if samples != more || s.tablesRead != maxTables {
		t.Errorf("%d samples, want %d; %d tables were read, want %d", samples, more, s.tablesRead, maxTables)
	}
	known := make(map[container.CgroupID]bool)
	for _, c := range s.Containers.Cgroups() {
		known[c.ID] = true
	}
	// The reader is ahead of the session, which may have missed the first.
	if len(known) != maxTables || known[100+more-1] {
		t.Errorf("cgroups of the tables that were read: %v", known)
	}
}
