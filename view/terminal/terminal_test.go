// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gantry-tools/gantry/analysis"
	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// use is who used the CPU for some samples of 10 ms, with a stack from the leaf.
type use struct {
	container, comm string
	pid             int32
	samples         uint64
	stack           []string
}

// slice is a second of a machine.
func slice(from uint64, uses ...use) analysis.Slice {
	b := profile.NewBuilder()
	ev := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	for _, u := range uses {
		var stack []profile.FrameID
		for _, name := range u.stack {
			stack = append(stack, b.Frame(profile.Frame{Name: name, DSO: u.comm + ".so"}))
		}
		l := b.Labels(profile.Labels{Container: u.container, Comm: u.comm, PID: u.pid})
		b.Add(l, b.Stack(stack), ev, u.samples, u.samples*10_000_000)
	}
	const second = 1_000_000_000
	return analysis.Slice{Profile: b.Profile(), From: from * second, To: (from + 1) * second}
}

// machine is one with two containers, an idle task and a name that would write to the terminal.
func machine(from uint64) analysis.Slice {
	return slice(from, use{"web", "nginx", 10, 50, []string{"write", "serve", "main"}},
		use{"web", "nginx", 11, 20, []string{"read", "serve", "main"}},
		use{"db", "postgres", 20, 30, []string{"scan", "scan", "main"}},
		use{"", "bash", 30, 5, []string{"\x1b[31mred\u009b", "main"}}, use{"", "swapper", 0, 95, []string{"halt"}},
		use{"batch", "cc1plus", 40, 10, nil})
}

func status() Status {
	return Status{Event: "cpu-clock at 99 Hz", CPUs: 2, Own: 0.4, Note: "waiting for samples"}
}

// TestWindow: what is older than the window does not count, and neither does what nobody follows.
func TestWindow(t *testing.T) {
	w, now := NewWindow(2*time.Second), time.Unix(1000, 0)
	if got := w.Table(Containers, Selection{}); len(got.Rows) != 0 || got.Span != 0 {
		t.Errorf("nothing adds up to %+v", got)
	}
	w.Add(slice(0, use{"old", "old", 1, 100, nil}), now)
	for i := range uint64(3) {
		w.Add(machine(1+i), now.Add(time.Duration(i)*time.Second))
	}
	got := w.Table(Containers, Selection{})
	if got.Span != 2*time.Second || got.Busy != 115 || got.Idle != 95 || got.Samples != 420 || len(got.Rows) != 4 {
		t.Errorf("%+v", got)
	}
	if r := got.Rows[0]; r.Container != "web" || r.Self != 70 || r.Samples != 140 || r.Top != "write" {
		t.Errorf("%+v", r)
	}
	functions := w.Table(Functions, Selection{Container: "db"})
	if len(functions.Rows) != 2 || functions.Rows[0].Self != 30 || functions.Rows[0].Total != 30 ||
		functions.Rows[1].Self != 0 || functions.Rows[1].Total != 30 {
		t.Errorf("a function that calls itself counts once: %+v", functions.Rows)
	}
	if one := w.Table(Processes, Selection{Container: "web", PID: 11}); len(one.Rows) != 1 || one.Rows[0].Self != 20 {
		t.Errorf("%+v", one.Rows)
	}
	w.Forget(now.Add(time.Minute))
	if got := w.Table(Containers, Selection{}); got.Span != 0 {
		t.Errorf("a minute after the last sample there is %+v", got)
	}
}

