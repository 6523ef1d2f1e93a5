// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// boxesOf lists the boxes of a flame graph, indented by depth.
func boxesOf(f *flame) string {
	var b strings.Builder
	for _, x := range f.boxes {
		kind := ""
		switch {
		case x.label:
			kind = " label"
		case x.kernel:
			kind = " kernel"
		case x.rest:
			kind = " rest"
		}
		fmt.Fprintf(&b, "%*s%s %d+%d%s\n", 2*x.depth, "", x.name, x.start, x.value, kind)
	}
	return b.String()
}

func TestFlameGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"flame-default", Options{}},
		{"flame-roots-pod", Options{Roots: keys(t, "pod")}},
		{"flame-roots-none", Options{Roots: []Key{}}},
		{"flame-filter-symbol", Options{Filter: Filter{Symbol: []string{"walk"}}}},
	} {
		f := newFlame(parseProfile(t, shop), tt.o.orDefault())
		testutil.Golden(t, filepath.Join("testdata", tt.name+".txt"), []byte(boxesOf(f)))
		checkFlame(t, tt.name, f)
	}
}

// checkFlame verifies that boxes come before those above them, and that those
// above a box are within it and do not overlap.
func checkFlame(t *testing.T, name string, f *flame) {
	t.Helper()
	var path []box
	end := map[int]uint64{} // by depth
	for _, b := range f.boxes {
		if b.depth > len(path) {
			t.Fatalf("%s: %q has no box below", name, b.name)
		}
		path = path[:b.depth]
		if b.depth > 0 {
			below := path[b.depth-1]
			if b.start < below.start || b.start+b.value > below.start+below.value {
				t.Errorf("%s: %q is not within %q", name, b.name, below.name)
			}
		}
		if b.start < end[b.depth] {
			t.Errorf("%s: %q overlaps its neighbour", name, b.name)
		}
		end[b.depth] = b.start + b.value
		path = append(path, b)
	}
}

// What is too narrow is drawn as one box or counted, never dropped in silence.
func TestFlameNarrow(t *testing.T) {
	var text strings.Builder
	for i := range 300 {
		fmt.Fprintf(&text, "cpu-clock | container=web comm=a | main@a f%d@a | 1 1\n", i)
	}
	text.WriteString("cpu-clock | container=web comm=a | main@a | 1 9999699\n")
	text.WriteString("cpu-clock | container=tiny comm=b | main@b | 1 1\n")
	f := newFlame(parseProfile(t, text.String()), (&Options{}).orDefault())
	// 300 of 10,000,000 are less than one in ten thousand, even together.
	if f.cut != 301 || f.cutValue != 301 {
		t.Errorf("cut: got %d (%d)", f.cut, f.cutValue)
	}
	heavier := strings.ReplaceAll(text.String(), "| 1 1\n", "| 1 100\n")
	f = newFlame(parseProfile(t, heavier), (&Options{}).orDefault())
	if want := "(300 narrow branches) 0+30000 rest\n"; !strings.Contains(boxesOf(f), want) {
		t.Errorf("got:\n%swant %q", boxesOf(f), want)
	}
	if f.cut != 1 || f.cutValue != 100 {
		t.Errorf("cut: got %d (%d)", f.cut, f.cutValue)
	}
	checkFlame(t, "narrow", f)
}

func TestSVGHead(t *testing.T) {
	p := parseProfile(t, shopAndFaults)
	p.Lost = []profile.LostCount{{CPU: -1, Samples: 1234}}
	got := write(t, FormatSVG, p, &Options{Title: "a <shop>"})
	for _, want := range []string{
		`<text id="title" x="12" y="28">a &lt;shop&gt;</text>`,
		"cpu-clock: 100 samples · 2s · host node1 · 1,234 lost · 5.00% unresolved · 1 other event not drawn",
		">web 55.00%<", ">db 30.00%<", ">[host] 15.00%<",
		"30 samples, 30.00%, 54.55% of web, in [kernel.kallsyms]",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "@import", "url("} {
		rest := strings.ReplaceAll(strings.ReplaceAll(got, "http://www.w3.org/2000/svg", ""), "http://www.w3.org/1999/xhtml", "")
		if strings.Contains(rest, bad) {
			t.Errorf("refers to something outside: %q", bad)
		}
	}
}

