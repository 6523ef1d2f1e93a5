// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/perf"
)

// Why an event did not open. An *OpenError is exactly one of these; besides,
// errors.Is finds the errno.
var (
	// ErrNoPMU: nothing on this machine counts the event. A virtual
	// machine often has no hardware PMU; cpu-clock always works.
	ErrNoPMU = errors.New("this machine cannot count it")
	// ErrPermission: the kernel, an LSM or a seccomp filter says no.
	ErrPermission = errors.New("not permitted")
	// ErrTooManyFiles: the limit of open files of the process or the
	// machine is reached.
	ErrTooManyFiles = errors.New("too many open files")
	// ErrNoTask: the task has exited.
	ErrNoTask = errors.New("no such task")
	// ErrNoCPU: the CPU is not online.
	ErrNoCPU = errors.New("cpu is not online")
	// ErrBusy: an exclusive event or all breakpoints are in use.
	ErrBusy = errors.New("in use")
	// ErrNoSpace: no hardware slot is left for a breakpoint.
	ErrNoSpace = errors.New("no hardware slot left")
	// ErrInvalid: the kernel does not know this combination.
	ErrInvalid = errors.New("the kernel does not take this combination")
	// ErrNoSyscall: the kernel has no perf events, or a seccomp filter
	// pretends so.
	ErrNoSyscall = errors.New("perf_event_open is not there")
	// ErrOther: an errno that perf_event_open is not known for.
	ErrOther = errors.New("unexpected answer")
)

// OpenError is why perf_event_open failed.
type OpenError struct {
	Attr   perf.Attr
	Target Target
	// Why is one of the sentinels above.
	Why   error
	Errno syscall.Errno
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("open event on %v: %v (%v)", e.Target, e.Why, e.Errno)
}

// Unwrap makes errors.Is find the sentinel and the errno.
func (e *OpenError) Unwrap() []error { return []error{e.Why, e.Errno} }

// openError dresses the error of the system call.
func openError(a *perf.Attr, t Target, err error) error {
	e := &OpenError{Attr: *a, Target: t, Why: ErrOther}
	if !errors.As(err, &e.Errno) {
		return err
	}
	e.Why = why(a, e.Errno)
	if text := e.hint(); text != "" {
		return hint.Wrap(e, text)
	}
	return e
}

// why tells apart what one errno stands for. See perf_event_open(2).
func why(a *perf.Attr, errno syscall.Errno) error {
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return ErrPermission
	case syscall.EMFILE, syscall.ENFILE:
		return ErrTooManyFiles
	case syscall.ESRCH:
		return ErrNoTask
	case syscall.ENODEV:
		// The task's or the CPU's context could not be had, or no PMU
		// answers. Software events always have a PMU.
		if byKernel(a.Type) {
			return ErrNoCPU
		}
		return ErrNoPMU
	case syscall.EOPNOTSUPP:
		// The device cannot do it; the kernel's own events only refuse
		// what to sample this way.
		if byKernel(a.Type) {
			return ErrInvalid
		}
		return ErrNoPMU
	case syscall.ENOENT, syscall.ENXIO:
		return ErrNoPMU
	case syscall.EBUSY:
		return ErrBusy
	case syscall.ENOSPC:
		return ErrNoSpace
	case syscall.ENOSYS:
		return ErrNoSyscall
	case syscall.EINVAL, syscall.E2BIG, syscall.EOVERFLOW:
		return ErrInvalid
	}
	return ErrOther
}

// byKernel: events of this type need no hardware.
func byKernel(t perf.EventType) bool { return t == perf.TypeSoftware || t == perf.TypeTracepoint }

// hint is the one line for the user.
func (e *OpenError) hint() string {
	switch e.Why {
	case ErrPermission:
		return e.permissionHint()
	case ErrNoPMU:
		return noPMUCure(&e.Attr)
	case ErrTooManyFiles:
		if e.Errno == syscall.ENFILE {
			return "raise the machine's limit: sysctl fs.file-max"
		}
		return "raise the limit: ulimit -n (one file per event and CPU is needed)"
	case ErrNoTask:
		return "the process has exited; choose one that runs (ps -e)"
	case ErrNoCPU:
		return "choose CPUs from /sys/devices/system/cpu/online"
	case ErrBusy:
		return "another profiler holds the event exclusively; stop it"
	case ErrNoSpace:
		return "use fewer breakpoints at once (x86 has four a CPU)"
	case ErrNoSyscall:
		return "inside a container the seccomp profile hides perf_event_open: run gantry on the host; see 'gantry " +
			"doctor'"
	case ErrInvalid:
		if e.Attr.Type == perf.TypeTracepoint {
			return "the tracepoint may be gone with its module; look it up again in tracefs"
		}
		return "try the event alone and without modifiers; see 'gantry doctor' for what this kernel takes"
	}
	return ""
}

func (e *OpenError) permissionHint() string {
	switch {
	case e.Errno == syscall.EPERM && errors.Is(sys.PerfSyscallReached(), syscall.EPERM):
		return "a seccomp filter refuses perf_event_open: allow it there (docker run --cap-add PERFMON), or run " +
			"gantry on the host; see 'gantry doctor'"
	case e.Target.Cgroup != nil || e.Target.PID == Any:
		return "watching a CPU or cgroup needs CAP_PERFMON or kernel.perf_event_paranoid <= 0; see 'gantry doctor'"
	case e.Attr.Flags&perf.AttrExcludeKernel == 0:
		return "count user space only (event:u), or run with CAP_PERFMON; see 'gantry doctor'"
	}
	return "run as the process's user, or with CAP_PERFMON and CAP_SYS_PTRACE; see 'gantry doctor'"
}

func noPMUCure(a *perf.Attr) string {
	switch a.Type {
	case perf.TypeHardware, perf.TypeHWCache, perf.TypeRaw:
		return "use -e cpu-clock; a virtual machine has hardware events only if its host passes the PMU on"
	case perf.TypeSoftware:
		return "this kernel is too old for the event"
	}
	return "the device does not know this event; see /sys/bus/event_source/devices"
}
