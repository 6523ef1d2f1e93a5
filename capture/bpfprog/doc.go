// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package bpfprog watches BPF programs: which are there, which come and go, and
// what is needed to name their code once they are gone.
//
// List reads those that are loaded. A Watcher reads the details of each program
// that is loaded, by two routes at once: it is woken by the kernel's record of the
// load (PERF_RECORD_BPF_EVENT) and asks for the program by its id, and a BPF
// program copies the details before the loader goes on (see package
// internal/linux/bpf/loads), for programs that are gone by then. What both found is in a ProgramTable.
//
// What surprises:
//   - The kernel wakes no reader for a BPF_EVENT, unless the ring has a watermark:
//     wakeup_events counts samples only.
//   - A program that is asked for lives until its descriptor is closed, so the
//     record of its unload may come later than without gantry.
//   - Programs of root are described to root only: CAP_SYS_ADMIN opens them by
//     their id, and the addresses also need CAP_SYSLOG or kptr_restrict 0.
package bpfprog
