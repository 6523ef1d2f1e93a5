// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package proctable is the process table of a recording: what its sideband tells
// of processes and threads. It reads FORK, EXIT, COMM, NAMESPACES and CGROUP
// records once and passes them on as events to its observers.
//
// What surprises:
//   - Rings are read one after the other, so records of different CPUs come out
//     of order: a thread's EXIT may be read before its FORK. What has ended is
//     therefore remembered for a round more.
//   - A thread that executes a program goes on with the number of its process's
//     first thread, which has ended (de_thread in fs/exec.c). The EXIT of the
//     first thread may be read after that.
//   - The kernel gives the inode number of a mount namespace that is gone to the
//     next one. See MountNS for what tells them apart.
package proctable
