// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/perf"
)

// describe writes what a spec became, one word per event: its name, type,
// config and what else is not zero.
func describe(groups []Group) string {
	var b strings.Builder
	for _, g := range groups {
		if g.Braces {
			b.WriteString("{ ")
		}
		for _, s := range g.Events {
			a := s.Attr
			fmt.Fprintf(&b, "%s=%d:%#x", s.Name, a.Type, a.Config)
			for i, v := range []uint64{a.Config1, a.Config2, uint64(a.BPType), a.SampleCount} {
				if v != 0 {
					fmt.Fprintf(&b, ",%s=%#x", []string{"c1", "c2", "bp", "n"}[i], v)
				}
			}
			b.WriteString(flagLetters(a.Flags) + " ")
		}
		if g.Braces {
			b.WriteString("} ")
		}
		if g.SampleRead {
			b.WriteString("S ")
		}
	}
	return strings.TrimSpace(b.String())
}

// flagLetters: -u means that user space is excluded.
func flagLetters(f perf.AttrFlags) string {
	var b strings.Builder
	for _, l := range []struct {
		flag perf.AttrFlags
		text string
	}{
		{perf.AttrExcludeUser, "-u"}, {perf.AttrExcludeKernel, "-k"}, {perf.AttrExcludeHV, "-h"},
		{perf.AttrExcludeIdle, "-idle"}, {perf.AttrExcludeGuest, "-guest"}, {perf.AttrExcludeHost, "-host"},
		{perf.AttrPinned, "+pinned"}, {perf.AttrExclusive, "+exclusive"}, {perf.AttrFreq, "+freq"},
	} {
		if f&l.flag != 0 {
			b.WriteString(l.text)
		}
	}
	if p := f.PreciseIP(); p > 0 {
		fmt.Fprintf(&b, "+p%d", p)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		// Software and hardware names and their aliases.
		"cpu-clock":                 "cpu-clock=1:0x0",
		"cs,context-switches":       "cs=1:0x3 context-switches=1:0x3",
		"cgroup-switches,dummy":     "cgroup-switches=1:0xb dummy=1:0x9",
		"minor-faults,major-faults": "minor-faults=1:0x5 major-faults=1:0x6",
		"cycles,cpu-cycles":         "cycles=0:0x0 cpu-cycles=0:0x0",
		"branches":                  "branches=0:0x4",
		"stalled-cycles-backend":    "stalled-cycles-backend=0:0x8",
		" cycles , instructions ":   "cycles=0:0x0 instructions=0:0x1",
		// Caches: cache | op<<8 | result<<16.
		"L1-dcache-load-misses":    "L1-dcache-load-misses=3:0x10000",
		"L1-dcache-loads":          "L1-dcache-loads=3:0x0",
		"L1-dcache-stores":         "L1-dcache-stores=3:0x100",
		"LLC-store-misses":         "LLC-store-misses=3:0x10102",
		"LLC":                      "LLC=3:0x2",
		"dTLB-prefetch-misses":     "dTLB-prefetch-misses=3:0x10203",
		"iTLB-load-misses":         "iTLB-load-misses=3:0x10004",
		"branch-load-misses":       "branch-load-misses=3:0x10005",
		"node-prefetches":          "node-prefetches=3:0x206",
		"l1d-misses-store":         "l1d-misses-store=3:0x10100",
		"L1-icache-prefetch-refs":  "L1-icache-prefetch-refs=3:0x201",
		"L1-data-speculative-read": "L1-data-speculative-read=3:0x200",
		// Modifiers.
		"cycles:u":    "cycles:u=0:0x0-k-h",
		"cycles:uk":   "cycles:uk=0:0x0-h",
		"cycles:k":    "cycles:k=0:0x0-u-h",
		"cycles:pp":   "cycles:pp=0:0x0-guest+p2",
		"cycles:uppp": "cycles:uppp=0:0x0-k-h-guest+p3",
		"cycles:G":    "cycles:G=0:0x0-host",
		"cycles:H":    "cycles:H=0:0x0-guest",
		"cycles:DeI":  "cycles:DeI=0:0x0-idle+pinned+exclusive",
		// Raw.
		"r1a8":     "r1a8=4:0x1a8",
		"r0x1a8:u": "r0x1a8:u=4:0x1a8-k-h",
		// Devices.
		"cpu/event=0x3c,umask=0x1/":         "cpu/event=0x3c,umask=0x1/=4:0x13c",
		"cpu/event=0x3c/u":                  "cpu/event=0x3c/u=4:0x3c-k-h",
		"cpu/event=0x3c/:u":                 "cpu/event=0x3c/u=4:0x3c-k-h",
		"cpu/event=1,inv,name=mine/":        "mine=4:0x800001",
		"cpu/split=0xab/":                   "cpu/split=0xab/=4:0xa0000000b",
		"cpu/ldlat=30,mem-loads/":           "cpu/ldlat=30,mem-loads/=4:0x1cd,c1=0x3",
		"cpu/mem-loads,ldlat=30/":           "cpu/mem-loads,ldlat=30/=4:0x1cd,c1=0x1e",
		"cpu/cache-misses/":                 "cpu/cache-misses/=4:0x412e",
		"cpu/cycles/":                       "cpu/cycles/=0:0x0",
		"cpu/config=0x1234,config1=1/":      "cpu/config=0x1234,config1=1/=4:0x1234,c1=0x1",
		"msr/tsc/":                          "msr/tsc/=10:0x0",
		"software/cpu-clock/":               "software/cpu-clock/=1:0x0",
		"topdown":                           "topdown=4:0x400",
		"uncore_imc/event=4/":               "uncore_imc_0/event=4/=20:0x4 uncore_imc_1/event=4/=21:0x4",
		"imc/event=4/":                      "uncore_imc_0/event=4/=20:0x4 uncore_imc_1/event=4/=21:0x4",
		"uncore_imc_1/cas_count_read/":      "uncore_imc_1/cas_count_read/=21:0x4",
		"cas_count_read":                    "cas_count_read=21:0x4",
		"cpu/event=0x3c,period=1000/":       "cpu/event=0x3c,period=1000/=4:0x3c,n=0x3e8",
		"cycles/freq=99/":                   "cycles/freq=99/=0:0x0,n=0x63+freq",
		"cpu-clock/freq=99,call-graph=fp/u": "cpu-clock/freq=99,call-graph=fp/u=1:0x0,n=0x63-k-h+freq",
		// Tracepoints.
		"sched:sched_switch":         "sched:sched_switch=2:0x13c",
		"sched:sched_switch:u":       "sched:sched_switch=2:0x13c-k-h",
		"raw_syscalls:*":             "raw_syscalls:sys_enter=2:0x14 raw_syscalls:sys_exit=2:0x13",
		"syscalls:sys_*_openat":      "syscalls:sys_enter_openat=2:0x2bc syscalls:sys_exit_openat=2:0x2be",
		"sch*:sched_w*":              "sched:sched_wakeup=2:0x13e",
		"*:sys_e[nx]*t":              "raw_syscalls:sys_exit=2:0x13 syscalls:sys_enter_openat=2:0x2bc syscalls:sys_exit_openat=2:0x2be",
		"ftrace:function":            "ftrace:function=2:0x1",
		"probe:uk":                   "probe:uk=2:0x5dc",
		"sched:sched_switch/name=x/": "x=2:0x13c",
		// Breakpoints.
		"mem:0x1000":        "mem:0x1000=5:0x0,c1=0x1000,c2=0x4,bp=0x3",
		"mem:0x1000:w":      "mem:0x1000:w=5:0x0,c1=0x1000,c2=0x4,bp=0x2",
		"mem:0x1000/8:rw:u": "mem:0x1000/8:rw:u=5:0x0,c1=0x1000,c2=0x8,bp=0x3-k-h",
		"mem:4096:u":        "mem:4096:u=5:0x0,c1=0x1000,c2=0x4,bp=0x3-k-h",
		"mem:0x1000:x":      "mem:0x1000:x=5:0x0,c1=0x1000,c2=0x8,bp=0x4",
		// Groups.
		"{cycles,instructions}":     "{ cycles=0:0x0 instructions=0:0x1 }",
		"{cycles,instructions:k}:u": "{ cycles=0:0x0-k-h instructions:k=0:0x1-h }",
		"{cycles,cs}:S,faults":      "{ cycles=0:0x0 cs=1:0x3 } S faults=1:0x2",
		"{raw_syscalls:*}":          "{ raw_syscalls:sys_enter=2:0x14 raw_syscalls:sys_exit=2:0x13 }",
		"{cpu/event=1/,cs}:D":       "{ cpu/event=1/=4:0x1+pinned cs=1:0x3+pinned }",
	} {
		groups, err := Parse(spec, fixturePMUs())
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		if got := describe(groups); got != want {
			t.Errorf("%q:\n got %s\nwant %s", spec, got, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for spec, want := range map[string]struct {
		kind   error
		column int
		text   string
	}{
		"":                            {ErrSyntax, 1, "an event name is missing"},
		"cycles,":                     {ErrSyntax, 8, "found the end"},
		"cycles,cycels":               {ErrUnknownEvent, 8, "did you mean cycles"},
		"context-swithces":            {ErrUnknownEvent, 1, "context-switches"},
		"L1-dcache-load-mises":        {ErrUnknownEvent, 1, "L1-dcache-load-misses"},
		"iTLB-stores":                 {ErrUnknownEvent, 1, "unknown event"},
		"cycles:uz":                   {ErrUnknownModifier, 9, "unknown modifier z"},
		"{cycles}:uz":                 {ErrUnknownModifier, 11, "unknown modifier z"},
		"cycles:u/freq=9/":            {ErrSyntax, 8, "behind the terms"},
		"cycles:W":                    {ErrUnsupported, 8, "weak groups"},
		"cycles:uW":                   {ErrUnsupported, 9, "weak groups"},
		"cycles:pppp":                 {ErrUnknownModifier, 8, "three times"},
		"{cycles":                     {ErrSyntax, 8, "} is missing"},
		"{cycles}u":                   {ErrSyntax, 9, "unexpected 'u'"},
		"{}":                          {ErrSyntax, 2, "event name is missing"},
		"cycles}":                     {ErrSyntax, 7, "unexpected '}'"},
		"cpu/event=0x3c":              {ErrSyntax, 15, "/ is missing"},
		"cpu/event=/":                 {ErrSyntax, 11, "value of event is missing"},
		"cpu/event=zz/":               {ErrTermValue, 11, "no number"},
		"cpu/event=0x100/":            {ErrTermValue, 11, "at most 0xff"},
		"cpu/evnt=1/":                 {ErrUnknownTerm, 5, "did you mean event"},
		"cpu/broken=1/":               {ErrUnknownTerm, 5, "unknown config"},
		"cpu/zzzzzzzz=1/":             {ErrUnknownTerm, 5, "the device knows"},
		"cpuu/event=1/":               {ErrUnknownPMU, 1, "did you mean cpu"},
		"msr":                         {ErrUnknownEvent, 1, "did you mean msr/tsc/"},
		"cycles/event=1/":             {ErrUnknownTerm, 8, "unknown term"},
		"cycles/call-graph=lbr/":      {ErrUnsupported, 19, "lbr"},
		"cycles/call-graph=x/":        {ErrTermValue, 19, "fp, dwarf or no"},
		"cycles/stack-size=70000/":    {ErrTermValue, 19, "at most 65528"},
		"cycles/overwrite/":           {ErrUnsupported, 8, "overwrite"},
		"cycles/period/":              {ErrTermValue, 8, "needs a value"},
		"sched:sched_swich":           {ErrUnknownEvent, 7, "sched:sched_switch"},
		"shced:sched_switch":          {ErrUnknownEvent, 1, "did you mean sched"},
		"nope:*":                      {ErrUnknownEvent, 1, "no tracepoint matches"},
		"a:b:c:d":                     {ErrSyntax, 7, "more than system:event:modifiers"},
		"mem:zz":                      {ErrTermValue, 5, "no number"},
		"mem:0x1:rx":                  {ErrTermValue, 9, "cannot be one on access"},
		"mem:0x1/:w":                  {ErrSyntax, 9, "length is missing"},
		"kprobe/retprobe/":            {ErrTermValue, 1, "func=NAME"},
		"uprobe/path=/":               {ErrSyntax, 13, "value of path"},
		"uprobe/path=\"/bin/ls/":      {ErrSyntax, 14, "closing quote"},
		"cycles instructions":         {ErrSyntax, 8, "a comma belongs"},
		"cpu/mem-loads=3/":            {ErrTermValue, 15, "takes no value"},
		strings.Repeat("x", 64<<10+1): {ErrSyntax, 1, "longer than 64 kB"},
	} {
		groups, err := Parse(spec, fixturePMUs())
		var p *ParseError
		if !errors.As(err, &p) {
			t.Errorf("%q: got %v, %v, want a ParseError", spec, describe(groups), err)
			continue
		}
		if !errors.Is(err, want.kind) || p.Offset+1 != want.column || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%.40q:\n got column %d, %v\nwant column %d, %v, %q", spec, p.Offset+1, err, want.column, want.kind, want.text)
		}
	}
}

func TestParseProbe(t *testing.T) {
	groups, err := Parse(`uprobe/path="/bin/my ls",offset=0x10,retprobe/,kprobe/func=vfs_read/`, fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	u, k := groups[0].Events[0], groups[1].Events[0]
	if u.Probe == nil || *u.Probe != (Probe{Name: "/bin/my ls", Offset: 0x10}) || u.Attr.Config != 1 || u.Attr.Type != 9 {
		t.Errorf("uprobe: %+v, %+v", u.Probe, u.Attr)
	}
	if k.Probe == nil || *k.Probe != (Probe{Name: "vfs_read"}) || k.Attr.Type != 8 {
		t.Errorf("kprobe: %+v, %+v", k.Probe, k.Attr)
	}
}

func TestParseTerms(t *testing.T) {
	groups, err := Parse("cycles/call-graph=dwarf,stack-size=4096,max-stack=30,no-inherit,time=0/", fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	want := Terms{CallGraph: "dwarf", StackSize: 4096, MaxStack: 30, NoInherit: true, NoTime: true}
	if got := groups[0].Events[0].Terms; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseUncoreCPUsAndScale(t *testing.T) {
	groups, err := Parse("uncore_imc_0/event=1/,topdown,cycles:P", fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	if got := groups[0].Events[0].CPUs; !slices.Equal(got, []int{0, 8}) {
		t.Errorf("cpus of an uncore device: %v", got)
	}
	if s := groups[1].Events[0]; s.Scale != 2.5 || s.Unit != "slots" || s.PMU != "cpu" {
		t.Errorf("scale %v, unit %q, pmu %q", s.Scale, s.Unit, s.PMU)
	}
	if s := groups[2].Events[0]; s.OpenFlags&PreciseMax == 0 || s.CPUs != nil {
		t.Errorf("cycles:P: flags %v, cpus %v", s.OpenFlags, s.CPUs)
	}
}

func TestParseSampleRead(t *testing.T) {
	groups, err := Parse("{cycles,cs}:S", fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	leader, member := groups[0].Events[0].Attr, groups[0].Events[1].Attr
	if leader.SampleType&perf.SampleRead == 0 || leader.ReadFormat&perf.FormatGroup == 0 {
		t.Errorf("leader does not read the group: %+v", leader)
	}
	if member.SampleType != 0 {
		t.Errorf("member samples: %+v", member)
	}
}

func TestParseHybrid(t *testing.T) {
	groups, err := Parse("cycles:u,cs", hybridPMUs())
	if err != nil {
		t.Fatal(err)
	}
	want := "cpu_core/cycles/u=0:0x400000000-k-h cpu_atom/cycles/u=0:0xa00000000-k-h cs=1:0x3"
	if got := describe(groups); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if cpus := groups[1].Events[0].CPUs; len(cpus) != 8 || cpus[0] != 8 {
		t.Errorf("cpus of cpu_atom: %v", cpus)
	}
}

func TestParseWithoutTracefs(t *testing.T) {
	pmus := fixturePMUs()
	pmus.trace = &Tracefs{FS: fixtureFS(nil)}
	_, err := Parse("sched:sched_switch", pmus)
	if !errors.Is(err, ErrUnknownEvent) {
		t.Errorf("got %v, want an unknown event", err)
	}
	if _, err := Parse("cycles:u", pmus); err != nil {
		t.Errorf("modifiers need no tracefs: %v", err)
	}
}

func TestCPUClock(t *testing.T) {
	groups, err := Parse("cycles:upp,cycles/freq=99/,cycles/period=1000000/", fixturePMUs())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		s := CPUClock(g.Events[0])
		got = append(got, describe([]Group{{Events: []EventSpec{s}}}))
	}
	want := []string{"cpu-clock:u=1:0x0-k-h-guest", "cpu-clock=1:0x0,n=0x63+freq", "cpu-clock=1:0x0"}
	if !slices.Equal(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

// Every name that the error messages suggest must be one that is known.
func TestGenericNamesAreKnown(t *testing.T) {
	for _, n := range genericNames() {
		if _, ok := genericEvent(n); !ok {
			t.Errorf("%q is suggested but not known", n)
		}
	}
}
