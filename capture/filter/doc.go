// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package filter decides which samples of the whole machine are recorded: those
// of the containers that the user chose.
//
// A Plan holds the rules of the chosen containers. A View resolves the names among
// them, with the containers that are known at one time. A Filter is the state of a
// recording. The kernel decides most, before a sample is written
// (internal/linux/bpf/filter). The Filter decides the rest: tasks that are not in the
// kernel's maps yet, tracepoints, which take no program, and everything where BPF is
// not permitted.
//
// What surprises:
//   - Both decide by the same rules, a bit each. Which rules a cgroup or a set of
//     namespaces satisfies is worked out in user space, once, and put into the
//     maps of the kernel.
//   - Names come late. A cgroup that appears during the recording may turn out to
//     be a chosen container's: its samples are held back until that is settled.
//   - The namespaces of a task at the time of a sample come from the sideband, so
//     the Filter is given the sideband first, up to where the samples reach.
package filter
