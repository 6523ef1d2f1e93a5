// SPDX-License-Identifier: Apache-2.0

package container

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDefinition(t *testing.T) {
	for text, want := range map[string]Definition{
		"web=pid,net":   {Name: "web", Namespaces: []Namespace{PIDNS, NetNS}},
		"x-1.y_Z=time":  {Name: "x-1.y_Z", Namespaces: []Namespace{TimeNS}},
		"c=cgroup":      {Name: "c", Namespaces: []Namespace{CgroupNS}},
		"c=cgroup=/a":   {Name: "c", Cgroups: []string{"/a"}},
		"c=;cgroup=/a;": {Name: "c", Cgroups: []string{"/a"}},
		"c=mnt;cgroup=**/a": {Name: "c", Namespaces: []Namespace{MntNS},
			Cgroups: []string{"/**/a"}},
		`c=cgroup=/a\;b//c/`:                    {Name: "c", Cgroups: []string{"/a;b/c"}},
		`c=cgroup=/a\\;`:                        {Name: "c", Cgroups: []string{`/a\\`}},
		"c=cgroup=/**/**/a,b/[a-c]?;cgroup=/x*": {Name: "c", Cgroups: []string{"/**/a,b/[a-c]?", "/x*"}},
		"six=uts,ipc,mnt,pid,net,cgroup": {Name: "six",
			Namespaces: []Namespace{UTSNS, IPCNS, MntNS, PIDNS, NetNS, CgroupNS}},
	} {
		got, err := ParseDefinition(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v%s", text, err, diff)
		}
	}
}

