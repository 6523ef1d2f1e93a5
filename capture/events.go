// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gantry-tools/gantry/capture/filter"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// subject is on whose behalf an event is opened: a thread, a cgroup or, with
// perfevent.Any, everything.
type subject struct {
	pid    int
	cgroup *sys.FD
}

// eventSet is everything that is open in the kernel.
type eventSet struct {
	opts *Options
	cpus []int
	// sampled and observed are the subjects of samples and of sideband.
	// Sideband of cgroups is everyone's: a task may enter later.
	sampled, observed []subject
	// inherit: children are included. onExec: samples begin when the
	// recorded command is executed, and not with enable.
	inherit, onExec bool

	// filter learns of each event who decides about its samples.
	filter *filter.SampleFilter

	// list is what goes into the file, the sideband last.
	list     []*perf.Event
	sideband *perf.Event
	ring     *perf.Event       // the sideband as the kernel writes it
	groups   []perfevent.Group // as opened: with what was fallen back to
	all      []*perfevent.Event
	leaders  []*perfevent.Event
	// early are the leaders that begin before a command is executed.
	early    []*perfevent.Event
	observer []*perfevent.Event
	notes    []string
}

func (s *eventSet) close() {
	for _, ev := range s.all {
		ev.Close()
	}
}

// chooseCPUs takes the CPUs of the target, which must be online, or all.
func (s *eventSet) chooseCPUs() error {
	online, err := sys.OnlineCPUs()
	if err != nil {
		return fmt.Errorf("list cpus: %w", err)
	}
	s.cpus = online
	if s.opts.Target.CPUs == nil {
		return nil
	}
	s.cpus = slices.Compact(slices.Sorted(slices.Values(s.opts.Target.CPUs)))
	for _, cpu := range s.cpus {
		if !slices.Contains(online, cpu) {
			return hint.Wrap(fmt.Errorf("cpu %d: %w", cpu, perfevent.ErrNoCPU),
				"choose from /sys/devices/system/cpu/online")
		}
	}
	return nil
}

// open opens all events, disabled.
func (s *eventSet) open() error {
	if err := s.openSideband(); err != nil {
		return err
	}
	for i := range s.groups {
		if err := s.openGroup(&s.groups[i]); err != nil {
			return err
		}
	}
	s.sideband.Index = len(s.list)
	s.list = append(s.list, s.sideband)
	return nil
}

func (s *eventSet) openSideband() error {
	a := sidebandAttr(s.inherit)
	if s.opts.NoBPFEvent {
		a.Flags &^= perf.AttrBPFEvent
	}
	if s.opts.dumpsStacks() {
		// perf unwinds by the memory that holds the call frame information,
		// which is mapped read only.
		a.Flags |= perf.AttrMmapData
	}
	s.setSideband(a)
	t := perfevent.Target{Agent: s.opts.Agent}
	gone := 0
	for i, who := range s.observed {
		for _, cpu := range s.cpus {
			t.PID, t.CPU = who.pid, cpu
			ev, err := perfevent.Open(&a, t, nil)
			if errors.Is(err, perfevent.ErrNoTask) {
				gone++
				break
			}
			if err != nil {
				return err
			}
			s.all = append(s.all, ev)
			s.observer = append(s.observer, ev)
			if t.Flags == 0 {
				t.Flags = perfevent.Exact
				a = ev.Attr
				s.setSideband(a)
			}
			s.sideband.IDs = append(s.sideband.IDs, ev.ID)
		}
		if gone == i+1 && gone == len(s.observed) {
			return hint.Wrap(fmt.Errorf("%s: %w", taskNames(s.observed), perfevent.ErrNoTask),
				"choose one that runs (ps -e)")
		}
	}
	return nil
}

func (s *eventSet) setSideband(a perf.Attr) {
	s.sideband, s.ring = perf.NewEvent(inFile(a), "dummy:HG"), perf.NewEvent(a, "dummy:HG")
}

