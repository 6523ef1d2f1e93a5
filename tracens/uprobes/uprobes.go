// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package uprobes is a trace system of tracing namespaces: probes in the binaries of a
// container, which fire for the tasks of its cgroup only. It needs no change to the
// program, and the cgroup hierarchy of v2.
//
// Commands of the options file: "uprobe EVENT CGROUP PATH:PLACE [BUILDID]", where CGROUP is
// the path of a cgroup in its hierarchy (as in /proc/PID/cgroup), PATH a binary as its
// tasks see it, and PLACE a function, a function and an offset, or an offset into the
// file; with BUILDID the binary has to be that one. "uprobe -EVENT" ends a probe. The
// events are uprobes.NAMESPACE:EVENT.
package uprobes

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
	"github.com/gantry-tools/gantry/tracens"
	"github.com/gantry-tools/gantry/tracens/cgroup"
	"github.com/gantry-tools/gantry/tracens/events"
)

// SystemName is the first part of the events' names.
const SystemName = "uprobes"

// System is the trace system.
type System struct {
	// Events is the set of a namespace.
	Events func(*tracens.Namespace) *events.Set
}

var _ tracens.System = (*System)(nil)

// probes are those of a namespace.
type probes struct {
	set *events.Set

	mu     sync.Mutex
	byName map[string]*probe
}

// Name implements tracens.System.
func (*System) Name() string { return SystemName }

func (s *System) of(ns *tracens.Namespace) *probes {
	p, _ := ns.Value(s).(*probes)
	return p
}

// Create implements tracens.System.
func (s *System) Create(ns *tracens.Namespace) error {
	ns.SetValue(s, &probes{set: s.Events(ns), byName: make(map[string]*probe)})
	return nil
}

// Remove implements tracens.System.
func (s *System) Remove(ns *tracens.Namespace) error {
	p := s.of(ns)
	if p == nil {
		return syscall.ENOENT
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.byName {
		p.remove(name)
	}
	return nil
}

// IsBusy implements tracens.System: a probe is not one who uses the namespace.
func (*System) IsBusy(*tracens.Namespace) bool { return false }

// Parse implements tracens.System.
func (s *System) Parse(ns *tracens.Namespace, command string) error {
	words := strings.Fields(command)
	if words[0] != "uprobe" {
		return tracens.ErrNotMine
	}
	p := s.of(ns)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(words) == 2 && words[1][0] == '-' {
		name := words[1][1:]
		if p.byName[name] == nil {
			return fmt.Errorf("probe %q: %w", name, syscall.ENOENT)
		}
		p.remove(name)
		return nil
	}
	if len(words) != 4 && len(words) != 5 {
		return fmt.Errorf("%q: uprobe EVENT CGROUP PATH:PLACE [BUILDID], or uprobe -EVENT: %w", command, syscall.EINVAL)
	}
	if p.byName[words[1]] != nil {
		return fmt.Errorf("probe %q: %w", words[1], syscall.EEXIST)
	}
	if len(p.byName) >= maxProbes {
		return fmt.Errorf("%d probes: %w", maxProbes, syscall.EMFILE)
	}
	one, err := open(words[1:])
	if err != nil {
		return fmt.Errorf("%q: %w", command, err)
	}
	one.event = p.set.Add(SystemName, one.description, one)
	one.set = p.set
	p.byName[words[1]] = one
	go one.readAll()
	return nil
}

// maxProbes bounds the probes of a namespace.
const maxProbes = 64

// remove ends a probe; the caller holds mu.
func (p *probes) remove(name string) {
	one := p.byName[name]
	delete(p.byName, name)
	p.set.Drop(one.event)
	close(one.stop)
	<-one.stopped
}

// Show implements tracens.System.
func (s *System) Show(ns *tracens.Namespace) (string, error) {
	p := s.of(ns)
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		fmt.Fprintf(&b, "uprobe %s\n", p.byName[name].command)
	}
	if b.Len() == 0 {
		b.WriteString("# uprobes: uprobe EVENT CGROUP PATH:PLACE\n")
	}
	return b.String(), nil
}

// probe is one probe: an event on each CPU, whose samples are its records. It is an
// events.Switch.
type probe struct {
	command     string
	description *events.Description
	set         *events.Set
	event       *events.Event
	cpus        []*cpu
	layout      perf.Layout
	stop        chan struct{}
	stopped     chan struct{}
	on          chan struct{} // has room for one word: it was enabled
}

type cpu struct {
	event *perfevent.Event
	ring  *perfevent.Ring
}

