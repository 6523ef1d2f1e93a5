// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package snapshot says what already runs: it gives the status records (FORK,
// COMM, NAMESPACES, MMAP2 with build-id, CGROUP, all with perf.MiscStatusOnly)
// that a recording needs about the time before it began.
//
// A Source finds out; Proc is the one that reads /proc. Start with
// Proc.Take and a Sink that takes the records.
//
// What surprises:
//   - Reading /proc races with what the tasks do: a process that forks and
//     exits while the walk goes on can be missed, and what is missed stays
//     unknown for the whole recording. Open the sideband events first; then
//     everything that happens from the first record on is told twice rather
//     than not at all.
//   - Each record carries the time before its task was read, so that a change
//     during the reading comes later than the state that was read.
//   - FORK has perf.MiscForkExec set, as perf has it in records about running
//     tasks: the parent's mappings are not to be inherited.
package snapshot
