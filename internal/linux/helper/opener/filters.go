// SPDX-License-Identifier: Apache-2.0

//go:build linux

package opener

import (
	"golang.org/x/net/bpf"

	"github.com/gantry-tools/gantry/internal/linux/seccomp"
)

// Descriptors of the helper, see opener.c.
const (
	socketFD = 3
	cgroupFD = 4
)

// Arguments of system calls, see linux/perf_event.h, sched.h and prctl.h.
const (
	pidCgroup    = 1 << 2 // PERF_FLAG_PID_CGROUP
	clonePidfd   = 0x1000
	sigchld      = 17
	setPdeathsig = 1
)

// openerFilter is what the process in the container can do, whoever may control
// it: events of the one cgroup that it has, and of tasks that its pid namespace
// shows. An event of a whole CPU is never one of all tasks.
func openerFilter() *seccomp.Filter {
	f := seccomp.New(seccomp.Kill)
	f.CallIf(seccomp.Kill, "perf_event_open",
		seccomp.Cond{Arg: 4, Test: bpf.JumpBitsNotSet, Val: pidCgroup},
		seccomp.Cond{Arg: 1, Test: bpf.JumpGreaterThan, Val: maxPID})
	f.CallIf(seccomp.Kill, "perf_event_open",
		seccomp.Cond{Arg: 4, Test: bpf.JumpBitsSet, Val: pidCgroup},
		seccomp.Cond{Arg: 1, Test: bpf.JumpNotEqual, Val: cgroupFD})
	f.Call(seccomp.Allow, "perf_event_open", "pidfd_open", "exit_group")
	for _, name := range []string{"recvmsg", "sendmsg"} {
		f.CallIf(seccomp.Allow, name, seccomp.Cond{Arg: 0, Test: bpf.JumpEqual, Val: socketFD})
	}
	f.CallIf(seccomp.Allow, "sched_setaffinity", seccomp.Cond{Arg: 0, Test: bpf.JumpEqual, Val: 0})
	f.CallIf(seccomp.Allow, "close", seccomp.Cond{Arg: 0, Test: bpf.JumpNotEqual, Val: socketFD})
	return f
}

// starterFilter is what the process does that starts the opener, and the opener
// until it has its own filter.
func starterFilter() *seccomp.Filter {
	f := seccomp.New(seccomp.Kill)
	f.Call(seccomp.Allow, "perf_event_open", "pidfd_open", "exit_group",
		"recvmsg", "sendmsg", "close", "ppoll", "pidfd_send_signal",
		"nanosleep", "restart_syscall", "seccomp", "wait4",
		"sched_setaffinity")
	f.CallIf(seccomp.Allow, "clone", seccomp.Cond{Arg: 0, Test: bpf.JumpEqual, Val: clonePidfd | sigchld})
	f.CallIf(seccomp.Allow, "prctl", seccomp.Cond{Arg: 0, Test: bpf.JumpEqual, Val: setPdeathsig})
	return f
}

// maxPID is the highest number that a process can have (PID_MAX_LIMIT).
const maxPID = 1 << 22

// killOthers is what happens to all other calls.
const killOthers = seccomp.Kill
