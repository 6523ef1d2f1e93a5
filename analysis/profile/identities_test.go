// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestIdentities(t *testing.T) {
	list := []Identity{{Definition: "vm", ID: "uts:1", Name: "web"}, {Definition: "job", ID: "cgroup:/a,b"}, {Definition: "x", Name: "-"}, {Definition: "y"}}
	s := MakeIdentities(list...)
	if got := slices.Collect(s.All()); !slices.Equal(got, list) {
		t.Errorf("%q", got)
	}
	for name, want := range map[string]string{"vm": "web", "job": "cgroup:/a,b", "x": "-", "y": "", "z": ""} {
		if got := s.Under(name); got.Text() != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	shown := s.Shown([]string{"job", "vm"})
	if got := slices.Collect(shown.All()); !slices.Equal(got, []Identity{{Definition: "vm", Name: "web"}, {Definition: "job", Name: "cgroup:/a,b"}}) {
		t.Errorf("%q", got)
	}
	if Identities("").Shown([]string{"vm"}) != "" || s.Shown(nil) != "" {
		t.Error("nothing shows something")
	}
}

// FuzzIdentities: hostile names stay in their place.
func FuzzIdentities(f *testing.F) {
	f.Add("pid:1", "web\x00db", "")
	f.Fuzz(func(t *testing.T, id, name, other string) {
		s := MakeIdentities(Identity{Definition: "a", ID: id, Name: name}, Identity{Definition: "b", ID: other})
		n := 0
		for range s.All() {
			n++
		}
		clean := func(s string) string { return strings.ReplaceAll(s, "\x00", "?") }
		if a, b := s.Under("a"), s.Under("b"); n != 2 || a.ID != clean(id) || a.Name != clean(name) || b.ID != clean(other) || b.Name != "" {
			t.Fatalf("%q", s)
		}
	})
}
