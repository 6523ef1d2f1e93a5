// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"reflect"
	"testing"
)

func fuzzSeeds() []string {
	return []string{
		"cycles", "cycles:u,cs", "{cycles,instructions}:S", "sched:sched_switch:u", "raw_syscalls:*",
		"cpu/event=0x3c,umask=0x1,name=x/u", `uprobe/path="/bin/ls",offset=0x10/`, "mem:0x1000/8:rw:u",
		"L1-dcache-load-misses", "r1a8:pp", "cycles/freq=99,call-graph=dwarf/", "uncore_imc/event=4/",
		"*:*", "[:x", "mem:1/2/3", "a{b}", "cpu//", "cpu/x/:", "{a}:", `cpu/a="b`, "mem:", "mem/x/",
		"uprobe:/bin/ls:main+0x4", `uretprobe:"/a,b/c":"f(a, b)"`, "uprobe:./x:0x10,cs", "{uprobe:/x:y}:S", "uprobe:/:", "uprobe:x:y",
	}
}

// What is parsed and written out gives the same when parsed again.
func FuzzSyntax(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		list, err := parseSyntax(spec)
		if err != nil {
			checkParseError(t, spec, err)
			return
		}
		text := formatSyntax(list)
		again, err := parseSyntax(text)
		if err != nil {
			t.Fatalf("%q is written as %q: %v", spec, text, err)
		}
		forgetPlaces(list)
		forgetPlaces(again)
		if !reflect.DeepEqual(list, again) {
			t.Fatalf("%q is written as %q:\n%+v\n%+v", spec, text, list, again)
		}
	})
}

// A resolved spec has events or an error, and resolving its text again gives
// the same events.
func FuzzParse(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add(s)
	}
	pmus := fixturePMUs()
	f.Fuzz(func(t *testing.T, spec string) {
		groups, err := Parse(spec, pmus)
		if err != nil {
			checkParseError(t, spec, err)
			return
		}
		if len(groups) == 0 {
			t.Fatalf("%q: neither events nor an error", spec)
		}
		list, err := parseSyntax(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(formatSyntax(list), pmus)
		if err != nil || describe(again) != describe(groups) {
			t.Fatalf("%q: %s\nwritten out: %s, %v", spec, describe(groups), describe(again), err)
		}
	})
}

func checkParseError(t *testing.T, spec string, err error) {
	t.Helper()
	var p *ParseError
	if !errors.As(err, &p) {
		t.Fatalf("%q: %v is no ParseError", spec, err)
	}
	if p.Offset < 0 || p.Offset > len(spec) {
		t.Fatalf("%q: offset %d is outside: %v", spec, p.Offset, err)
	}
	if p.Kind == nil || p.Spec != spec {
		t.Fatalf("%q: incomplete error %+v", spec, p)
	}
}

// forgetPlaces clears the positions, which differ after writing out.
func forgetPlaces(list []groupSyntax) {
	for i := range list {
		g := &list[i]
		g.mods.pos = 0
		for j := range g.events {
			ev := &g.events[j]
			ev.mods.pos, ev.length.pos = 0, 0
			for k := range ev.parts {
				ev.parts[k].pos = 0
			}
			for k := range ev.terms {
				ev.terms[k].key.pos, ev.terms[k].value.pos = 0, 0
			}
		}
	}
}

// The format files come from the kernel, but from kernels we have not seen.
func FuzzField(f *testing.F) {
	for _, s := range []string{"config:0-7", "config1:0-15", "config:0-3,32-35", "config:23", "config4:0-63", "config:1-0"} {
		f.Add(s, uint64(0xab))
	}
	f.Fuzz(func(t *testing.T, text string, v uint64) {
		fd, err := parseField(text)
		if err != nil {
			if len(fd.ranges) != 0 {
				t.Fatalf("both %+v and %v", fd, err)
			}
			return
		}
		var a EventSpec
		fd.set(&a.Attr, v&fd.max())
		fd.set(&a.Attr, 0)
		if *configWord(&a.Attr, fd.config) != 0 {
			t.Fatalf("%q: setting zero leaves %#x", text, *configWord(&a.Attr, fd.config))
		}
	})
}
