// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"testing"
)

func mustDefine(t *testing.T, text string) *Definition {
	t.Helper()
	d, err := ParseDefinition(text)
	if err != nil {
		t.Fatal(err)
	}
	return &d
}

func TestJudge(t *testing.T) {
	host := Namespaces{1, 2, 3, 4, 5, 6, 7, 8}
	inner := Namespaces{10, 20, 30, 40, 50, 60, 70, 80}
	tab := Table{Host: host}
	tab.AddCgroup(20, "/jobs/a")
	tab.AddCgroup(21, "/jobs/a/b")
	for _, tt := range []struct {
		def  string
		task Task
		want Membership
		text string
	}{
		{"x=net,ipc", Task{Namespaces: inner}, Inside, "net:10,ipc:30"},
		{"x=ipc,net", Task{Namespaces: inner}, Inside, "ipc:30,net:10"},
		{"x=net,ipc", Task{Namespaces: host}, Outside, ""},
		{"x=net,ipc", Task{Namespaces: Namespaces{NetNS: 10, IPCNS: 3}}, Outside, ""},
		{"x=net,ipc", Task{Namespaces: Namespaces{NetNS: 10}}, Unknown, ""},
		{"x=net,ipc", Task{Namespaces: Namespaces{IPCNS: 3}}, Outside, ""},
		{"x=net,ipc", Task{}, Unknown, ""},
		{"x=uts,ipc,mnt,pid,net,cgroup", Task{Namespaces: inner}, Inside,
			"uts:20,ipc:30,mnt:60,pid:40,net:10,cgroup:70"},
		{"x=user,time", Task{Namespaces: inner}, Inside, "user:50,time:80"},
		{"x=cgroup=/jobs/*", Task{Cgroup: 21}, Inside, "cgroup:/jobs/a"},
		{"x=cgroup=/jobs/*", Task{CgroupPath: "/jobs/c/d"}, Inside, "cgroup:/jobs/c"},
		{"x=cgroup=/jobs/*", Task{Cgroup: 99}, Unknown, ""},
		{"x=cgroup=/jobs/*", Task{CgroupPath: "/"}, Outside, ""},
		{"x=cgroup;cgroup=/jobs/*", Task{Cgroup: 20, Namespaces: inner}, Inside, "cgroup:70,cgroup:/jobs/a"},
		{"x=pid;cgroup=/jobs/*", Task{Cgroup: 20, Namespaces: host}, Outside, ""},
		{"x=pid;cgroup=/jobs/*", Task{Cgroup: 20}, Unknown, ""},
		{"x=pid;cgroup=/jobs/*", Task{CgroupPath: "/x"}, Outside, ""},
		{"x=pid;cgroup=/x;cgroup=/jobs/*", Task{Cgroup: 21, Namespaces: inner}, Inside, "pid:40,cgroup:/jobs/a"},
	} {
		d := mustDefine(t, tt.def)
		id, m := tab.Judge(d, &tt.task)
		if m != tt.want || d.Text(id) != tt.text || (id == Identity{}) != (m != Inside) {
			t.Errorf("%s, %+v: %+v, %v", tt.def, tt.task, id, m)
		}
	}
	id, _ := tab.Identify(mustDefine(t, "x=cgroup=/jobs/*"), &Task{Cgroup: 21})
	if want := (Identity{Definition: "x", Cgroup: 20, CgroupPath: "/jobs/a"}); id != want {
		t.Errorf("%+v", id)
	}
}

// TestIdentifyAll: a task has an identity under each definition that it matches.
func TestIdentifyAll(t *testing.T) {
	tab := Table{Host: Namespaces{1, 2, 3, 4, 5, 6, 7, 8}}
	defs := BuiltIn()
	if err := defs.Add(*mustDefine(t, "host-net=uts,ipc")); err != nil {
		t.Fatal(err)
	}
	got := tab.IdentifyAll(defs, &Task{Namespaces: Namespaces{1, 20, 30, 40, 5, 60, 70, 8}})
	want := []Identity{
		{Definition: "container", Namespaces: Namespaces{PIDNS: 40, MntNS: 60}},
		{Definition: "kernel-default", Namespaces: Namespaces{PIDNS: 40, CgroupNS: 70}},
		{Definition: "host-net", Namespaces: Namespaces{UTSNS: 20, IPCNS: 30}},
	}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v", got[i])
		}
	}
}

