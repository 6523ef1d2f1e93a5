// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// names are what a Matcher selects of three containers.
func names(t *testing.T, m Matcher) string {
	t.Helper()
	list := []*Container{
		{Kind: KindContainer, Name: "web", ID: "0123456789ab", Image: "reg.example:5000/team/nginx:1.27",
			Labels: map[string]string{"app": "web", "tier": "front"}},
		{Kind: KindContainer, Name: "nginx", ID: "0124", Pod: "p-0", PodNamespace: "prod", PodUID: "u-1",
			Labels: map[string]string{"app": "web"}},
		{Kind: KindContainer, Name: "db", ID: "ffff", Pod: "p-1", PodNamespace: "test", CgroupPath: "/pods/db"},
		{Kind: KindUnit, ID: "nginx.service"},
	}
	found, err := m.Select(list)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, c := range found {
		out = append(out, c.Name)
	}
	return strings.Join(out, " ")
}

func TestMatcher(t *testing.T) {
	for text, m := range map[string]Matcher{
		// the container and the unit, not the image
		"web": {Names: []string{"web"}}, "nginx ": {Names: []string{"nginx"}},
		"web db": {Names: []string{"db", "web"}}, "web nginx": {Names: []string{"*n*x*"}},
		"db": {Names: []string{"/pods"}},
	} {
		if got := names(t, m); got != text {
			t.Errorf("%s: %q, want %q", m.String(), got, text)
		}
	}
	for _, tt := range []struct {
		m    Matcher
		want string
	}{
		{Matcher{Images: []string{"nginx"}}, "web"}, {Matcher{Images: []string{"team/nginx:1.27"}}, "web"},
		{Matcher{Images: []string{"nginx:1.26"}}, "--image nginx:1.26: no such container"},
		{Matcher{Images: []string{"ngi*"}}, "web"}, {Matcher{Pods: []string{"p-*"}}, "nginx db"},
		{Matcher{Pods: []string{"prod/p-0"}}, "nginx"}, {Matcher{Pods: []string{"u-1"}}, "nginx"},
		{Matcher{Pods: []string{"p-*"}, Namespaces: []string{"test"}}, "db"},
		{Matcher{Names: []string{"web"}, Namespaces: []string{"test"}}, `"web": no such container`},
		{Matcher{Names: []string{"docker://0123456789ab"}}, "web"},
		{Matcher{Names: []string{"containerd://ff*"}}, "db"}, {Matcher{Names: []string{"fff"}}, "db"},
		{Matcher{Names: []string{"012"}}, `"012" (0123456789ab and 0124): id prefix is not unique`},
		{Matcher{Names: []string{"ff"}}, `"ff": no such container`},
		{Matcher{Labels: labels(t, "app=web")}, "web nginx"},
		{Matcher{Labels: labels(t, "app=web,tier!=front")}, "nginx"}, {Matcher{Labels: labels(t, "tier")}, "web"},
		{Matcher{Labels: labels(t, "app==web,!tier")}, "nginx"}, {Matcher{}, "web nginx db "},
	} {
		if got := names(t, tt.m); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.m.String(), got, tt.want)
		}
	}
}

func labels(t *testing.T, text string) []LabelSelector {
	t.Helper()
	list, err := ParseLabels(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestParseLabels(t *testing.T) {
	for _, bad := range []string{"", ",", "=x", "a=1,,b", "a b", "!", "a in (b)"} {
		if _, err := ParseLabels(bad); !errors.Is(err, ErrLabel) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var texts []string
	for _, l := range labels(t, "a=1, b!=2,c,!d,e=") {
		texts = append(texts, l.String())
	}
	if want := []string{"a=1", "b!=2", "c", "!d", "e="}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
}

// MatchStars means what the regular expression of the same pattern means.
func FuzzMatchStars(f *testing.F) {
	f.Add("a*b*c", "aXbXc")
	f.Add("[kernel]*", "[kernel].x")
	f.Fuzz(func(t *testing.T, pattern, s string) {
		if !utf8.ValidString(pattern) || !utf8.ValidString(s) {
			return // a regular expression cannot tell bytes apart
		}
		re := regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `\z`)
		if got, want := MatchStars(pattern, s), re.MatchString(s); got != want {
			t.Errorf("MatchStars(%q, %q) = %v, want %v", pattern, s, got, want)
		}
	})
}