func taskNames(list []subject) string {
	if len(list) == 1 {
		return fmt.Sprintf("thread %d", list[0].pid)
	}
	return fmt.Sprintf("none of %d threads is left", len(list))
}

// openGroup opens one group for each subject on each CPU.
func (s *eventSet) openGroup(g *perfevent.Group) error {
	members := make([]*member, len(g.Events))
	for i := range g.Events {
		members[i] = &member{set: s, group: g, spec: &g.Events[i], leader: i == 0}
		members[i].prepare()
	}
	cpus := s.cpus
	if only := g.Events[0].CPUs; only != nil {
		cpus = slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return !slices.Contains(only, cpu) })
		if len(cpus) == 0 {
			return hint.Wrap(fmt.Errorf("event %q cannot be counted on the chosen CPUs", g.Events[0].Name),
				fmt.Sprintf("it is counted on CPUs %v only; choose one with -C", only))
		}
	}
	for _, who := range s.subjects(g) {
		for _, cpu := range cpus {
			err := s.openMembers(members, who, cpu)
			if errors.Is(err, perfevent.ErrNoTask) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	for _, m := range members {
		if m.event == nil {
			return hint.Wrap(fmt.Errorf("%s: %w", taskNames(s.sampled), perfevent.ErrNoTask),
				"choose one that runs (ps -e)")
		}
		s.list = append(s.list, m.event)
	}
	return nil
}

// subjects are those that a group is opened for. One with a probe cannot be
// inherited, so that it is opened for everyone, and samples of tasks that are
// not followed are dropped.
func (s *eventSet) subjects(g *perfevent.Group) []subject {
	if s.inherit && hasProbe(g) {
		return []subject{{pid: perfevent.Any}}
	}
	return s.sampled
}

func hasProbe(g *perfevent.Group) bool {
	return slices.ContainsFunc(g.Events, func(e perfevent.EventSpec) bool { return e.Probe != nil })
}

func (s *eventSet) openMembers(members []*member, who subject, cpu int) error {
	var leader *perfevent.Event
	for _, m := range members {
		ev, err := m.open(who, cpu, leader)
		if err != nil {
			return fmt.Errorf("event %q: %w", m.spec.Name, err)
		}
		s.all = append(s.all, ev)
		s.setFilter(m, ev)
		if leader != nil {
			continue
		}
		leader = ev
		s.leaders = append(s.leaders, ev)
		if s.onExec && hasProbe(m.group) {
			s.early = append(s.early, ev)
		}
	}
	return nil
}

// setFilter settles who decides about the samples of an event: the kernel, or the
// recorder.
func (s *eventSet) setFilter(m *member, ev *perfevent.Event) {
	inKernel := false
	if f := s.filter.Filter; f != nil && f.InKernel() && m.attachable() {
		err := f.Attach(ev.FD(), m.spec.Probe != nil)
		switch {
		case err == nil:
			inKernel = true
		default:
			s.note("%s: filtered by the recorder, for the kernel takes no program for it: %v", m.spec.Name, err)
		}
	}
	s.filter.AddEvent(ev.ID, ev.Attr.SampleType, inKernel, s.inherit && hasProbe(m.group))
}

// attachable: the kernel's filter can be set on the event without harm to other
// sessions.
func (m *member) attachable() bool {
	return m.spec.Tracepoint == nil && m.attr.Type != perf.TypeTracepoint && !isBPFOutput(&m.attr)
}

// member is one event of a group while it is opened.
type member struct {
	set    *eventSet
	group  *perfevent.Group
	spec   *perfevent.EventSpec
	leader bool

	attr  perf.Attr
	flags perfevent.OpenFlags
	event *perf.Event // from the first success on
}

func (m *member) prepare() {
	s := m.set
	// The counts in a sample are those of one thread and its past; only
	// newer kernels have them with children. A command needs it: it is one.
	// A probe is never inherited: for each child the kernel reads the name
	// of the file again, out of the memory of the process that forks, and
	// the fork fails.
	inherit := s.inherit && (!m.group.SampleRead || s.onExec) && !hasProbe(m.group)
	m.attr = s.opts.sampleAttr(m.group, m.spec, m.leader, inherit, s.onExec && !hasProbe(m.group))
	m.flags = m.spec.OpenFlags
	const levels = perf.AttrExcludeUser | perf.AttrExcludeKernel
	if m.spec.Tracepoint == nil && m.spec.Probe == nil && m.attr.Flags&levels == 0 {
		m.flags |= perfevent.AllowUserOnly
	}
}

// open opens the event once. The first success settles the attr for all.
func (m *member) open(who subject, cpu int, leader *perfevent.Event) (*perfevent.Event, error) {
	t := perfevent.Target{PID: who.pid, Cgroup: who.cgroup, CPU: cpu, Probe: m.spec.Probe, Flags: m.flags,
		Agent: m.set.opts.Agent}
	var group *sys.FD
	if leader != nil {
		group = leader.FD()
	}
	ev, err := perfevent.Open(&m.attr, t, group)
	if err != nil && m.event == nil && m.fallBack(err, t) {
		t.Flags = m.flags
		ev, err = perfevent.Open(&m.attr, t, group)
	}
	if err != nil {
		return nil, err
	}
	if m.event == nil {
		m.settle(ev)
	}
	m.event.IDs = append(m.event.IDs, ev.ID)
	return ev, nil
}

// fallBack takes the timer of the CPU where nothing counts cycles.
func (m *member) fallBack(err error, t perfevent.Target) bool {
	a := &m.spec.Attr
	if a.Type != perf.TypeHardware || a.Config != perf.HWCPUCycles {
		return false
	}
	if errors.Is(err, perfevent.ErrPermission) && t.Flags&perfevent.AllowUserOnly != 0 {
		err = m.tryUserOnly(t)
	}
	if !errors.Is(err, perfevent.ErrNoPMU) {
		return false
	}
	was := m.spec.Name
	*m.spec = perfevent.CPUClock(*m.spec)
	m.prepare()
	m.set.note("%s: no hardware PMU counts it here; recording %s instead", was, m.spec.Name)
	return true
}

// tryUserOnly finds out what is behind a missing permission: the kernel asks
// for it before it looks for a PMU.
func (m *member) tryUserOnly(t perfevent.Target) error {
	a := m.attr
	a.Flags |= perf.AttrExcludeKernel | perf.AttrExcludeHV
	t.Flags = 0
	ev, err := perfevent.Open(&a, t, nil)
	ev.Close()
	return err
}

func (m *member) settle(ev *perfevent.Event) {
	m.attr, m.flags = ev.Attr, perfevent.Exact
	if slices.Contains(ev.Dropped, perfevent.FeatureKernel) {
		m.set.note("%s: not permitted to see the kernel; recording user space only (%s:u)", m.spec.Name, m.spec.Name)
		m.spec.Name += ":u"
	}
	m.event = perf.NewEvent(ev.Attr, m.spec.Name)
	m.event.Index = len(m.set.list)
}

func (s *eventSet) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(s.notes, n) {
		s.notes = append(s.notes, n)
	}
}

// kernelSampled: some samples are of the kernel.
func (s *eventSet) kernelSampled() bool {
	for _, ev := range s.list {
		if ev != s.sideband && ev.Attr.Flags&perf.AttrExcludeKernel == 0 {
			return true
		}
	}
	return false
}

// enable starts the sampling events; those of a command that begin with its
// execution start themselves.
func (s *eventSet) enable() error {
	list := s.leaders
	if s.onExec {
		list = s.early
	}
	for _, ev := range list {
		if err := ev.EnableGroup(); err != nil {
			return fmt.Errorf("enable event: %w", err)
		}
	}
	return nil
}

// disable stops everything.
func (s *eventSet) disable() error {
	var errs []error
	for _, ev := range s.leaders {
		errs = append(errs, ev.DisableGroup())
	}
	for _, ev := range s.observer {
		errs = append(errs, ev.Disable())
	}
	return errors.Join(errs...)
}
