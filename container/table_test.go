// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTableFallback(t *testing.T) {
	var tab Table
	tab.AddCgroup(1, "/")
	tab.AddCgroup(10, "/docker")
	tab.AddCgroup(12, "/docker/"+hexA+"/init") // the child is seen first
	tab.AddCgroup(11, "/docker/"+hexA)
	tab.AddCgroup(13, "/gantry-demo/a/sub")
	tab.AddCgroup(14, "/system.slice/nginx.service")

	for id, want := range map[CgroupID]string{
		1: "/", 10: "/docker", 11: hexA[:12], 12: hexA[:12], 13: "/gantry-demo/a/sub", 14: "nginx.service",
		99: "cgroup:99",
	} {
		if got := tab.Label(id); got != want {
			t.Errorf("label of %d: %q, want %q", id, got, want)
		}
	}
	if c := tab.ByCgroup(12); c == nil || c.CgroupID != 11 || c.Runtime != "docker" {
		t.Errorf("%+v", c)
	}
	// Names arrive late: by id from Docker, by path from runc.
	tab.Add(Container{ID: hexA, Name: "web", Image: "nginx:1.25"})
	tab.Add(Container{ID: "a", Name: "a", Runtime: "runc", CgroupPath: "/gantry-demo/a"})
	tab.AddCgroup(15, "/gantry-demo/a")
	if got := tab.Label(12); got != "web" {
		t.Errorf("%q", got)
	}
	for _, id := range []CgroupID{13, 15} {
		if c := tab.ByCgroup(id); c == nil || c.Name != "a" || c.CgroupID != 15 {
			t.Errorf("%d: %+v", id, c)
		}
	}
	if n := len(tab.Containers()); n != 3 {
		t.Errorf("%d containers", n)
	}
}

func TestTableMerge(t *testing.T) {
	var tab Table
	tab.AddCgroup(5, "/system.slice/docker-"+hexA+".scope")
	labels := map[string]string{"a": "1"}
	c := tab.Add(Container{ID: hexA, Name: "old", Runtime: "runc", PID: 7, StartTime: 70, Labels: labels})
	labels["a"] = "changed by the caller"
	tab.Add(Container{ID: hexA, Name: "new", Labels: map[string]string{"b": "2"},
		Namespaces: Namespaces{PIDNS: 3, MntNS: 4}})
	want := Container{ID: hexA, Name: "new", Runtime: "docker", PID: 7, StartTime: 70, CgroupID: 5,
		CgroupPath: "/system.slice/docker-" + hexA + ".scope", Labels: map[string]string{"a": "1", "b": "2"},
		Namespaces: Namespaces{PIDNS: 3, MntNS: 4}}
	if diff := cmp.Diff(want, *c); diff != "" {
		t.Error(diff)
	}
	if tab.ByNamespaces(Namespaces{PIDNS: 3, MntNS: 4, NetNS: 9}) != c ||
		tab.ByNamespaces(Namespaces{PIDNS: 3}) != nil {
		t.Error("lookup by namespaces")
	}
	// A runtime's own word beats systemd's view of the same cgroup.
	tab.AddCgroup(6, "/system.slice/runc-x.scope")
	u := tab.ByCgroup(6)
	if u.Kind != KindUnit {
		t.Errorf("%+v", u)
	}
	tab.Add(Container{ID: "x", Name: "x", Runtime: "runc", CgroupID: 6})
	if u.Kind != KindContainer || u.ID != "x" || u.Runtime != "runc" || tab.ByCgroup(6) != u {
		t.Errorf("%+v", u)
	}
	if len(tab.Containers()) != 2 {
		t.Errorf("%d containers", len(tab.Containers()))
	}
}