func TestParseDefinitionErrors(t *testing.T) {
	for _, tt := range []struct {
		text   string
		kind   error
		offset int
	}{
		{"", ErrEmpty, 0}, {"web", ErrEmpty, 3}, {"web=", ErrEmpty, 4}, {"web=;", ErrEmpty, 4}, {"web=,", ErrEmpty, 4},
		{"web=pid,", ErrEmpty, 8}, {"web=pid,,net", ErrEmpty, 8}, {"web=pid,foo", ErrNamespace, 8},
		{"web=pid, net", ErrNamespace, 8},
		{"web=PID", ErrNamespace, 4}, {"web=pid,net,pid", ErrDuplicate, 12}, {"=pid", ErrName, 0},
		{"1a=pid", ErrName, 0},
		{"a b=pid", ErrName, 1}, {"a:b=pid", ErrName, 1}, {"größe=pid", ErrName, 2}, {"comm=pid", ErrName, 0},
		{"pid=pid", ErrName, 0},
		{"sym=pid", ErrName, 0}, {"any=pid", ErrName, 0}, {strings.Repeat("a", 64) + "=pid", ErrName, 63},
		{"a=pid;net", ErrNamespace, 6}, {"a=pid;;cgroup=/a", ErrNamespace, 6}, {"a=pid;cgroup=", ErrEmpty, 13},
		{"a=cgroup=/x;cgroup=y", ErrGlob, 19}, {"a=cgroup=/x/[a", ErrGlob, 12}, {"a=cgroup=/x/a**", ErrGlob, 13},
		{"a=cgroup=/x/../y", ErrGlob, 12}, {"a=cgroup=/", ErrGlob, 9}, {"a=cgroup=**", ErrGlob, 9},
		{"a=cgroup=/**/**", ErrGlob, 9},
		{"a=cgroup=/x;cgroup=//x/", ErrDuplicate, 19}, {`a=cgroup=/x\`, ErrGlob, 10}, {"a=cgroup=/\xff", ErrGlob, 9},
		{"a=cgroup=/" + strings.Repeat("a", maxGlob), ErrGlob, 9 + maxGlob},
		{"a=cgroup=" + strings.Repeat("/a", maxComponents+1), ErrGlob, 9},
		{"a=pid" + strings.Repeat(";cgroup=/a", 33), ErrTooMany, 333},
	} {
		d, err := ParseDefinition(tt.text)
		var at *DefinitionError
		if !errors.As(err, &at) || !errors.Is(err, tt.kind) || at.Offset != tt.offset || at.Text != tt.text {
			t.Errorf("%q: %+v, %v", tt.text, d, err)
		}
	}
	_, err := ParseDefinition("web=pid,foo")
	if want := `definition "web=pid,foo", column 9: unknown namespace "foo": use some of uts, ipc, mnt, pid, net, cgroup, user, time`; err.Error() != want {
		t.Error(err)
	}
}

func FuzzParseDefinition(f *testing.F) {
	for _, s := range []string{"web=pid,net", `a=uts;cgroup=/a\;b/[x;]/**;cgroup=**/\\`, "a=;cgroup=/a", "a=cgroup=//",
		"a=pid,pid"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDefinition(text)
		if err != nil {
			var at *DefinitionError
			if !errors.As(err, &at) || at.Offset < 0 || at.Offset > len(text) || at.Kind == nil || d.Name != "" ||
				d.Namespaces != nil {
				t.Fatalf("%q: %+v, %#v", text, d, err)
			}
			return
		}
		again, err := ParseDefinition(d.String())
		if err != nil || !again.Equal(&d) {
			t.Fatalf("%q: %q: %v, %v", text, d.String(), again, err)
		}
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &again); err != nil || !again.Equal(&d) {
			t.Fatalf("%q: %s: %v, %v", text, b, again, err)
		}
	})
}

func TestCgroupOf(t *testing.T) {
	for _, tt := range []struct{ glob, cgroup, want string }{
		{"/a", "/a", "/a"}, {"/a", "/a/b/c", "/a"}, {"/a", "/ab", ""}, {"/a", "/", ""}, {"/a", "", ""},
		{"/a/b", "/a", ""},
		{"/a/*", "/a", ""}, {"/a/*", "/a/b", "/a/b"}, {"/a/*", "/a/b/c", "/a/b"}, {"/*/b", "/a/c/b", ""},
		{"**/b", "/b", "/b"}, {"**/b", "/a/c/b/d/b", "/a/c/b"}, {"/a/**", "/a/b/c", "/a"},
		{"/a/**/*", "/a/b/c", "/a/b"},
		{"/kubepods*/**/pod*", "/kubepods.slice/besteffort/podX/ctr", "/kubepods.slice/besteffort/podX"},
		{"/a/**/b/**/c", "/a/b/x/b/y/c/z", "/a/b/x/b/y/c"}, {"/[^a]?", "/bc/d", "/bc"}, {`/\*`, "/*", "/*"},
		{`/\*`, "/x", ""},
		{"/../**/x", "/../../x", "/../../x"}, {"/" + strings.Repeat("**/a/", 15) + "b", strings.Repeat("/a", 500), ""},
	} {
		glob, err := cleanGlob(tt.glob)
		if tt.glob == "/../**/x" {
			if err == nil {
				t.Error("/.. is taken")
			}
			continue
		}
		if err != nil {
			t.Errorf("%.40s: %v", tt.glob, err)
			continue
		}
		d := Definition{Cgroups: []string{glob}}
		if got, ok := d.CgroupOf(tt.cgroup); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%.40s, %.40s: %q", tt.glob, tt.cgroup, got)
		}
	}
	long := Definition{Cgroups: []string{"/a"}}
	if got, ok := long.CgroupOf("/a/" + strings.Repeat("x", maxGlob)); ok {
		t.Errorf("%.10s of a path that no kernel has", got)
	}
	d := Definition{Cgroups: []string{"/a/b", "/a"}}
	if got, _ := d.CgroupOf("/a/b/c"); got != "/a" {
		t.Errorf("not the outermost: %q", got)
	}
}

// matchSlow reports whether a pattern matches a whole path, the plain way.
func matchSlow(pattern, cgroup []string) bool {
	switch {
	case len(pattern) == 0:
		return len(cgroup) == 0
	case pattern[0] == "**":
		return matchSlow(pattern[1:], cgroup) || len(cgroup) > 0 && matchSlow(pattern, cgroup[1:])
	case len(cgroup) == 0:
		return false
	}
	ok, err := path.Match(pattern[0], cgroup[0])
	return err == nil && ok && matchSlow(pattern[1:], cgroup[1:])
}

// FuzzCgroupOf: what is found is the first of the path's parents that matches.
func FuzzCgroupOf(f *testing.F) {
	f.Add("/a/**/b*", "/a/x/b1/c")
	f.Add("**/*/[a-c]", "/x/y/b")
	f.Fuzz(func(t *testing.T, glob, cgroup string) {
		clean, bad := cleanGlob(glob)
		if bad != nil || strings.Count(clean, "/") > 6 || strings.Count(cgroup, "/") > 8 || len(cgroup) > maxGlob {
			return
		}
		want := ""
		for i := 1; i <= len(cgroup) && want == ""; i++ {
			if cgroup[i-1] != '/' && (i == len(cgroup) || cgroup[i] == '/') {
				parts := strings.FieldsFunc(cgroup[:i], func(r rune) bool { return r == '/' })
				if matchSlow(strings.Split(clean[1:], "/"), parts) {
					want = cgroup[:i]
				}
			}
		}
		d := Definition{Cgroups: []string{clean}}
		if got, ok := d.CgroupOf(cgroup); got != want || ok != (want != "") {
			t.Fatalf("%q, %q: %q, want %q", clean, cgroup, got, want)
		}
	})
}

func TestDefinitions(t *testing.T) {
	defs := BuiltIn()
	web, err := ParseDefinition("web=pid,net")
	if err != nil {
		t.Fatal(err)
	}
	if err := defs.Add(web); err != nil {
		t.Fatal(err)
	}
	var at *DefinitionError
	if err := defs.Add(web); !errors.Is(err, ErrDuplicate) || !errors.As(err, &at) || at.Text != "web=pid,net" {
		t.Error(err)
	}
	pod := Definition{Name: "pod", Namespaces: []Namespace{NetNS}}
	if err := defs.Add(pod); !errors.Is(err, ErrDuplicate) || !strings.Contains(err.Error(), "built in") {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"container", "pod", "kernel-default", "web"}, defs.Names()); diff != "" {
		t.Error(diff)
	}
	if custom := defs.Custom(); len(custom) != 1 || !custom[0].Equal(&web) || defs.Find("web") != &defs[3] ||
		defs.Find("db") != nil {
		t.Errorf("%v", custom)
	}
	other := Definition{Name: "web", Namespaces: []Namespace{UTSNS}}
	with := defs.With(Definitions{pod, other, {Name: "db", Namespaces: []Namespace{MntNS}}})
	if got := with.Find("web").Rule(); got != "uts" || defs.Find("web").Rule() != "pid,net" ||
		with.Find("pod").Rule() != "net,ipc" || with.Find("db") == nil {
		t.Errorf("%v, %v", with, defs)
	}
	for i := len(defs); i < MaxDefinitions+len(BuiltIn()); i++ {
		if err := defs.Add(Definition{Name: "d" + strings.Repeat("x", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := defs.Add(Definition{Name: "more"}); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
}
