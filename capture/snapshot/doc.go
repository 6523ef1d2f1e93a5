// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package snapshot says what already runs: it gives the status records (FORK,
// COMM, NAMESPACES, MMAP2 with build-id, CGROUP, all with perf.MiscStatusOnly)
// that a recording needs about the time before it began.
//
// A Source finds out. Choose gives the best one that is open to this process:
// BPF, which goes through the kernel's own lists, or Proc, which reads /proc.
// Then call Take with a Sink that takes the records.
//
// What surprises:
//   - Reading /proc races with what the tasks do: a process that forks and
//     exits while the walk goes on can be missed, and what is missed stays
//     unknown for the whole recording. BPF misses hardly anybody; package
//     capture finds out whether it did. Either way open the sideband events
//     first; then everything that happens from the first record on is told
//     twice rather than not at all.
//   - Each record carries the time before its task was read, so that a change
//     during the reading comes later than the state that was read.
//   - FORK has perf.MiscForkExec set, as perf has it in records about running
//     tasks: the parent's mappings are not to be inherited.
//   - Names and paths are those of the sideband, not those of /proc: as the
//     task sees them.
//   - MMAP2 has device and inode also where it has a build-id; the file keeps
//     one of them only.
package snapshot
