// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFind looks at processes of the host, of two containers of a pod, and of
// one with the network of the host.
func TestFind(t *testing.T) {
	f := newFixture(t, "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.cgroup("/sys/fs/cgroup/jobs/a", "7\n")
	f.cgroup("/sys/fs/cgroup/jobs/b", "8\n9\n")
	f.proc(7, 1, "0::/jobs/a\n", 1000)
	f.proc(8, 1, "0::/jobs/b\n", 2000)
	f.proc(9, 2, "0::/jobs/b/c\n", 2000)
	f.proc(10, 10, "0::/\n", 3000)
	f.proc(11, 11, "0::/\n", 0)
	set := func(pid string, kind Namespace, target string) {
		link := filepath.Join(f.root, "proc", pid, "ns", kind.String())
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []string{"8", "9"} {
		set(pid, NetNS, "net:[1100]") // those of 7
		set(pid, IPCNS, "ipc:[1102]")
	}
	set("10", NetNS, "net:[100]") // the host's
	r, warnings := f.refresh()
	if warnings != nil {
		t.Error(warnings)
	}
	r.Table().Add(Container{ID: "a", Name: "app", Pod: "shop", CgroupPath: "/jobs/a",
		Namespaces: Namespaces{NetNS: 1100, IPCNS: 1102}})
	defs := BuiltIn()
	for _, text := range []string{"job=cgroup=/jobs/*", "six=uts,ipc,mnt,pid,net,cgroup"} {
		if err := defs.Add(*mustDefine(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	found, err := r.Find(context.Background(), defs)
	if err != nil {
		t.Fatal(err)
	}
	type one struct {
		def, name, text string
	}
	got := make(map[one][]int)
	for _, x := range found {
		d := defs.Find(x.Identity.Definition)
		got[one{d.Name, x.Name, d.Text(x.Identity)}] = x.PIDs
	}
	want := map[one][]int{
		{"pod", "shop", "net:1100,ipc:1102"}:                                    {7, 8, 9},
		{"container", "shop/app", "cgroup:/jobs/a"}:                             {7},
		{"container", "", "pid:2103,mnt:2105"}:                                  {8, 9},
		{"container", "", "pid:3103,mnt:3105"}:                                  {10},
		{"kernel-default", "", "pid:1103,cgroup:1106"}:                          {7},
		{"kernel-default", "", "pid:2103,cgroup:2106"}:                          {8, 9},
		{"kernel-default", "", "pid:3103,cgroup:3106"}:                          {10},
		{"job", "shop/app", "cgroup:/jobs/a"}:                                   {7},
		{"job", "", "cgroup:/jobs/b"}:                                           {8, 9},
		{"six", "", "uts:1101,ipc:1102,mnt:1105,pid:1103,net:1100,cgroup:1106"}: {7},
		{"six", "", "uts:2101,ipc:1102,mnt:2105,pid:2103,net:1100,cgroup:2106"}: {8, 9},
	}
	for k, pids := range want {
		if !slices.Equal(got[k], pids) {
			t.Errorf("%v: %v, want %v", k, got[k], pids)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}
