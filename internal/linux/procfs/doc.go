// SPDX-License-Identifier: Apache-2.0

// Package procfs reads the kernel's text files: /proc, /proc/sys and the
// cgroup trees. Start with New, which roots every path at a directory, so
// that an agent can look at a host's /proc mounted elsewhere and tests can
// look at a fixture.
//
// Reading and parsing are separate: each ParseX takes an io.Reader and knows
// no path. What may surprise:
//
//   - A process may be gone at any time: such an error is fs.ErrNotExist or
//     syscall.ESRCH; Gone tells both.
//   - The kernel hides values from the unprivileged by writing zeros
//     (addresses in /proc/modules) instead of an error.
//   - Paths in /proc/PID/cgroup are relative to the reader's cgroup
//     namespace: a path with ".." in it lies outside of it.
package procfs
