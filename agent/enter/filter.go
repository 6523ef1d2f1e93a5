// SPDX-License-Identifier: Apache-2.0

//go:build linux

package enter

import (
	"syscall"

	"golang.org/x/net/bpf"

	"github.com/gantry-tools/gantry/internal/linux/seccomp"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// forbidden are the system calls that the runtimes' default profiles forbid to
// programs without CAP_SYS_ADMIN. A container's own filter cannot be given to a
// program from outside, this stands in its place.
var forbidden = []string{
	"acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "delete_module", "fanotify_init", "finit_module",
	"fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register",
	"io_uring_setup", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr",
	"move_mount", "open_by_handle_at", "open_tree", "pivot_root", "quotactl", "quotactl_fd", "reboot",
	"request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog",
	"umount2", "unshare", "userfaultfd", "vhangup",
}

// newNamespaces are the flags of clone that make namespaces, CLONE_NEW*.
const newNamespaces = 0x7e020000

// newFilter tells of perf_event_open, and forbids what a container's filter would. Of
// 32-bit programs the kernel itself refuses events; beside a container's filter they do
// not run, for theirs would need other numbers.
func newFilter(confined bool) ([]byte, int, error) {
	foreign := seccomp.Allow
	if confined {
		foreign = seccomp.Kill
	}
	f := seccomp.New(foreign)
	f.Call(seccomp.Notify, "perf_event_open")
	if confined {
		f.Call(seccomp.Fail(uint16(syscall.EPERM)), forbidden...)
		f.CallIf(seccomp.Fail(uint16(syscall.EPERM)), "clone",
			seccomp.Cond{Arg: 0, Test: bpf.JumpBitsSet, Val: newNamespaces})
		// Its flags are in memory: C libraries go on with clone.
		f.Call(seccomp.Fail(uint16(syscall.ENOSYS)), "clone3")
	}
	return f.Encode(seccomp.Allow)
}

// isConfined reports whether a process runs with a filter and without the right
// that the profiles let through.
func isConfined(seccompMode int, bounding sys.Capabilities) bool {
	return seccompMode != 0 && !bounding.Has(sys.CapSysAdmin)
}