func TestTableReuse(t *testing.T) {
	var tab Table
	tab.AddCgroup(5, "/x/a")
	tab.Add(Container{ID: "a", Name: "first", CgroupID: 5, StartTime: 100})
	tab.Add(Container{ID: "b", Name: "second", CgroupID: 5, StartTime: 300})
	tab.Add(Container{ID: "a", Name: "again", CgroupID: 5, StartTime: 500})
	for at, want := range map[uint64]string{0: "first", 100: "first", 299: "first", 300: "second", 499: "second",
		500: "again", 900: "again"} {
		if c := tab.ByCgroupAt(5, at); c == nil || c.Name != want {
			t.Errorf("at %d: %+v, want %s", at, c, want)
		}
	}
	if c := tab.ByCgroup(5); c.Name != "again" {
		t.Errorf("%+v", c)
	}
	tab.AddCgroup(6, "/x/a/below")
	if c := tab.ByCgroupAt(6, 350); c.Name != "second" {
		t.Errorf("%+v", c)
	}
}

// TestTableRestart has one Docker container that is started again, in a new
// cgroup of the same path.
func TestTableRestart(t *testing.T) {
	var tab Table
	tab.AddCgroup(5, "/docker/"+hexA)
	tab.Add(Container{ID: hexA, CgroupID: 5, PID: 7, StartTime: 100})
	tab.AddCgroup(8, "/docker/"+hexA)
	tab.Add(Container{ID: hexA, Name: "web"})
	if n := len(tab.Containers()); n != 2 || tab.Label(5) != "web" || tab.Label(8) != "web" ||
		tab.ByCgroup(5) == tab.ByCgroup(8) {
		t.Errorf("%d containers, %s, %s", n, tab.Label(5), tab.Label(8))
	}
}

func TestTableManySameID(t *testing.T) {
	var tab Table
	for i := range 20000 {
		tab.AddCgroup(CgroupID(i+1), fmt.Sprintf("/p%d/docker/%s", i, hexA))
	}
	if got := tab.ByCgroup(20000); got == nil || got.CgroupPath != "/p19999/docker/"+hexA {
		t.Errorf("%+v", got)
	}
}

func TestMatch(t *testing.T) {
	var tab Table
	tab.Add(Container{ID: hexA, Name: "web", Image: "docker.io/library/nginx:1.25", Pod: "web-0", PodNamespace: "prod",
		PodUID: uid, CgroupPath: "/k/a"})
	tab.Add(Container{ID: hexB, Name: "side", Image: "reg:5000/team/side@sha256:0", Pod: "web-0", PodNamespace: "prod",
		CgroupPath: "/k/b"})
	tab.Add(Container{ID: "0123zz", Name: "z", CgroupPath: "/k/z"})
	tab.AddCgroup(7, "/system.slice/redis.service")
	for _, tt := range []struct{ sel, want string }{
		{"web", "web"}, {"web-0", "web side"}, {"prod/web-0", "web side"}, {uid, "web"}, {"web-0/side", "side"},
		{hexA, "web"}, {hexA[:3], "web"}, {hexA[:12], "web"}, {"0123z", "z"},
		{"nginx", "web"}, {"nginx:1.25", "web"}, {"library/nginx", "web"}, {"docker.io/library/nginx:1.25", "web"},
		{"team/side", "side"}, {"reg:5000/team/side", "side"}, {"/k/z", "z"}, {"/k/z/", "z"}, {"/k", "web side z"},
		{"redis", "redis.service"}, {"redis.service", "redis.service"},
	} {
		list, err := tab.Select(ByName(tt.sel))
		var names []string
		for _, c := range list {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.sel, got, err, tt.want)
		}
	}
	for sel, want := range map[string]error{"": ErrNoMatch, "nope": ErrNoMatch, "8f": ErrNoMatch, "inx": ErrNoMatch,
		"0123": ErrAmbiguous, "nginx:1": ErrNoMatch, "reg:5000": ErrNoMatch} {
		if list, err := tab.Select(ByName(sel)); !errors.Is(err, want) || list != nil {
			t.Errorf("%q: %v, %v", sel, list, err)
		}
	}
}

