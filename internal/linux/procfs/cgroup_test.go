// SPDX-License-Identifier: Apache-2.0

package procfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func TestParseCgroups(t *testing.T) {
	const text = "9:name=systemd:/\n4:cpu,cpuacct:/a:b\n0::/user.slice/x y (deleted)\n"
	got, err := ParseCgroups(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Cgroup{
		{Hierarchy: 9, Controllers: []string{"name=systemd"}, Path: "/"},
		{Hierarchy: 4, Controllers: []string{"cpu", "cpuacct"}, Path: "/a:b"},
		{Path: "/user.slice/x y", Deleted: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for path, want := range map[string]bool{"/": false, "/..": true, "/../a": true, "/..a": false, "/a/..": false} {
		if c := (Cgroup{Path: path}); c.Outside() != want {
			t.Errorf("%s: outside %v", path, !want)
		}
	}
	for _, bad := range []string{"x", "0:/", "0::a", "0:cpu:/", "1::/", "-1:cpu:/", "99999999999:cpu:/"} {
		if got, err := ParseCgroups(strings.NewReader(bad)); !errors.Is(err, errCgroup) || got != nil {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
}

func FuzzCgroups(f *testing.F) {
	f.Add([]byte("9:name=systemd:/\n4:cpu,cpuacct:/a:b\n0::/user.slice/x y (deleted)\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ParseCgroups(bytes.NewReader(text))
		if err != nil {
			if list != nil {
				t.Fatal("value and error")
			}
			return
		}
		var b bytes.Buffer
		for _, c := range list {
			fmt.Fprintf(&b, "%d:%s:%s", c.Hierarchy, strings.Join(c.Controllers, ","), c.Path)
			if c.Deleted {
				b.WriteString(deletedSuffix)
			}
			b.WriteByte('\n')
		}
		again, err := ParseCgroups(&b)
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Fatal(err, diff)
		}
	})
}

func TestParseMountinfo(t *testing.T) {
	const text = "36 35 98:4294967295 /mnt\\0401 /a\\011b\\012c\\134d\\043 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n" +
		"41 31 0:38 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n" +
		"42 31 0:39 / /x\\9 rw - fuse  rw\n"
	got, err := ParseMountinfo(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []Mount{
		{ID: 36, Parent: 35, Major: 98, Minor: 4294967295, Root: "/mnt 1", Point: "/a\tb\nc\\d#", Options: []string{"rw", "noatime"},
			Type: "ext3", Source: "/dev/root", SuperOptions: []string{"rw", "errors=continue"}},
		{ID: 41, Parent: 31, Minor: 38, Root: "/../..", Point: "/sys/fs/cgroup", Options: []string{"rw"},
			Type: "cgroup2", Source: "cgroup2", SuperOptions: []string{"rw", "nsdelegate"}},
		{ID: 42, Parent: 31, Minor: 39, Root: "/", Point: `/x\9`, Options: []string{"rw"}, Type: "fuse", SuperOptions: []string{"rw"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"", "1 2 0:1 / / rw", "1 2 0:1 / / rw - a b", "1 2 01 / / rw - a b c", "x 2 0:1 / / rw - a b c"} {
		if got, err := ParseMountinfo(strings.NewReader(bad + "\n")); !errors.Is(err, errMount) || got != nil {
			t.Errorf("%q: %v, %v", bad, got, err)
		}
	}
	if _, err := New("").Self().Mounts(); err != nil {
		t.Error(err)
	}
}

// escapeOctal is the kernel's mangle().
func escapeOctal(s string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`, "#", `\043`).Replace(s)
}

func FuzzMountinfo(f *testing.F) {
	f.Add([]byte("36 35 98:0 /mnt\\0401 /a\\011b\\012c\\134d\\043 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n"))
	f.Add([]byte("42 31 0:39 / /x\\9\\ rw - fuse  rw"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := ParseMountinfo(bytes.NewReader(text))
		if err != nil {
			if list != nil {
				t.Fatal("value and error")
			}
			return
		}
		var b bytes.Buffer
		for i := range list {
			m := &list[i]
			fmt.Fprintf(&b, "%d %d %d:%d %s %s %s - %s %s %s\n", m.ID, m.Parent, m.Major, m.Minor, escapeOctal(m.Root), escapeOctal(m.Point),
				strings.Join(m.Options, ","), escapeOctal(m.Type), escapeOctal(m.Source), escapeOctal(strings.Join(m.SuperOptions, ",")))
		}
		again, err := ParseMountinfo(&b)
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Fatal(err, diff)
		}
	})
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("42 (a) R 1 (b\n) S 1 42 41 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 3 0 777 12345 67\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseStat(bytes.NewReader(text))
		if err != nil {
			if s != (Stat{}) {
				t.Fatalf("%+v and %v", s, err)
			}
			return
		}
		line := fmt.Sprintf("%d (%s) %c %d %d %d 0 0 %d 0 0 0 0 %d %d 0 0 0 0 %d 0 %d 0", s.PID, s.Comm, s.State,
			s.PPID, s.PGRP, s.Session, s.Flags, s.UTime, s.STime, s.NumThreads, s.StartTime)
		again, err := ParseStat(strings.NewReader(line))
		if err != nil || again != s {
			t.Fatalf("%+v, %+v, %v", s, again, err)
		}
	})
}

func TestCgroupTreesOf(t *testing.T) {
	mount := func(minor uint32, typ, root, point, super string) Mount {
		return Mount{Minor: minor, Type: typ, Root: root, Point: point, SuperOptions: strings.Split(super, ",")}
	}
	v2 := mount(1, "cgroup2", "/", "/sys/fs/cgroup", "rw,nsdelegate")
	cpu := mount(2, "cgroup", "/", "/sys/fs/cgroup/cpu", "rw,cpu,cpuacct")
	perf := mount(3, "cgroup", "/", "/sys/fs/cgroup/perf_event", "rw,perf_event,release_agent=/x")
	for _, tt := range []struct {
		name   string
		mounts []Mount
		mode   string
		perf   string
	}{
		{"none", nil, "none", ""},
		{"v2", []Mount{v2}, "v2", "/h/sys/fs/cgroup"},
		{"v1", []Mount{cpu, perf}, "v1", "/h/sys/fs/cgroup/perf_event"},
		{"v1 without perf", []Mount{cpu}, "v1", ""},
		{"hybrid", []Mount{cpu, v2}, "hybrid", "/h/sys/fs/cgroup"},
		{"hybrid, perf taken", []Mount{cpu, v2, perf}, "hybrid", "/h/sys/fs/cgroup/perf_event"},
		{"a part of the tree first", []Mount{mount(1, "cgroup2", "/docker/x", "/c", ""), v2}, "v2", "/h/sys/fs/cgroup"},
		{"the host's tree in a container", []Mount{v2, mount(1, "cgroup2", "/../..", "/host/cgroup", "")}, "v2", "/h/host/cgroup"},
	} {
		trees := newCgroupTrees(tt.mounts, "/h")
		got := ""
		if p := trees.Perf(); p != nil {
			got = p.Point
		}
		if trees.Mode.String() != tt.mode || got != tt.perf {
			t.Errorf("%s: %v, %s", tt.name, trees.Mode, got)
		}
	}
	systemd := mount(4, "cgroup", "/", "/sys/fs/cgroup/systemd", "rw,xattr,name=systemd")
	if f := newCgroupTrees([]Mount{systemd, cpu}, "").Fallback(); f == nil || f.Point != cpu.Point {
		t.Errorf("fallback %+v", f)
	}
	if f := newCgroupTrees([]Mount{systemd}, "").Fallback(); f == nil || f.Point != systemd.Point {
		t.Errorf("fallback %+v", f)
	}
	if f := newCgroupTrees([]Mount{v2}, "").Fallback(); f != nil {
		t.Errorf("fallback %+v", f)
	}
	trees := newCgroupTrees([]Mount{perf, v2}, "")
	list := []Cgroup{{Hierarchy: 3, Controllers: []string{"perf_event"}, Path: "/p"}, {Path: "/u"}}
	if c := trees.Perf().Of(list); c == nil || c.Path != "/p" {
		t.Errorf("%+v", c)
	}
	if c := trees.Trees[0].Of(list); c == nil || c.Path != "/u" {
		t.Errorf("%+v", c)
	}
}

func TestCgroupDir(t *testing.T) {
	for _, tt := range []struct{ root, path, want string }{
		{"/", "/", "/c"}, {"/", "/a/b", "/c/a/b"}, {"/docker/x", "/docker/x/y", "/c/y"}, {"/docker/x", "/docker/x", "/c"},
		{"/../..", "/../../kubepods", "/c/kubepods"},
		{"/", "/..", ""}, {"/", "/../x", ""}, {"/docker/x", "/docker/xy", ""}, {"/docker/x", "/", ""},
		{"/../..", "/../x", ""}, {"/..", "/../../x", ""},
	} {
		tree := CgroupTree{Point: "/c", Root: tt.root}
		got, err := tree.Dir(tt.path)
		if got != tt.want || errors.Is(err, ErrOutside) != (tt.want == "") {
			t.Errorf("%s in %s: %q, %v", tt.path, tt.root, got, err)
		}
	}
}

// TestCgroupFixture reads a host that is mounted elsewhere.
func TestCgroupFixture(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/1/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	write("proc/7/cgroup", "0::/a/b\n")
	write("sys/fs/cgroup/a/b/cgroup.procs", "7\n0\n8\n")
	write("sys/fs/cgroup/c/cgroup.procs", "")
	fsys := New(dir)
	trees, err := fsys.CgroupTrees()
	if err != nil {
		t.Fatal(err)
	}
	tree := trees.Perf()
	ids := make(map[string]uint64)
	var order []string
	if err := tree.Walk(func(id uint64, path string) error { ids[path] = id; order = append(order, path); return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/", "/a", "/a/b", "/c"}, order); diff != "" {
		t.Error(diff)
	}
	list, err := fsys.Proc(7).Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	if id, err := tree.ID(tree.Of(list).Path); err != nil || id != ids["/a/b"] {
		t.Errorf("%d, %v, want %d", id, err, ids["/a/b"])
	}
	if pids, err := tree.Procs("/a/b"); err != nil || !cmp.Equal(pids, []int{7, 0, 8}) {
		t.Errorf("%v, %v", pids, err)
	}
	if _, err := tree.ID("/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	stop := errors.New("stop")
	if err := tree.Walk(func(uint64, string) error { return stop }); err != stop {
		t.Error(err)
	}
}

func TestCgroupSelf(t *testing.T) {
	trees, err := New("").CgroupTrees()
	if err != nil {
		t.Fatal(err)
	}
	tree := trees.Perf()
	if tree == nil {
		testutil.Lacks(t, "no cgroup tree with perf_event is mounted (%v)", trees.Mode)
	}
	list, err := New("").Self().Cgroups()
	if err != nil {
		t.Fatal(err)
	}
	id, err := tree.ID(tree.Of(list).Path)
	if err != nil {
		testutil.Lacks(t, "own cgroup: %v", err)
	}
	found := false
	if err := tree.Walk(func(i uint64, _ string) error { found = found || i == id; return nil }); err != nil || !found {
		t.Errorf("own cgroup %d is not in the tree: %v", id, err)
	}
}