// Where only one container ran, or none, commands are told apart by colour.
func TestSVGColours(t *testing.T) {
	many := write(t, FormatSVG, parseProfile(t, shop), nil)
	coloured := regexp.MustCompile(`<g class="c[0-9] label" data-b="1,`)
	if !coloured.MatchString(many) || !strings.Contains(many, `<g class="host label" data-b="1,`) {
		t.Error("containers have no colours of their own")
	}
	one := write(t, FormatSVG, parseProfile(t, shop), &Options{Filter: Filter{Match: container.Matcher{Names: []string{noContainer}}}})
	for _, want := range []string{`<g class="all" data-b="1,`, ">cron 33.33%<"} {
		if !strings.Contains(one, want) {
			t.Errorf("only the host: %q is missing", want)
		}
	}
	commands := map[string]bool{}
	for _, m := range regexp.MustCompile(`<g class="(c[0-9]) label" data-b="2,`).FindAllStringSubmatch(one, -1) {
		commands[m[1]] = true
	}
	if len(commands) < 2 {
		t.Errorf("commands of the host have the colours %v", commands)
	}
}

// A container has the same colour in every picture, unless another one that weighs
// more has it.
func TestSVGColourOfName(t *testing.T) {
	a, b := chooseHues([]string{"web", noContainer, "db"}), chooseHues([]string{"cache", "web"})
	if a[0] != chooseHues([]string{"web"})[0] || a[0] == a[2] {
		t.Errorf("%v", a)
	}
	if alone := chooseHues([]string{"cache"})[0]; alone != a[0] && b[1] != a[0] {
		t.Errorf("web is %d in one picture and %d in the other", a[0], b[1])
	}
}

func TestSVGEmpty(t *testing.T) {
	for _, text := range []string{"", "cpu-clock | | | 0 0"} {
		got := write(t, FormatSVG, parseProfile(t, text), nil)
		elements(t, got)
		if !strings.Contains(got, "no samples") {
			t.Errorf("%q: does not say that there is nothing", text)
		}
	}
}

// elements parses the file and counts its elements.
func elements(t *testing.T, svg string) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return count
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
			for _, a := range e.Attr {
				if strings.HasPrefix(strings.ToLower(a.Name.Local), "on") {
					t.Errorf("<%s> has %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

// Names may not become anything but text.
func TestSVGHostile(t *testing.T) {
	got := write(t, FormatSVG, hostileProfile(), &Options{Title: hostileNames()[0]})
	count := elements(t, got)
	if count["script"] != 1 || count["style"] != 1 || count["img"] != 0 || count["foreignObject"] != 0 {
		t.Errorf("elements: %v", count)
	}
	if control := regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f]`).FindStringIndex(got); control != nil {
		t.Errorf("a control character at %d", control[0])
	}
	plain := elements(t, write(t, FormatSVG, parseProfile(t, shop), nil))
	for name := range count {
		if plain[name] == 0 {
			t.Errorf("<%s> comes from a name", name)
		}
	}
}

func TestFitName(t *testing.T) {
	for _, tt := range []struct {
		name string
		px   float64
		want string
	}{
		{"main", 100, "main"},
		{"main", 20, ""},
		{"copy_to_user", 60, "copy_t…"},
		{"cmd/compile/internal/ssa.Compile", 400, "cmd/compile/internal/ssa.Compile"},
		{"cmd/compile/internal/ssa.Compile", 100, "ssa.Compile"},
		{"f(a/b, c/d)", 60, "f(a/b,…"},
		{"日本日本日本日本日本", 60, "日本日本日本…"},
	} {
		if got := fitName(tt.name, tt.px); got != tt.want {
			t.Errorf("%q in %g: got %q, want %q", tt.name, tt.px, got, tt.want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 297_582: "297K", 6_202_052: "6M", 5e9: "5G"} {
		if got := short(n); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
