// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// TestSeccomp: what a container's filter refuses is not put down to the user's
// rights.
func TestSeccomp(t *testing.T) {
	testutil.Require(t, testutil.Root)
	asNobody(t, func() {
		if errno := refusePerf(); errno != 0 {
			t.Error(errno)
			return
		}
		a := perf.Attr{Type: perf.TypeSoftware, Config: perf.SWTaskClock, Flags: perf.AttrExcludeKernel}
		_, err := Open(&a, Target{CPU: Any}, nil)
		if got := hint.Of(err); !strings.Contains(got, "seccomp") {
			t.Errorf("%v, hint %q", err, got)
		}
	})
}

// refusePerf sets a filter on this thread, which refuses perf_event_open with
// EPERM. See seccomp(2).
func refusePerf() syscall.Errno {
	const (
		setNoNewPrivs, setSeccomp, modeFilter = 38, 22, 2 // PR_*, SECCOMP_MODE_FILTER
		allow, refuse                         = 0x7fff0000, 0x00050000
	)
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS}, // nr of struct seccomp_data
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: syscall.SYS_PERF_EVENT_OPEN},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: refuse | uint32(syscall.EPERM)},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: allow},
	}
	prog := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setSeccomp, modeFilter, uintptr(unsafe.Pointer(&prog)), 0, 0, 0)
	runtime.KeepAlive(filter)
	return errno
}