// open opens a probe as a command describes it.
func open(words []string) (p *probe, err error) {
	d, err := events.Parse(words[0] + " u64 address")
	if err != nil {
		return nil, err
	}
	group, err := cgroup.Open(words[1])
	if err != nil {
		return nil, err
	}
	defer group.Close()
	processes, err := cgroup.Processes(group)
	if err == nil && len(processes) == 0 {
		err = fmt.Errorf("no process is in it: %w", syscall.ESRCH)
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", words[1], err)
	}
	path, place, ok := strings.Cut(words[2], ":")
	if !ok {
		return nil, fmt.Errorf("%q is not PATH:PLACE: %w", words[2], syscall.EINVAL)
	}
	// Found below the root of the container, whatever it has for links.
	file, err := new(procroot.Files).Root(procfs.New("").Proc(processes[0]), nil).Find(path)
	if err != nil {
		return nil, fmt.Errorf("%s in the container: %w", path, err)
	}
	defer file.Close()
	at := fmt.Sprintf("/proc/self/fd/%d", file.Int())
	if len(words) == 4 {
		if err := checkBuildID(at, words[3]); err != nil {
			return nil, err
		}
	}
	pmus := perfevent.NewPMUs(nil)
	defer pmus.Close()
	list, err := perfevent.Parse("uprobe:"+at+":"+place, pmus)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", syscall.EINVAL, err)
	}
	p = &probe{command: strings.Join(words, " "), description: d, stop: make(chan struct{}),
		stopped: make(chan struct{}), on: make(chan struct{}, 1)}
	if err := p.openCPUs(&list[0].Events[0], group); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// checkBuildID checks that a binary is the right one.
func checkBuildID(name, want string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	id, err := buildid.FromFile(file, info.Size())
	if err != nil {
		return fmt.Errorf("%w: %w", syscall.EINVAL, err)
	}
	if id.String() != strings.ToLower(want) {
		return fmt.Errorf("the binary has build-id %s: %w", id, syscall.ESTALE)
	}
	return nil
}

// ringPages is the size of a CPU's ring.
const ringPages = 16

// openCPUs opens the event on every CPU, disabled. It is never inherited: the kernel makes
// forks fail then.
func (p *probe) openCPUs(spec *perfevent.EventSpec, group *sys.FD) error {
	cpus, err := sys.OnlineCPUs()
	if err != nil {
		return err
	}
	a := spec.Attr
	a.SampleCount = 1
	a.SampleType = perf.SampleIP | perf.SampleTID | perf.SampleTime
	a.Flags |= perf.AttrDisabled | perf.AttrUseClockID
	a.ClockID = int32(sys.ClockMonotonic)
	p.layout = perf.NewLayout(&a)
	for _, n := range cpus {
		target := perfevent.Target{CPU: n, Cgroup: group, Probe: spec.Probe, Flags: spec.OpenFlags}
		ev, err := perfevent.Open(&a, target, nil)
		if err != nil {
			return err
		}
		ring, err := perfevent.NewRing(ev, ringPages)
		p.cpus = append(p.cpus, &cpu{ev, ring})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *probe) close() {
	for _, c := range p.cpus {
		_ = c.event.Close() // nothing is left to be had of it
		_ = c.ring.Close()
	}
}

// Set implements events.Switch.
func (p *probe) Set(on bool) error {
	var err error
	for _, c := range p.cpus {
		if on {
			err = errors.Join(err, c.event.Enable())
		} else {
			err = errors.Join(err, c.event.Disable())
		}
	}
	select {
	case p.on <- struct{}{}:
	default:
	}
	return err
}

// Alive implements events.Switch.
func (*probe) Alive() bool { return true }

// Close implements events.Switch. The reader closes the events.
func (*probe) Close() error { return nil }

// readPeriod is how often the rings are read while somebody listens.
const readPeriod = 10 * time.Millisecond

// readAll publishes the samples until the probe is removed.
func (p *probe) readAll() {
	defer close(p.stopped)
	defer p.close()
	timer := time.NewTicker(readPeriod)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if p.event.Enabled() {
			tick = timer.C
		}
		select {
		case <-tick:
		case <-p.on:
		case <-p.stop:
			return
		}
		p.read()
	}
}

// read publishes the samples that there are.
func (p *probe) read() {
	var list []events.Record
	var scratch []byte
	for _, c := range p.cpus {
		a, b := c.ring.Peek()
		for raw, err := range perfevent.Records(a, b, &scratch) {
			if err != nil {
				p.set.Lose(1) // what the kernel wrote is not read any further
				break
			}
			list = p.take(list, raw)
		}
		c.ring.Consume(len(a) + len(b))
	}
	slices.SortStableFunc(list, func(a, b events.Record) int { return cmp.Compare(a.Time, b.Time) })
	p.set.PublishAll(list)
}

// take adds a sample to the list, or counts what was lost.
func (p *probe) take(list []events.Record, raw []byte) []events.Record {
	switch perf.Raw(raw).Type() {
	case perf.RecordSample:
		var s perf.Sample
		if err := s.Decode(raw, perf.NativeOrder, &p.layout); err != nil {
			p.set.Lose(1)
			return list
		}
		who := events.Writer{PID: int(s.PID), TID: int(s.TID), Time: s.Time}
		return append(list, events.Record{Writer: who, Event: p.event, Data: perf.NativeOrder.AppendUint64(nil, s.IP)})
	case perf.RecordLost:
		if n, ok := perf.Raw(raw).Lost(); ok {
			p.set.Lose(n)
		}
	}
	return list
}
