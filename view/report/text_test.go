// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/container"
	"github.com/gantry-tools/gantry/internal/testutil"
)

const shopAndFaults = shop + `
page-faults | container=web comm=nginx pid=10 | main@nginx serve@nginx | 3 3
page-faults | container=db comm=sqld pid=20 | main@sqld | 1 1
`

func TestTextGolden(t *testing.T) {
	comm := keys(t, "comm,dso,sym")
	for _, tt := range []struct {
		name, profile string
		o             Options
	}{
		{"default", shop, Options{}},
		{"callee", shop, Options{Sort: comm, CallGraph: CallGraphCallee}},
		{"caller", shop, Options{Sort: comm, CallGraph: CallGraphCaller}},
		{"flat", shop, Options{Sort: comm, CallGraph: CallGraphFlat}},
		{"children-caller", shop, Options{Sort: comm, Children: true, CallGraph: CallGraphCaller}},
		{"children-callee", shop, Options{Sort: comm, Children: true, CallGraph: CallGraphCallee}},
		{"children-container", shop, Options{Sort: keys(t, "container"), Children: true, CallGraph: CallGraphCaller}},
		{"all-labels", shop, Options{Sort: keys(t, "tid,pid,cpu,container,pod,namespace,image,cgroup")}},
		{"sym-samples", shop, Options{Sort: keys(t, "symbol"), ShowSamples: true}},
		{"percent-limit-20-callee", shop, Options{PercentLimit: 20, CallGraph: CallGraphCallee}},
		{"max-entries-2", shop, Options{Sort: keys(t, "dso"), MaxEntries: 2}},
		{"filter-container", shop, Options{Filter: Filter{Match: container.Matcher{Names: []string{"cccccc"}}}}},
		{"filter-container-relative", shop, Options{Filter: Filter{Match: container.Matcher{Names: []string{"db*"}}}, Relative: true}},
		{"filter-symbol-children", shop, Options{Children: true, Filter: Filter{Symbol: []string{"walk", "vfs_*"}}}},
		{"events", shopAndFaults, Options{Sort: keys(t, "container,sym")}},
		{"event-key", shopAndFaults, Options{Sort: keys(t, "event,container")}},
		{"filter-event", shopAndFaults, Options{Sort: keys(t, "container"), Filter: Filter{Event: []string{"page*"}}}},
		{"width-60", shop, Options{Sort: keys(t, "image,comm,dso,sym"), Width: 60, CallGraph: CallGraphCallee}},
		{"empty", "", Options{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := write(t, FormatText, parseProfile(t, tt.profile), &tt.o)
			testutil.Golden(t, filepath.Join("testdata", tt.name+".txt"), []byte(got))
			if w := tt.o.Width; w > 0 {
				for line := range strings.Lines(got) {
					if line := strings.TrimRight(line, "\n"); textWidth(line) > w && !strings.HasPrefix(line, "# ") {
						t.Errorf("line is wider than %d: %q", w, line)
					}
				}
			}
		})
	}
}

func TestLostGolden(t *testing.T) {
	p := parseProfile(t, shopAndFaults)
	p.Lost = []profile.LostCount{
		{Event: "cpu-clock", Container: "web", CPU: 1, Samples: 30},
		{Event: "cpu-clock", Container: "db", CPU: 0, Samples: 40},
		{CPU: -1, Samples: 5},
	}
	got := write(t, FormatText, p, &Options{Sort: keys(t, "container")})
	testutil.Golden(t, filepath.Join("testdata", "lost.txt"), []byte(got))
}

// Samples in another order, and split up, make the same report.
func TestTextOrder(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(shop), "\n")
	var backwards strings.Builder
	for i := range lines {
		backwards.WriteString(lines[len(lines)-1-i] + "\n")
	}
	for _, f := range []Format{FormatText, FormatJSON, FormatFolded, FormatSVG} {
		o := &Options{Children: true, CallGraph: CallGraphCaller}
		a, b := write(t, f, parseProfile(t, shop), o), write(t, f, parseProfile(t, backwards.String()), o)
		if a != b {
			t.Errorf("format %d: the order of samples shows:\n%s\n---\n%s", f, a, b)
		}
	}
}

// hostile names steer terminals, break lines, close tags and are not UTF-8.
func hostileNames() []string {
	return []string{
		"</script><img src=x onerror=\"document.title='pwned'\">", "a\x1b[2J\x1b]0;owned\x07b", "line\nfeed\r",
		"\xff\xfe\xc0", "bidi\u202e\u2066", "nul\x00", "]]><script>document.title='pwned'</script>", `"'&;|`, "c1\u009b31m",
	}
}

func hostileProfile() *profile.Profile {
	b := profile.NewBuilder()
	ev := b.Event(profile.EventInfo{Name: "ev\x1b[31m<b>"})
	for _, name := range hostileNames() {
		l := b.Labels(profile.Labels{Container: name, Comm: name, Image: name, Pod: name, Namespace: name, Cgroup: name})
		leaf := b.Frame(profile.Frame{Name: name, DSO: name, Path: name, File: name})
		main := b.Frame(profile.Frame{Name: "main" + name, DSO: name, Path: name})
		b.Add(l, b.Stack([]profile.FrameID{leaf, main}), ev, 1, 1)
		b.Lost(profile.LostCount{Container: name, CPU: 0, Samples: 1})
	}
	b.Meta().Hostname = "host\x1b[0m"
	return b.Profile()
}

func TestTextHostile(t *testing.T) {
	o := Options{
		Sort: keys(t, "event,container,pod,image,namespace,cgroup,comm,dso,sym"), Children: true,
		Filter: Filter{Match: container.Matcher{Names: []string{"*", "\x1b[31m"}}},
	}
	for _, g := range []CallGraph{CallGraphCaller, CallGraphCallee, CallGraphFlat} {
		o.CallGraph = g
		got := write(t, FormatText, hostileProfile(), &o)
		got += write(t, FormatFolded, hostileProfile(), &o)
		for i, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%v: %q reached the output: %q", g, r, got[max(0, i-20):i+4])
			}
		}
	}
}

func TestWriteErrors(t *testing.T) {
	full := errors.New("disk full")
	for f := FormatText; f <= FormatPprof; f++ {
		err := Write(brokenWriter{full}, f, parseProfile(t, shop), nil)
		if !errors.Is(err, full) {
			t.Errorf("format %d: got %v, want %v", f, err, full)
		}
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

// Functions of the same name in two objects are no twins in a call graph.
func TestGraphSiblings(t *testing.T) {
	p := parseProfile(t, `
cpu-clock | comm=a | main@a read@libc.so.6 | 4 4
cpu-clock | comm=a | main@a read@libm.so.6 | 3 3
cpu-clock | comm=a | main@a ?0x10@libc.so.6 | 2 2
cpu-clock | comm=a | main@a ?0x10@libm.so.6 | 2 2
cpu-clock | comm=a | main@a write@libc.so.6 | 1 1
`)
	for _, sort := range []string{"comm", "comm,dso,sym"} {
		got := write(t, FormatText, p, &Options{Sort: keys(t, sort), Children: sort != "comm", CallGraph: CallGraphCaller})
		for _, want := range []string{
			"--read (libc.so.6)\n", "--read (libm.so.6)\n", "--0x0000000000000010 (libc.so.6)\n", "--0x0000000000000010 (libm.so.6)\n",
			"--write\n",
		} {
			if strings.Count(got, want) != 1 {
				t.Errorf("%s: %q is there %d times in\n%s", sort, want, strings.Count(got, want), got)
			}
		}
	}
}
