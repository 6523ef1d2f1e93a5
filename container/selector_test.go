// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func choices(t *testing.T) Definitions {
	t.Helper()
	defs := BuiltIn()
	for _, text := range []string{"vm=uts,pid", "job=mnt;cgroup=/jobs/*", "tree=cgroup=/tree"} {
		d, err := ParseDefinition(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := defs.Add(d); err != nil {
			t.Fatal(err)
		}
	}
	return defs
}

// describeChoice is a choice on one line.
func describeChoice(c *Choice) string {
	var b strings.Builder
	if c.Definition != nil {
		fmt.Fprintf(&b, "%s: ", c.Definition.Name)
	}
	switch {
	case c.Any:
		b.WriteString("any")
	case c.ByName():
		fmt.Fprintf(&b, "name %s", c.Match.String())
	default:
		for n, ino := range c.Identity.Namespaces {
			if ino != 0 {
				fmt.Fprintf(&b, "%s=%d ", Namespace(n), ino)
			}
		}
		fmt.Fprintf(&b, "%s", c.Identity.CgroupPath)
		if c.Identity.Cgroup != 0 {
			fmt.Fprintf(&b, "#%d", c.Identity.Cgroup)
		}
	}
	return strings.TrimSpace(b.String())
}

func TestParseChoice(t *testing.T) {
	defs := choices(t)
	for text, want := range map[string]string{
		"web":                      "name web",
		"web-*":                    "name web-*",
		"nginx:1.25":               "name nginx:1.25",
		"registry:5000/nginx:1":    "name registry:5000/nginx:1",
		"default/web-0":            "name default/web-0",
		"pod:any":                  "pod: any",
		"vm:any":                   "vm: any",
		"container:any":            "container: any",
		"pod:web-0":                "pod: name web-0",
		"net:5,ipc:6":              "net=5 ipc=6",
		"ipc:6,net:5":              "net=5 ipc=6",
		"pod:net:5,ipc:6":          "pod: net=5 ipc=6",
		"pod:net:5":                "pod: net=5",
		"job:mnt:7,cgroup:/jobs/a": "job: mnt=7 /jobs/a",
		"tree:cgroup:/tree":        "tree: /tree",
		"tree:cgroup:#9":           "tree: #9",
		"cgroup:/docker/abc":       "/docker/abc",
		"container:cgroup:/docker": "container: /docker",
		"any":                      "name any",
	} {
		c, err := defs.ParseChoice(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := describeChoice(&c); got != want || c.Text != text {
			t.Errorf("%s: %s (%q), want %s", text, got, c.Text, want)
		}
		if c.ByName() != strings.Contains(want, "name ") {
			t.Errorf("%s: by name %v", text, c.ByName())
		}
	}
}

func TestParseChoiceErrors(t *testing.T) {
	defs := choices(t)
	for text, want := range map[string]struct {
		err  error
		text string
	}{
		"pdo:any":              {ErrDefinition, "there are container, pod, kernel-default, vm, job, tree"},
		"pdo:net:5,ipc:6":      {ErrDefinition, `"pdo"`},
		"pod:":                 {ErrNoMatch, "names no container"},
		"pod:pid:5":            {ErrDefinition, "the definition pod=net,ipc has no pid namespace"},
		"pod:net:5,cgroup:/x":  {ErrDefinition, "the definition pod=net,ipc has no cgroup"},
		"tree:mnt:5,cgroup:/x": {ErrDefinition, "has no mnt namespace"},
	} {
		c, err := defs.ParseChoice(text)
		if !errors.Is(err, want.err) || !strings.Contains(fmt.Sprint(err), want.text) {
			t.Errorf("%s: %s, %v, want %v %s", text, describeChoice(&c), err, want.err, want.text)
		}
	}
}

func TestSelect(t *testing.T) {
	var table Table
	for _, c := range []Container{
		{ID: "aaa111", Name: "web", Image: "registry/nginx:1.25", CgroupPath: "/a"},
		{ID: "bbb222", Name: "web", Pod: "shop-0", CgroupPath: "/b"},
		{ID: "ccc333", Name: "db(1)", CgroupPath: "/c"},
		{Kind: KindUnit, ID: "web.service", Name: "web.service", CgroupPath: "/u/web.service"},
	} {
		table.Add(c)
	}
	for name, want := range map[string]string{
		"web":       "aaa111 bbb222 web.service", // a unit goes by its name too
		"web*":      "aaa111 bbb222",             // a pattern means containers only
		"*":         "aaa111 bbb222 ccc333",
		"ccc":       "ccc333",
		"shop-*":    "bbb222",
		"*nginx:1*": "aaa111",
		"db(1)*":    "ccc333",
		"*/web":     "bbb222",
	} {
		found, err := table.Select(ByName(name))
		var ids []string
		for _, c := range found {
			ids = append(ids, c.ID)
		}
		if got := strings.Join(ids, " "); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"we", "x*", "db*2"} {
		if found, err := table.Select(ByName(name)); !errors.Is(err, ErrNoMatch) {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

func TestMatchStars(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"web", "web", true}, {"web", "web1", false}, {"", "", true}, {"", "x", false}, {"*", "", true},
		{"**", "x", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"*a*b", "xaxbxb", true}, {"*a*b", "ba", false},
		{"a*b*b", "ab", false},
		{"w.b*", "web", false}, {"web\xff*", "web\xff-1", true}, {"*\xff", "web", false}, {"a*c", "a\nb\nc", true},
	} {
		if got := MatchStars(tt.pattern, tt.text); got != tt.want {
			t.Errorf("%q, %q: %v, want %v", tt.pattern, tt.text, got, tt.want)
		}
	}
}

// TestSelectNotUTF8: a pattern may have any bytes.
func TestSelectNotUTF8(t *testing.T) {
	var table Table
	table.Add(Container{ID: "aaa", Name: "web", CgroupPath: "/a"})
	if found, err := table.Select(ByName("web\xff*")); !errors.Is(err, ErrNoMatch) {
		t.Errorf("%v, %v", found, err)
	}
}

func TestSelectPatterns(t *testing.T) {
	var table Table
	for i, name := range []string{"web-1", "web-2", "db"} {
		table.Add(Container{Name: name, ID: strings.Repeat(string(rune('a'+i)), 64), Image: "shop/" + name[:2]})
	}
	for sel, want := range map[string]int{
		"web-*": 2, "*": 3, "*-2": 1, "w*1": 1, "shop/*": 3, "cc*": 1, "web-1": 1, "aaa": 1, "web": 0, "eb-*": 0,
		"w.b*": 0, "[a-w]eb*": 0,
	} {
		found, err := table.Select(ByName(sel))
		if len(found) != want || (want == 0) != errors.Is(err, ErrNoMatch) {
			t.Errorf("%s: %d, %v, want %d", sel, len(found), err, want)
		}
	}
}

func FuzzParseChoice(f *testing.F) {
	for _, s := range []string{"web", "pod:any", "pod:net:5,ipc:6", "net:5,ipc:6,cgroup:/x,y", "job:mnt:7,cgroup:#9",
		"pod:", ":any", "x:any"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := BuiltIn().ParseChoice(text)
		if err != nil {
			return
		}
		n := 0
		for _, is := range []bool{c.Any, c.Match.String() != "", c.Identity != Identity{}} {
			if is {
				n++
			}
		}
		if n != 1 && text != "" || c.Any && c.Definition == nil {
			t.Fatalf("%q: %+v", text, c)
		}
	})
}