func TestParseIdentity(t *testing.T) {
	for text, want := range map[string]Identity{
		"net:10,ipc:30":             {Namespaces: Namespaces{NetNS: 10, IPCNS: 30}},
		"ipc:30,net:10":             {Namespaces: Namespaces{NetNS: 10, IPCNS: 30}},
		"cgroup:7":                  {Namespaces: Namespaces{CgroupNS: 7}},
		"cgroup:/a,net:5":           {CgroupPath: "/a,net:5"},
		"net:5,cgroup:/":            {Namespaces: Namespaces{NetNS: 5}, CgroupPath: "/"},
		"net:5,cgroup:8,cgroup:/a":  {Namespaces: Namespaces{NetNS: 5, CgroupNS: 8}, CgroupPath: "/a"},
		"cgroup:#9":                 {Cgroup: 9},
		"time:18446744073709551615": {Namespaces: Namespaces{TimeNS: 1<<64 - 1}},
	} {
		if got, err := ParseIdentity(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "net", "net:", "net:0", "net:-1", "net:+1", "net:1,", ",net:1", "net:1,net:2",
		"nets:1", "net:1 ", "net:#1",
		"cgroup:", "cgroup:a", "cgroup:#", "cgroup:#1,net:1", "net:18446744073709551616", "cgroup:#1,cgroup:/a", "/a",
		"web"} {
		if got, err := ParseIdentity(bad); !errors.Is(err, ErrIdentity) || got != (Identity{}) {
			t.Errorf("%q: %+v, %v", bad, got, err)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	for _, s := range []string{"net:10,ipc:30", "pid:1,cgroup:2,cgroup:/a,b", "cgroup:#7", "time:1"} {
		f.Add(s)
	}
	d := Definition{Namespaces: []Namespace{TimeNS, NetNS, UTSNS, CgroupNS, IPCNS, PIDNS, UserNS, MntNS}}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseIdentity(text)
		if (id == Identity{}) != (err != nil) {
			t.Fatalf("%q: %+v, %v", text, id, err)
		}
		if err != nil {
			return
		}
		if again, err := ParseIdentity(d.Text(id)); err != nil || again != id {
			t.Fatalf("%q: %q: %+v, %v", text, d.Text(id), again, err)
		}
	})
}

func TestSelector(t *testing.T) {
	defs := BuiltIn()
	pod := Identity{Definition: "pod", Namespaces: Namespaces{NetNS: 10, IPCNS: 30}}
	job := Identity{Definition: "job", Cgroup: 9, CgroupPath: "/jobs/a"}
	for _, tt := range []struct {
		text     string
		pod, job bool
	}{
		{"pod:any", true, false}, {"pod:ipc:30,net:10", true, false}, {"net:10,ipc:30", true, false},
		{"net:10", true, false},
		{"net:11,ipc:30", false, false}, {"pod:net:10,ipc:31", false, false}, {"container:any", false, false},
		{"cgroup:/jobs/a", false, true}, {"cgroup:#9", false, true}, {"cgroup:/jobs", false, false},
		{"net:10,pid:4", false, false},
	} {
		sel, ok := defs.ParseSelector(tt.text)
		if !ok || sel.Matches(&pod) != tt.pod || sel.Matches(&job) != tt.job {
			t.Errorf("%s: %+v, %v", tt.text, sel, ok)
		}
	}
	for _, not := range []string{"", "web", "pod", "pod:", "pod:web", "nginx:any", "nginx:1.25", "job:any", "any"} {
		if sel, ok := defs.ParseSelector(not); ok {
			t.Errorf("%s: %+v", not, sel)
		}
	}
}

// TestBare: a bare identity means the tasks that are there, whatever else a
// definition says.
func TestBare(t *testing.T) {
	var tab Table
	for n := range NumNS {
		tab.Host[n] = uint64(n) + 1
	}
	task := Task{CgroupPath: `/a*/[b]\?/c`, Namespaces: Namespaces{10, 20, 30, 40, 50, 60, 70, 80}}
	for text, want := range map[string]bool{"net:10": true, "ipc:30,net:10": true, "net:11": false,
		"net:10,ipc:31":    false,
		`cgroup:/a*/[b]\?`: true, `uts:20,cgroup:/a*/[b]\?`: true, `cgroup:/ab/[b]\?`: false, "cgroup:/a*/b": false,
		"cgroup:70": true} {
		sel, ok := BuiltIn().ParseSelector(text)
		if !ok {
			t.Fatal(text)
		}
		d, ok := sel.Bare()
		id, in := tab.Identify(&d, &task)
		id.Definition = ""
		if got := in && sel.Matches(&id); !ok || got != want {
			t.Errorf("%s: %v, %+v", text, d.String(), id)
		}
	}
	for _, text := range []string{"pod:any", "pod:net:1,ipc:2", "cgroup:#4"} {
		sel, _ := BuiltIn().ParseSelector(text)
		if d, ok := sel.Bare(); ok {
			t.Errorf("%s: %v", text, d)
		}
	}
}
