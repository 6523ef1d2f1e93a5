// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// inlinedProfile has main, which calls work, into which step is inlined.
func inlinedProfile() *profile.Profile {
	b := profile.NewBuilder()
	event := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	frame := func(name string, line uint32, inlined bool) profile.FrameID {
		return b.Frame(profile.Frame{Name: name, DSO: "app", File: "/src/" + name + ".c", Line: line, Inlined: inlined})
	}
	l := b.Labels(profile.Labels{Comm: "app"})
	main := frame("main", 9, false)
	b.Add(l, b.Stack([]profile.FrameID{frame("step", 3, true), frame("work", 5, false), main}), event, 1, 60)
	b.Add(l, b.Stack([]profile.FrameID{frame("step", 4, true), frame("work", 5, false), main}), event, 1, 30)
	b.Add(l, b.Stack([]profile.FrameID{frame("work", 6, false), main}), event, 1, 10)
	return b.Profile()
}

// The weight of a sample is the function's, at the line of the inlined call
// where it fell; callers and inlined calls have theirs with children.
func TestInlinedRows(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Sort: []Key{KeySym}}, "100.00% [.] work"},
		{Options{Sort: []Key{KeySym}, Children: true}, "100.00% 100.00% [.] work; 100.00% 0.00% [.] main; 90.00% 0.00% [.] step (inlined)"},
		{Options{Sort: []Key{KeySrcline}}, "60.00% step.c:3; 30.00% step.c:4; 10.00% work.c:6"},
		{Options{Sort: []Key{KeySrcline, KeySym}}, "60.00% step.c:3 [.] work; 30.00% step.c:4 [.] work; 10.00% work.c:6 [.] work"},
		{Options{Sort: []Key{KeySrcfile}}, "90.00% step.c; 10.00% work.c"},
		{Options{Sort: []Key{KeySrcfile}, Children: true}, "100.00% 10.00% work.c; 100.00% 0.00% main.c; 90.00% 90.00% step.c"},
		{Options{Sort: []Key{KeySym}, Filter: Filter{Symbol: []string{"step"}}}, ""},
	} {
		var out bytes.Buffer
		if err := Text(&out, inlinedProfile(), &tt.o); err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); len(f) > 0 && f[0] != "#" && !strings.HasPrefix(f[0], "#") {
				rows = append(rows, strings.Join(f, " "))
			}
		}
		if got := strings.Join(rows, "; "); got != tt.want {
			t.Errorf("%v, children %v: %s\nwant %s", tt.o.Sort, tt.o.Children, got, tt.want)
		}
	}
}

func TestInlinedGraph(t *testing.T) {
	var out bytes.Buffer
	if err := Text(&out, inlinedProfile(), &Options{Sort: []Key{KeySym}, CallGraph: CallGraphCallee}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "--90.00%--step (inlined)\n") || !strings.Contains(got, "--10.00%--work\n") {
		t.Error(got)
	}
	out.Reset()
	if err := JSON(&out, inlinedProfile(), &Options{Sort: []Key{KeySym, KeySrcline}, CallGraph: CallGraphCallee}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"sym":"step","dso":"app","inlined":true`, `"srcline":"step.c:3"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	out.Reset()
	if err := Folded(&out, inlinedProfile(), nil); err != nil || !strings.Contains(out.String(), "app;main;work;step_[i] 2\n") {
		t.Errorf("%s %v", out.String(), err)
	}
}
