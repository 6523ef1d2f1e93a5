// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/profile"
)

// bpfProfile has two loads of one program, with a function of the kernel that
// the second calls, and a program whose name is hostile.
func bpfProfile() *profile.Profile {
	b := profile.NewBuilder()
	event := b.Event(profile.EventInfo{Name: "cpu-clock", Unit: "nanoseconds"})
	frame := func(name, program, loader string) profile.FrameID {
		return b.Frame(profile.Frame{Name: name, DSO: name, Kernel: true, Program: program, Loader: loader})
	}
	l := b.Labels(profile.Labels{})
	run := frame("bpf_test_run", "", "")
	look := frame("htab_map_lookup", "", "")
	add := func(value uint64, leafFirst ...profile.FrameID) { b.Add(l, b.Stack(leafFirst), event, 1, value) }
	add(40, frame("bpf_prog_1_f", "f#1", "web"), run)
	add(20, frame("bpf_prog_2_g", "f#1", "web"), frame("bpf_prog_1_f", "f#1", "web"), run)
	add(10, look, frame("bpf_prog_1_f", "f#2", "[host]"), run)
	add(5, frame("bpf_prog_1_f", "f#2", "[host]"), run)
	add(15, run)
	add(10, frame("bpf_prog_3_h", "\x1b[31mh#3", "[unknown]"))
	return b.Profile()
}

func TestBPFKeys(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Sort: []Key{KeyBPF}}, `60.00% f#1; 25.00% -; 10.00% \x1b[31mh#3; 5.00% f#2`},
		{Options{Sort: []Key{KeyBPF}, Children: true}, `90.00% 25.00% -; 60.00% 60.00% f#1; 15.00% 5.00% f#2; 10.00% 10.00% \x1b[31mh#3`},
		{Options{Sort: []Key{KeyBPFLoader}}, `60.00% web; 25.00% -; 10.00% [unknown]; 5.00% [host]`},
		{Options{Sort: []Key{KeyBPFLoader, KeyBPF}}, `60.00% web f#1; 25.00% - -; 10.00% [unknown] \x1b[31mh#3; 5.00% [host] f#2`},
		{Options{Sort: []Key{KeySym}}, `45.00% [k] bpf_prog_1_f; 20.00% [k] bpf_prog_2_g; 15.00% [k] bpf_test_run; 10.00% [k] bpf_prog_3_h; 10.00% [k] htab_map_lookup`},
	} {
		var out bytes.Buffer
		if err := Text(&out, bpfProfile(), &tt.o); err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(out.String()) {
			if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
				rows = append(rows, strings.Join(f, " "))
			}
		}
		if got := strings.Join(rows, "; "); got != tt.want {
			t.Errorf("%v, children %v: %s\nwant %s", tt.o.Sort, tt.o.Children, got, tt.want)
		}
	}
}

func TestBPFKeysInJSON(t *testing.T) {
	var out bytes.Buffer
	if err := JSON(&out, bpfProfile(), &Options{Sort: []Key{KeyBPF, KeyBPFLoader}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`{"keys":{"bpf":"f#1","bpfcontainer":"web"},"samples":2,`, `{"keys":{"bpf":"","bpfcontainer":""},"samples":2,`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
}
