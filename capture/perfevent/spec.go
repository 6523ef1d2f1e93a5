// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"strings"

	"github.com/gantry-tools/gantry/perf"
)

// Group are events that are scheduled together: `{a,b}` in a spec. An event
// on its own is a group of one.
type Group struct {
	Events []EventSpec
	// Braces: it was written as a group, also if it holds one event.
	Braces bool
	// SampleRead: only the leader samples, and each of its samples holds
	// the counts of all members (`{a,b}:S`). The leader's attr has the
	// sample type and read format for it.
	SampleRead bool
}

// EventSpec is one event, ready to be opened.
type EventSpec struct {
	// Name is what perf would show for it: as the user wrote it, or the
	// term name=. A glob has been replaced by what it stands for.
	Name string
	// Attr has the type, configuration, exclusions, precision, and with
	// Period or Freq the count. What to sample is the recorder's to add.
	Attr perf.Attr
	// OpenFlags are for Target.Flags.
	OpenFlags OpenFlags
	// Tracepoint is set if the event is one.
	Tracepoint *Tracepoint
	// Probe is for Target.Probe if it is not nil.
	Probe *Probe
	// PMU is the name of the device in sysfs if the event was written with
	// one, or "" for the kernel's generic events.
	PMU string
	// CPUs are the only CPUs the event can be opened on, nil for all:
	// uncore devices and the two kinds of core of hybrid machines.
	CPUs []int
	// Scale and Unit turn counts into something else; Scale is 1 if the
	// device says nothing.
	Scale float64
	Unit  string
	// Terms that override the command line for this event.
	Terms Terms
}

// Terms are settings written with one event, as in `cycles/freq=99/`.
type Terms struct {
	// Named: the name was given (name=).
	Named bool
	// Period or Freq was given and is in the attr.
	Period, Freq bool
	// CallGraph is "" (not given), "no", "fp" or "dwarf".
	CallGraph string
	StackSize uint32 // bytes of stack to copy for dwarf, 0 if not given
	MaxStack  uint16 // frames, 0 if not given
	// NoInherit and Inherit: whether children are counted was given.
	NoInherit, Inherit bool
	// NoTime: time=0, samples need no time.
	NoTime bool
}

// Tracepoint is a static event of the kernel, or a probe defined in tracefs.
type Tracepoint struct {
	System, Name string
	ID           uint64 // attr.config
	// Format is its format file where the kernel has none; "" is the kernel's.
	Format string
}

func (t *Tracepoint) String() string { return t.System + ":" + t.Name }

// Parse reads a spec of events as perf -e takes it: names separated by commas,
// `{a,b}` groups, modifiers behind a colon. The error is a *ParseError and
// says where. pmus is asked for devices and tracepoints only if the spec
// names some.
func Parse(spec string, pmus *PMUs) ([]Group, error) {
	list, err := parseSyntax(spec)
	if err != nil {
		return nil, err
	}
	var groups []Group
	for i := range list {
		g, err := resolveGroup(&list[i], pmus)
		if err != nil {
			return nil, located(err, spec)
		}
		groups = append(groups, g...)
	}
	return groups, nil
}

// ParseAll is Parse for several -e options.
func ParseAll(specs []string, pmus *PMUs) ([]Group, error) {
	var all []Group
	for _, spec := range specs {
		g, err := Parse(spec, pmus)
		if err != nil {
			return nil, err
		}
		all = append(all, g...)
	}
	return all, nil
}

// CPUClock is the spec that stands in for s where no hardware counts: same
// exclusions, the kernel's timer instead. The caller announces it.
func CPUClock(s EventSpec) EventSpec {
	a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWCPUClock, Flags: s.Attr.Flags.WithPreciseIP(0)}
	if s.Terms.Freq {
		a.SampleCount = s.Attr.SampleCount
	} else {
		a.Flags &^= perf.AttrFreq
		s.Terms.Period = false // so many cycles are not so many nanoseconds
	}
	name := "cpu-clock"
	if mods := exclusionModifiers(a.Flags); mods != "" {
		name += ":" + mods
	}
	return EventSpec{Name: name, Attr: a, Scale: 1, Terms: s.Terms}
}

// exclusionModifiers spells the exclusions of an attr as modifiers.
func exclusionModifiers(f perf.AttrFlags) string {
	const all = perf.AttrExcludeUser | perf.AttrExcludeKernel | perf.AttrExcludeHV
	if f&all == 0 {
		return ""
	}
	var b strings.Builder
	for _, m := range []struct {
		flag perf.AttrFlags
		char byte
	}{{perf.AttrExcludeUser, 'u'}, {perf.AttrExcludeKernel, 'k'}, {perf.AttrExcludeHV, 'h'}} {
		if f&m.flag == 0 {
			b.WriteByte(m.char)
		}
	}
	return b.String()
}
