// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strings"
	"testing"
)

func TestFolded(t *testing.T) {
	var host LabelsID
	build := func(withFaults bool) *Profile {
		b := NewBuilder()
		clock, faults := b.Event(EventInfo{Name: "cpu-clock"}), b.Event(EventInfo{Name: "page;faults"})
		frame := func(f Frame) StackID { return b.Stack([]FrameID{b.Frame(f)}) }
		host = b.Labels(Labels{Comm: "sh"})
		web := b.Labels(Labels{Container: "web;1", Comm: "a\nb\x1b[2J"})
		b.Add(host, frame(Frame{Name: "f", DSO: "libc.so.6"}), clock, 1, 10)
		b.Add(host, frame(Frame{Name: "f", DSO: "libm.so.6"}), clock, 2, 20)
		b.Add(web, frame(Frame{DSO: "libc.so.6", Addr: 1}), clock, 1, 10)
		b.Add(web, frame(Frame{DSO: "[vdso]"}), clock, 1, 10)
		b.Add(web, frame(Frame{Addr: 7}), clock, 1, 10)
		b.Add(b.Labels(Labels{}), 0, clock, 1, 10)
		if withFaults {
			b.Add(host, 0, faults, 5, 5)
		}
		return b.Profile()
	}
	one := build(false)

	for _, tt := range []struct {
		name string
		o    *FoldedOptions
		want string
	}{
		{"default", nil, "[unknown] 1\nsh;f 3\n" +
			"web:1;a\\x0ab\\x1b[2J;[libc.so.6] 1\nweb:1;a\\x0ab\\x1b[2J;[unknown] 1\nweb:1;a\\x0ab\\x1b[2J;[vdso] 1\n"},
		{"values", &FoldedOptions{Values: true, Keep: func(s Sample) bool { return s.Labels == host }}, "sh;f 30\n"},
		{"no roots", &FoldedOptions{Roots: func(*Labels) []string { return nil }},
			"[unknown] 1\n[libc.so.6] 1\n[unknown] 1\n[vdso] 1\nf 3\n"},
	} {
		if got := folded(t, one, tt.o); got != tt.want {
			t.Errorf("%s: got:\n%swant:\n%s", tt.name, got, tt.want)
		}
	}

	got := folded(t, build(true), nil)
	if !strings.HasPrefix(got, "cpu-clock 1\ncpu-clock;sh;f 3\n") || !strings.HasSuffix(got, "\npage:faults;sh 5\n") {
		t.Errorf("two events: got:\n%s", got)
	}
}

func TestPlainKernel(t *testing.T) {
	got := folded(t, small("web"), &FoldedOptions{PlainKernel: true})
	if want := "web;app;main;web_hot 3\nweb;app;main;web_hot;vfs_read 1\n"; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