func TestIdentify(t *testing.T) {
	host := Namespaces{1, 2, 3, 4, 5, 6, 7, 8}
	inner := Namespaces{1, 2, 3, 40, 5, 60, 7, 8}
	tab := Table{Host: host}
	tab.AddCgroup(20, "/docker/"+hexA)
	tab.AddCgroup(21, "/docker/"+hexA+"/x")
	tab.AddCgroup(22, "/system.slice/nginx.service")
	def := Default()
	runtime := Identity{Definition: "container", Cgroup: 20, CgroupPath: "/docker/" + hexA}
	for _, tt := range []struct {
		name string
		task Task
		want Identity
	}{
		{"host", Task{Cgroup: 1, Namespaces: host}, Identity{}},
		{"unit", Task{Cgroup: 22, Namespaces: host}, Identity{}},
		{"runtime's cgroup, host namespaces", Task{Cgroup: 20, Namespaces: host}, runtime},
		{"below it", Task{Cgroup: 21, Namespaces: inner}, runtime},
		{"by path", Task{CgroupPath: "/docker/" + hexA + "/new", Namespaces: inner}, runtime},
		{"namespaces only", Task{Cgroup: 22, Namespaces: inner},
			Identity{Definition: "container", Namespaces: Namespaces{PIDNS: 40, MntNS: 60}}},
		{"one namespace only", Task{Namespaces: Namespaces{1, 2, 3, 40, 5, 6, 7, 8}}, Identity{}},
		{"unknown namespace", Task{Namespaces: Namespaces{PIDNS: 40}}, Identity{}},
	} {
		got, ok := tab.Identify(&def, &tt.task)
		if got != tt.want || ok != (tt.want != Identity{}) {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
	pod := Definition{Name: "pod", Namespaces: []Namespace{NetNS, IPCNS}}
	if id, ok := tab.Identify(&pod, &Task{Cgroup: 20, Namespaces: Namespaces{10, 2, 30, 4, 5, 6, 7, 8}}); !ok ||
		id != (Identity{Definition: "pod", Namespaces: Namespaces{NetNS: 10, IPCNS: 30}}) {
		t.Errorf("%+v, %v", id, ok)
	}
}

func sampleTable() *Table {
	tab := &Table{Host: Namespaces{PIDNS: 4026531836, MntNS: 4026531841}, Definitions: BuiltIn()}
	if err := tab.Definitions.Add(Definition{Name: "vm", Namespaces: []Namespace{UTSNS, PIDNS},
		Cgroups: []string{"/vm/*"}}); err != nil {
		panic(err)
	}
	tab.AddCgroup(5, "/docker/"+hexA)
	tab.AddCgroup(9, "/system.slice/ssh.service")
	tab.Add(Container{ID: hexA, Name: "web", Image: "nginx", Pod: "p", PodNamespace: "n", PodUID: uid,
		Labels:     map[string]string{"k": "v"},
		Namespaces: Namespaces{PIDNS: 7, MntNS: 8}, PID: 12, StartTime: 120,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)})
	tab.BootOffset = 5
	tab.Lost = Lost{CPUs: map[int]LostCount{1: {Records: 3, Samples: 2}},
		Cgroups: map[CgroupID]LostCount{5: {Records: 1}}}
	return tab
}

func TestTableJSON(t *testing.T) {
	tab := sampleTable()
	text, err := json.Marshal(tab)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"host_namespaces":{"mnt":4026531841,"pid":4026531836},"definitions":[{"name":"vm","namespaces":["uts","pid"],"cgroups":["/vm/*"]}],"containers":[{"id":"` + hexA +
		`","name":"web","runtime":"docker","image":"nginx","pod":"p","pod_namespace":"n","pod_uid":"` + uid +
		`","cgroup":5,"cgroup_path":"/docker/` + hexA +
		`","namespaces":{"mnt":8,"pid":7},"labels":{"k":"v"},"pid":12,"start_time":120,"created":"2026-01-02T03:04:05.000000006Z"},` +
		`{"kind":"unit","id":"ssh.service","name":"ssh.service","runtime":"systemd","cgroup":9,"cgroup_path":"/system.slice/ssh.service"}],` +
		`"cgroups":[{"id":5,"path":"/docker/` + hexA + `"},{"id":9,"path":"/system.slice/ssh.service"}],` +
		`"boot_offset_ns":5,"lost":{"cpus":{"1":{"records":3,"samples":2}},"cgroups":{"5":{"records":1}}}}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Error(diff)
	}
	var back Table
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tab.Lost, back.Lost); diff != "" {
		t.Error(diff)
	}
	if back.Label(5) != "p/web" || back.Label(9) != "ssh.service" || back.Path(9) != "/system.slice/ssh.service" ||
		back.Host != tab.Host || back.BootOffset != 5 ||
		!slices.EqualFunc(back.Definitions, tab.Definitions.Custom(),
			func(a, b Definition) bool { return a.Equal(&b) }) {
		t.Errorf("%+v", back)
	}
}

func TestTableJSONBad(t *testing.T) {
	var tab Table
	if err := json.Unmarshal([]byte(`{"version":1,"future":[1,2],"containers":[{"id":"a","more":{}}],"lost":{"new":1}}`), &tab); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(`{"version":2}`), &tab); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	// What a newer gantry has built in is left to it.
	if err := json.Unmarshal([]byte(`{"version":1,"definitions":[{"name":"pod","namespaces":["uts"]}]}`),
		&tab); err != nil {
		t.Error(err)
	} else if defs := BuiltIn().With(tab.Definitions); defs.Find("pod").Rule() != "net,ipc" {
		t.Errorf("%v", defs)
	}
	if err := json.Unmarshal([]byte(`{"version":1,"containers":[{"id":"a"}]}`), &tab); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{}`, `[]`, `{"version":-1}`, `{"version":1,"containers":[null]}`,
		`{"version":1,"cgroups":[{"id":0,"path":"/"}]}`,
		`{"version":1,"cgroups":[{"id":3}]}`,
		`{"version":1,"containers":[{"name":"` + strings.Repeat("x", maxText+1) + `"}]}`,
		`{"version":1,"definitions":[{"name":"a"}]}`,
		`{"version":1,"definitions":[{"name":"a","namespaces":["net"]},{"name":"a","namespaces":["ipc"]}]}`,
		`{"version":1,"definitions":[{}]}`,
		`{"version":1,"definitions":[{"name":"a","namespaces":["net","net"]}]}`,
		`{"version":1,"definitions":[{"name":"pid","namespaces":["net"]}]}`,
		`{"version":1,"containers":[` + strings.Repeat(`{},`, maxContainers) + `{}]}`} {
		if err := json.Unmarshal([]byte(bad), &tab); err == nil {
			t.Errorf("%.60s is taken", bad)
		}
	}
	if tab.Containers()[0].ID != "a" {
		t.Error("a bad table replaced a good one")
	}
}

func FuzzTableJSON(f *testing.F) {
	seed, err := json.Marshal(sampleTable())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte(`{"version":1,"containers":[{"cgroup":1,"start_time":2},{"cgroup":1,"start_time":1}],"cgroups":[{"id":1,"path":"\u0000"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var a, b Table
		if json.Unmarshal(text, &a) != nil {
			if len(a.Containers()) != 0 || len(a.Cgroups()) != 0 {
				t.Fatal("value and error")
			}
			return
		}
		first, err := json.Marshal(&a)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(first, &b); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		second, err := json.Marshal(&b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("\n%s\n%s", first, second)
		}
		for _, c := range a.Cgroups() {
			if strings.ContainsAny(a.Label(c.ID), "\x1b\n\x00") {
				t.Fatalf("label %q", a.Label(c.ID))
			}
		}
	})
}
