// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/perf/perfdata"
)

// What perf puts into a file for a spec is what we make of it: the type, the
// configuration, the exclusions and the name.
func TestParseAgreesWithPerf(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Tool("perf", "true"))
	const same = perf.AttrExcludeUser | perf.AttrExcludeKernel | perf.AttrExcludeHV | perf.AttrExcludeIdle |
		perf.AttrExcludeHost | perf.AttrPinned
	pmus := livePMUs(t)
	for _, spec := range []string{
		"cpu-clock:u,task-clock:k,cs,page-faults:uk,minor-faults,major-faults,dummy",
		"context-switches,migrations,alignment-faults:G,emulation-faults:uh,bpf-output,cgroup-switches:ukI,cpu-clock:uD",
		"sched:sched_switch:u,raw_syscalls:*,sched:sched_wak*:k",
		"{cpu-clock:k,page-faults}:u",
		"mem:0x1000:w:u", "mem:0x1000:x:u",
		"cpu-clock/freq=99/,task-clock/period=1000000/u",
		"cpu-clock/name=mine/u",
	} {
		theirs := perfEvents(t, spec)
		groups, err := Parse(spec, pmus)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		var ours []EventSpec
		for _, g := range groups {
			ours = append(ours, g.Events...)
		}
		if len(ours) != len(theirs) {
			t.Errorf("%q: %d events, perf has %d", spec, len(ours), len(theirs))
			continue
		}
		// perf lists the tracepoints of a glob as the directory does.
		byConfig := map[uint64]*perf.Event{}
		for _, ev := range theirs {
			byConfig[uint64(ev.Attr.Type)<<32|ev.Attr.Config] = ev
		}
		for _, s := range ours {
			ev := byConfig[uint64(s.Attr.Type)<<32|s.Attr.Config]
			if ev == nil {
				t.Errorf("%q: perf has no event of type %d, config %#x", spec, s.Attr.Type, s.Attr.Config)
				continue
			}
			a, b := &s.Attr, &ev.Attr
			if a.BPType != b.BPType || a.Config1 != b.Config1 || a.Config2 != b.Config2 || a.Flags&same != b.Flags&same {
				t.Errorf("%q: ours %+v%s, perf's %+v%s", spec, *a, flagLetters(a.Flags), *b, flagLetters(b.Flags))
			}
			if (s.Terms.Freq || s.Terms.Period) && (a.SampleCount != b.SampleCount || a.Flags&perf.AttrFreq != b.Flags&perf.AttrFreq) {
				t.Errorf("%q: ours every %d, perf's every %d", spec, a.SampleCount, b.SampleCount)
			}
			if s.Name != ev.Name {
				t.Errorf("%q: ours is called %q, perf's %q", spec, s.Name, ev.Name)
			}
		}
	}
}

// recordTrue has perf record an event of a command.
func recordTrue(t *testing.T, path, spec string) {
	t.Helper()
	if _, stderr, err := testutil.RecordPerf(t, path, func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "-B", "-N", "-o", path, "-e", spec, "true")
	}); err != nil {
		t.Fatalf("perf record -e %s: %v\n%s", spec, err, stderr)
	}
}

// perfEvents records with perf and reads the events of the file.
func perfEvents(t *testing.T, spec string) []*perf.Event {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perf.data")
	recordTrue(t, path, spec)
	r, err := perfdata.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return r.Events().List()
}
