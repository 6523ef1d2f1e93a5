// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// inBrowser opens a flame graph in a browser without a window, runs a script
// in it, and returns what the script's function gives back.
func inBrowser(t *testing.T, svg, script string, result any) {
	t.Helper()
	testutil.Require(t, testutil.Tool("chromium"))
	helper, err := os.ReadFile(filepath.Join("testdata", "browser.js"))
	if err != nil {
		t.Fatal(err)
	}
	end := strings.LastIndex(svg, "</svg>")
	page := svg[:end] + "<script><![CDATA[\n" + string(helper) + "\nreport(function () {" + script + "});\n]]></script>\n</svg>\n"
	dir := t.TempDir()
	path := filepath.Join(dir, "flame.svg")
	if err := os.WriteFile(path, []byte(page), 0o666); err != nil {
		t.Fatal(err)
	}
	m := render(t, path, filepath.Join(dir, "user"))
	if err := json.Unmarshal([]byte(html.UnescapeString(m)), result); err != nil {
		t.Fatalf("%v in %s", err, m)
	}
}

// browserTries is how often the browser may be asked that crashes or gives no
// answer in browserTime.
const (
	browserTries = 3
	browserTime  = 2 * time.Minute
)

var browserResult = regexp.MustCompile(`data-result="([^"]*)"`)

// render gives the result that a page writes into itself.
func render(t *testing.T, path, user string) string {
	t.Helper()
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(t.Context(), browserTime)
		cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			fmt.Sprintf("--user-data-dir=%s%d", user, try), "--window-size=1000,800", "--dump-dom", "file://"+path)
		cmd.WaitDelay = browserTime // for what it has started
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		cancel()
		if m := browserResult.FindSubmatch(out); err == nil && m != nil {
			return string(m[1])
		}
		t.Logf("chromium: %v, no result in\n%.2000s\n%.2000s", err, out, stderr.String())
		if try == browserTries {
			t.Fatal("the script gave no result")
		}
	}
}

// browserState is what testdata/browser.js sees of the page.
type browserState struct {
	Shown, Above, Hits      []string
	Width                   map[string]float64 // of boxes, 1 is the whole
	Reset, Matched, Details string
	Focused                 bool
	Title                   string
	Error                   string
}

func (s *browserState) check(t *testing.T, step string, shown, above, hits []string, matched string) {
	t.Helper()
	if s.Error != "" {
		t.Fatalf("%s: %s", step, s.Error)
	}
	for _, c := range []struct {
		what      string
		got, want []string
	}{{"shown", s.Shown, shown}, {"above", s.Above, above}, {"hits", s.Hits, hits}} {
		slices.Sort(c.got)
		slices.Sort(c.want)
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %s: got %q, want %q", step, c.what, c.got, c.want)
		}
	}
	if s.Matched != matched {
		t.Errorf("%s: matched: got %q, want %q", step, s.Matched, matched)
	}
}

func TestBrowser(t *testing.T) {
	const small = `
cpu-clock | container=web comm=nginx | main@nginx serve@nginx | 30 30
cpu-clock | container=web comm=nginx | main@nginx | 10 10
cpu-clock | container=db comm=sqld | start@sqld walk@sqld walk@sqld | 60 60
`
	var got map[string]*browserState
	inBrowser(t, write(t, FormatSVG, parseProfile(t, small), nil), `
	var out = { start: state() };
	click(box('web')); out.zoomed = state();
	type('walk|SERVE'); out.searched = state();
	press('Escape'); out.cleared = state();
	press('Escape'); out.reset = state();
	press('/'); out.slash = state();
	type('walk'); out.nested = state();
	type('serve('); out.broken = state();
	type(''); click(box('serve')); out.deep = state();
	click(document.getElementById('reset')); out.button = state();
	click(document.querySelectorAll('#legend .root')[1]); out.legend = state();
	hover(box('nginx')); out.hovered = state();
	return out;`, &got)

	everything := []string{"all", "web", "nginx", "main", "serve", "db", "sqld", "start", "walk", "walk"}
	web := []string{"all", "web", "nginx", "main", "serve"}
	got["start"].check(t, "start", everything, nil, nil, "")
	got["zoomed"].check(t, "zoomed", web, []string{"all"}, nil, "")
	got["searched"].check(t, "searched", web, []string{"all"}, []string{"serve", "walk", "walk"}, "75.00% matched")
	got["cleared"].check(t, "cleared", web, []string{"all"}, nil, "")
	got["reset"].check(t, "reset", everything, nil, nil, "")
	got["slash"].check(t, "slash", everything, nil, nil, "")
	got["nested"].check(t, "nested", everything, nil, []string{"walk", "walk"}, "60.00% matched")
	got["broken"].check(t, "broken", everything, nil, nil, "0.00% matched")
	got["deep"].check(t, "deep", web, []string{"all", "web", "nginx", "main"}, nil, "")
	got["button"].check(t, "button", everything, nil, nil, "")
	got["legend"].check(t, "legend", web, []string{"all"}, nil, "")

	for step, want := range map[string]map[string]float64{
		"start":  {"all": 1, "web": .4, "serve": .3, "db": .6},
		"zoomed": {"all": 1, "web": 1, "serve": .75},
		"deep":   {"all": 1, "main": 1, "serve": 1},
	} {
		for name, w := range want {
			if g := got[step].Width[name]; math.Abs(g-w) > 0.01 {
				t.Errorf("%s: width of %s: got %.3f, want %.3f", step, name, g, w)
			}
		}
	}
	if got["start"].Reset != "" || got["zoomed"].Reset == "" || !got["slash"].Focused || got["start"].Focused {
		t.Errorf("reset %q, then %q; focused %v, then %v", got["start"].Reset, got["zoomed"].Reset, got["start"].Focused, got["slash"].Focused)
	}
	if d := got["hovered"].Details; d != "nginx — 40 samples, 40.00%, 100.00% of web" {
		t.Errorf("details: got %q", d)
	}
}

func TestBrowserHostile(t *testing.T) {
	var got map[string]*browserState
	inBrowser(t, write(t, FormatSVG, hostileProfile(), &Options{Title: hostileNames()[6]}), `
	var out = {}, first = document.querySelectorAll('#frames g')[1];
	click(first); hover(first); type('<img'); out.end = state();
	return out;`, &got)
	end := got["end"]
	if end.Error != "" || strings.Contains(end.Title, "pwned") {
		t.Errorf("error %q, title %q", end.Error, end.Title)
	}
	if len(end.Hits) == 0 {
		t.Error("the search found no hostile name: they are not there as text")
	}
}
