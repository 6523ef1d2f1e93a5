// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

func TestContainerLabels(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	var table container.Table
	table.Host[container.PIDNS], table.Host[container.MntNS] = 1, 2
	table.AddCgroup(100, "/demo/web")
	table.Add(container.Container{ID: "web-id", Name: "web", Runtime: "runc", Image: "shop:1", CgroupID: 100, CgroupPath: "/demo/web"})
	byNS := container.Container{ID: "ns-id", Name: "bynamespace"}
	byNS.Namespaces[container.PIDNS], byNS.Namespaces[container.MntNS] = 11, 12
	table.Add(byNS)
	gantry, err := json.Marshal(&table)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecording(t, perf.SampleCgroup)
	in := func(pid int32, cgroup uint64) *perf.Sample {
		s := sample(pid, 0x1000)
		s.Cgroup = cgroup
		return s
	}
	r.add(
		&perf.Cgroup{ID: 200, Path: "/docker/" + id}, &perf.Cgroup{ID: 101, Path: "/demo/web/sub"},
		&perf.Cgroup{ID: 300, Path: "/system.slice/ssh.service"},
		in(1, 100), in(1, 101), in(2, 200), in(3, 300), in(4, 999), in(5, 0),
		&perf.Namespaces{PID: 5, TID: 5, Links: nsLinks(11, 12)}, in(5, 0),
	)
	s := r.open(&perfdata.Features{Gantry: gantry}, nil)
	p, err := s.Collect(CollectOptions{Fields: profile.FieldContainer | profile.FieldImage | profile.FieldCgroup})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{
		"web|shop:1|/demo/web: ":           1,
		"web|shop:1|/demo/web/sub: ":       1,
		id[:12] + "||/docker/" + id + ": ": 1,
		"||/system.slice/ssh.service: ":    1,
		"-||: ":                            2,
		"bynamespace||: ":                  1,
	}
	got := rows(p, func(l *profile.Labels) string { return l.Container + "|" + l.Image + "|" + l.Cgroup })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestReusedCgroupPath: a container was started again at the path of another,
// with a new cgroup. A cgroup below the first one's stays with it, and start
// times are by another clock than samples.
func TestReusedCgroupPath(t *testing.T) {
	const slept = 1_000_000
	var table container.Table
	table.BootOffset = slept
	table.AddCgroup(11, "/demo/web")
	table.AddCgroup(12, "/demo/web/sub")
	table.Add(container.Container{ID: "a", Name: "first", CgroupID: 11, StartTime: slept + 1000})
	table.AddCgroup(21, "/demo/web")
	table.AddCgroup(22, "/demo/web/sub")
	table.Add(container.Container{ID: "b", Name: "second", CgroupID: 21, StartTime: slept + 4000})
	for _, c := range []struct {
		id    string
		start uint64
	}{{"c", 1000}, {"d", 4000}} {
		ns := container.Container{ID: c.id, Name: c.id, StartTime: slept + c.start}
		ns.Namespaces[container.PIDNS], ns.Namespaces[container.MntNS] = 51, 52
		table.Add(ns)
	}
	gantry, err := json.Marshal(&table)
	if err != nil {
		t.Fatal(err)
	}
	in := func(pid int32, cgroup uint64) *perf.Sample {
		s := sample(pid, 0x1000)
		s.Cgroup = cgroup
		return s
	}
	r := newRecording(t, perf.SampleCgroup)
	r.add(in(1, 12), in(2, 11), in(3, 22), in(4, 21))
	r.add(&perf.Namespaces{PID: 5, TID: 5, Links: nsLinks(51, 52)}, in(5, 0))
	s := r.open(&perfdata.Features{Gantry: gantry}, nil)
	p, err := s.Collect(CollectOptions{Fields: profile.FieldContainer | profile.FieldPID})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int32]string)
	for sm := range p.Samples() {
		l := p.Labels(sm.Labels)
		got[l.PID] = l.Container
	}
	want := map[int32]string{1: "first", 2: "first", 3: "second", 4: "second", 5: "d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestUnnamedContainers: a task that nobody named is not the host's for that.
func TestUnnamedContainers(t *testing.T) {
	namespaces := func(pid int32, pidNS, mnt uint64) perf.Record {
		return &perf.Namespaces{PID: pid, TID: pid, Links: nsLinks(pidNS, mnt)}
	}
	in := func(pid int32, cgroup uint64) *perf.Sample {
		s := sample(pid, 0x1000)
		s.Cgroup = cgroup
		return s
	}
	r := newRecording(t, perf.SampleCgroup)
	r.add(
		namespaces(1, 1, 2), // the host's
		&perf.Cgroup{ID: 7, Path: "/"}, &perf.Cgroup{ID: 8, Path: "/runs/a"}, &perf.Cgroup{ID: 9, Path: "/user.slice"},
		&perf.Cgroup{ID: 10, Path: "/system.slice/cron.service"},
		namespaces(11, 21, 22), in(11, 8), // differs in both, has a cgroup
		namespaces(12, 31, 32), in(12, 7), // has none of its own
		namespaces(13, 1, 42), in(13, 8), // a service with private mounts
		in(14, 7), in(15, 8), in(16, 9), in(17, 10), in(18, 0), // nothing but the cgroup, or nothing
	)
	p, err := r.open(nil, nil).Collect(CollectOptions{Fields: profile.FieldContainer | profile.FieldPID})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[int32]string)
	for s := range p.Samples() {
		l := p.Labels(s.Labels)
		got[l.PID] = l.Container
	}
	want := map[int32]string{11: "a", 12: "pid:31,mnt:32", 13: "", 14: "", 15: "/runs/a", 16: "", 17: "", 18: UnknownContainer}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func nsLinks(pid, mnt uint64) []perf.NSLink {
	l := make([]perf.NSLink, 7)
	l[perf.NSPID].Ino, l[perf.NSMnt].Ino = pid, mnt
	return l
}

func TestHostileContainerTable(t *testing.T) {
	r := newRecording(t, 0)
	r.add(sample(1, 0x1000))
	s := r.open(&perfdata.Features{Gantry: []byte(`{"version":99}`)}, nil)
	if _, err := s.Collect(CollectOptions{Fields: profile.FieldContainer}); err != nil {
		t.Fatal(err)
	}
	if w := s.Warnings(); len(w) != 1 || !strings.Contains(w[0], "newer version") {
		t.Errorf("warnings %q", w)
	}
}
