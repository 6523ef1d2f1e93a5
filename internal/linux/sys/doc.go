// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package sys is the thin wall between gantry and the Linux system calls that
// the standard library lacks: owning file descriptors, mappings, perf events,
// a poller, vectored writes, cgroup ids, capabilities. It is the only importer
// of golang.org/x/sys/unix.
//
// Start with FD: every descriptor travels as one, and whoever holds it closes
// it. A function that takes an *FD borrows it unless its comment says that it
// takes ownership. What will surprise you: errors are syscall.Errno values
// wrapped once with the name of the call, so errors.Is works both with the
// errno (syscall.EPERM) and with the fs sentinels (fs.ErrPermission).
package sys
