// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Any stands for every task (Target.PID) or every CPU (Target.CPU).
const Any = -1

// nativeOrder is the byte order of the machines gantry builds for: amd64 and
// arm64 Linux are both little endian.
const nativeOrder = perf.LittleEndian

// OpenFlags change how Open goes about it.
type OpenFlags uint

const (
	// Exact opens the attr as it is or not at all: no feature is dropped.
	Exact OpenFlags = 1 << iota
	// AllowUserOnly leaves the kernel out (exclude_kernel, exclude_hv) if
	// that is what a user without privilege is refused for.
	AllowUserOnly
	// PreciseMax lowers precise_ip from 3 until the CPU takes it: perf's
	// modifier P.
	PreciseMax
)

// Target is what an event watches.
type Target struct {
	// PID is a thread id (with the attr's inherit also its future
	// children), 0 for the calling thread, or Any. Ignored with Cgroup.
	PID int
	// CPU is a CPU number, or Any. PID and CPU cannot both be Any.
	CPU int
	// Cgroup, if not nil, is a directory of a hierarchy with perf_event
	// control: on v2 every cgroup. Its descendants are included. CPU must
	// be a number. Open borrows it.
	Cgroup *sys.FD
	// Probe is where an event of the kprobe or uprobe PMU is attached
	// (EventSpec.Probe); the kernel wants it as a pointer in the attr.
	Probe *Probe
	Flags OpenFlags
	// Agent is asked for what the kernel does not permit, unless it is nil.
	Agent Agent
}

// An Agent opens events for a process that may not, as perf_event_open(2) does. An
// error that unwraps to an errno is its decision, and any other one says that it
// cannot be asked.
type Agent interface {
	Open(attr []byte, pid, cpu int, group *sys.FD, flags sys.PerfFlags) (*sys.FD, error)
}

// Probe is a place in the kernel or in a file.
type Probe struct {
	// Name is a kernel function (kprobe) or the path of a file (uprobe).
	// The path is looked up in the opener's root.
	Name string
	// Offset is added to the function, or is an offset into the file.
	Offset uint64
}

func (t Target) String() string {
	cpu := fmt.Sprintf("cpu %d", t.CPU)
	switch {
	case t.Cgroup != nil:
		return "a cgroup on " + cpu
	case t.PID == Any:
		return cpu
	case t.CPU == Any:
		return fmt.Sprintf("thread %d", t.PID)
	}
	return fmt.Sprintf("thread %d on %s", t.PID, cpu)
}

// Event is an open event. Its methods may not be called after Close.
type Event struct {
	// Attr is what the kernel took: use it for the next CPU, and in files.
	Attr   perf.Attr
	Target Target
	// ID is the id in this event's samples.
	ID uint64
	// Dropped are the features the kernel refused, in the order they were
	// given up.
	Dropped []Feature

	fd *sys.FD
}

// Open opens attr on t, in group unless that is nil. If the kernel refuses it
// as invalid, features that older kernels lack are dropped one after the
// other; Event.Dropped lists them. The error is an *OpenError, with a hint.
func Open(attr *perf.Attr, t Target, group *sys.FD) (*Event, error) {
	a := *attr
	fd, err := openFD(&a, t, group)
	var dropped []Feature
	if err != nil && t.Flags&Exact == 0 {
		fd, dropped, err = climbDown(&a, t, group, err)
	}
	if err != nil {
		return nil, openError(attr, t, err)
	}
	id, err := sys.PerfID(fd)
	if err != nil {
		fd.Close()
		return nil, fmt.Errorf("ask for the event's id: %w", err)
	}
	return &Event{Attr: a, Target: t, ID: id, Dropped: dropped, fd: fd}, nil
}

// openFD makes the system call once; with PreciseMax once per precision.
func openFD(a *perf.Attr, t Target, group *sys.FD) (*sys.FD, error) {
	if t.Flags&PreciseMax == 0 {
		return openOnce(a, t, group)
	}
	for precise := 3; ; precise-- {
		a.Flags = a.Flags.WithPreciseIP(precise)
		fd, err := openOnce(a, t, group)
		if err == nil || precise == 0 || !(errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)) {
			return fd, err
		}
	}
}

func openOnce(a *perf.Attr, t Target, group *sys.FD) (*sys.FD, error) {
	pid, flags := t.PID, sys.PerfFlags(0)
	if t.Cgroup != nil {
		pid, flags = t.Cgroup.Int(), sys.PerfPIDCgroup
	}
	raw := a.Append(make([]byte, 0, perf.AttrSize), nativeOrder)
	if t.Probe != nil {
		return sys.PerfProbeOpen(raw, t.Probe.Name, t.Probe.Offset, pid, t.CPU, group, flags)
	}
	fd, err := sys.PerfEventOpen(raw, pid, t.CPU, group, flags)
	if t.Agent == nil || t.Cgroup != nil || !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
		return fd, err
	}
	fd, refused := t.Agent.Open(raw, pid, t.CPU, group, flags)
	var errno syscall.Errno
	if refused != nil && !errors.As(refused, &errno) {
		return nil, err
	}
	return fd, refused
}

// FD is the event's descriptor, for polling and as the leader of a group. It
// stays the event's.
func (e *Event) FD() *sys.FD { return e.fd }

// Close closes the event. Closing nil or twice does nothing. Counting goes on
// while another descriptor of the event is open.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	return e.fd.Close()
}

// Enable starts the event and, if it leads a group, the members that are
// ready.
func (e *Event) Enable() error { return sys.PerfEnable(e.fd, false) }

// EnableGroup starts every event of the group that e leads.
func (e *Event) EnableGroup() error { return sys.PerfEnable(e.fd, true) }

// Disable stops the event.
func (e *Event) Disable() error { return sys.PerfDisable(e.fd, false) }

// DisableGroup stops every event of the group that e leads.
func (e *Event) DisableGroup() error { return sys.PerfDisable(e.fd, true) }

// SetOutput sends the event's records to the ring of to. Both must be on the
// same CPU, or watch the same task if their CPU is Any, and to must be mapped
// already.
func (e *Event) SetOutput(to *Event) error { return sys.PerfSetOutput(e.fd, to.fd) }