// screen is what a model shows after keys, as text.
func screen(t *testing.T, m *model, keys ...string) string {
	t.Helper()
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		for name, code := range map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown,
			"up": tea.KeyUp, "space": tea.KeySpace, "backspace": tea.KeyBackspace} {
			if k == name {
				msg = tea.KeyPressMsg{Code: code}
			}
		}
		m.Update(msg)
	}
	lines := m.lines()
	if len(lines) != m.height {
		t.Errorf("after %q the screen has %d lines of %d", keys, len(lines), m.height)
	}
	for i, line := range lines {
		if n := ansi.StringWidth(line); n > m.width {
			t.Errorf("after %q line %d has %d columns of %d: %q", keys, i, n, m.width, line)
		}
		rest := strings.NewReplacer(bold, "", reverse, "", plain, "").Replace(line)
		if strings.ContainsAny(rest, "\x1b\u009b") {
			t.Errorf("after %q line %d has what the terminal would obey: %q", keys, i, line)
		}
		lines[i] = strings.TrimRight(ansi.Strip(line), " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// TestScreen: what keys show, in a small and in a tiny terminal.
func TestScreen(t *testing.T) {
	var out strings.Builder
	for _, size := range [][2]int{{80, 12}, {40, 9}, {1, 1}} {
		m := newModel(NewWindow(10*time.Second), status, Containers)
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		fmt.Fprintf(&out, "== %d x %d\n%s", size[0], size[1], screen(t, m))
		m.Update(sliceMsg(machine(1)))
		for _, keys := range [][]string{{}, {"enter"}, {"down", "enter"}, {"s"}, {"esc"}, {"esc"}, {"f"},
			{"/", "r", "e", "a"}, {"backspace", "enter"}, {"p"}, {"/", "web"}, {"esc"}, {"c", "down", "down"},
			{"?"}, {"?", "G"}, {"g", "k"}} {
			fmt.Fprintf(&out, "-- %s\n%s", strings.Join(keys, " "), screen(t, m, keys...))
		}
	}
	testutil.Golden(t, "testdata/screen.golden", []byte(out.String()))
}

// TestCursor: the cursor stays on its row when others overtake it, and what is frozen stays.
func TestCursor(t *testing.T) {
	m := newModel(NewWindow(10*time.Second), status, Containers)
	m.Update(sliceMsg(machine(1)))
	screen(t, m, "down")
	if got := m.table.Rows[m.cursor].Container; got != "db" {
		t.Fatalf("the cursor is on %s", got)
	}
	m.Update(sliceMsg(slice(2, use{"db", "postgres", 20, 100, []string{"scan"}})))
	if m.cursor != 0 || m.table.Rows[0].Container != "db" {
		t.Errorf("the cursor is on row %d, %+v", m.cursor, m.table.Rows)
	}
	before := screen(t, m, "space")
	m.Update(sliceMsg(slice(3, use{"other", "x", 21, 500, nil})))
	if after := screen(t, m); after != before || !strings.Contains(after, "FROZEN") {
		t.Errorf("frozen:\n%s\nthen:\n%s", before, after)
	}
	if after := screen(t, m, "space"); !strings.Contains(after, "other") {
		t.Errorf("not frozen any more:\n%s", after)
	}
}

// TestProfile: a profile that does not change has shares of what is not idle, and its events
// one after the other.
func TestProfile(t *testing.T) {
	b := profile.NewBuilder()
	b.Meta().Duration = 1500 * time.Millisecond
	l := b.Labels(profile.Labels{Container: "web", Comm: "nginx", PID: 1})
	none := b.Labels(profile.Labels{Comm: "perf", PID: 0})
	idle := b.Labels(profile.Labels{Comm: "swapper", PID: 0})
	clock, faults := b.Event(profile.EventInfo{Name: "cpu-clock"}), b.Event(profile.EventInfo{Name: "page-faults"})
	b.Add(l, 0, clock, 3, 30)
	b.Add(none, 0, clock, 1, 10)
	b.Add(idle, 0, clock, 6, 60)
	b.Add(l, 0, faults, 7, 7)
	w := NewProfile(b.Profile())
	w.Forget(time.Now().Add(time.Hour))
	m := newModel(w, func() Status { return Status{Event: w.eventName(), Note: "x.data"} }, Containers)
	if text := screen(t, m); !strings.HasPrefix(text, "cpu-clock: 10 samples in 1.5 s, 60.0 % idle; x.data\n") ||
		!strings.Contains(text, "\n   75.0        3 web") || !strings.Contains(text, "\n   25.0        1 [host]") {
		t.Errorf("%s", text)
	}
	if text := screen(t, m, "e"); !strings.HasPrefix(text, "page-faults: 7 samples") ||
		strings.Contains(text, "[host]") {
		t.Errorf("%s", text)
	}
	if text := screen(t, m, "e"); !strings.HasPrefix(text, "cpu-clock: ") {
		t.Errorf("%s", text)
	}
}

// TestRunEnds: the screen ends with the recording, with its error, and with the context.
func TestRunEnds(t *testing.T) {
	wrong := errors.New("the recorder has failed")
	for _, want := range []error{nil, wrong} {
		slices := make(chan analysis.Slice, 1)
		slices <- machine(1)
		close(slices)
		var out bytes.Buffer
		o := &Options{Slices: slices, Err: func() error { return want }, Window: time.Second, Status: status}
		if err := Run(t.Context(), strings.NewReader(""), &out, o, Containers); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := &Options{Slices: make(chan analysis.Slice), Window: time.Second, Status: status}
	if err := Run(ctx, strings.NewReader(""), new(bytes.Buffer), o, Containers); err != nil {
		t.Errorf("ended: %v", err)
	}
}

// TestWriteText: so many tables, and the rows that are left out are counted.
func TestWriteText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slices := make(chan analysis.Slice, 1)
		go func() {
			for i := range uint64(3) {
				<-time.After(time.Second)
				slices <- machine(i)
			}
		}()
		var out strings.Builder
		o := &Options{Slices: slices, Window: 10 * time.Second, Status: status}
		text := &TextOptions{Level: Containers, Every: 1500 * time.Millisecond, Tables: 2, Rows: 2}
		if err := WriteText(t.Context(), &out, o, text); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, " s of cpu-clock") != 2 || strings.Count(got, "(2 more)\n") != 2 ||
			!strings.Contains(got, "   70.0       70 web") {
			t.Errorf("%s", got)
		}
	})
}
