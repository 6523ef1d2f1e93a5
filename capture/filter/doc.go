// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package filter decides which samples of the whole machine are recorded: those
// of the containers that the user chose.
//
// A Plan is what the choices mean, a View what the names among them mean by what
// is known of containers at a time, a Filter the state of a recording. Most is
// decided in the kernel, before a sample is written (internal/linux/bpf/filter).
// The Filter decides about the rest: what the kernel could not know, tracepoints,
// on which no program can be set, and everything where the kernel takes no
// program.
//
// What surprises:
//   - Both decide by the same rules: cgroups and namespaces satisfy rules, a bit
//     each. What one satisfies is decided in user space, once, and put into the
//     maps of the kernel.
//   - Names come late. A cgroup that appears during the recording may turn out to
//     be a chosen container's: its samples are held back until that is settled.
//   - The namespaces of a task at the time of a sample come from the sideband, so
//     the Filter is given the sideband first, up to where the samples reach.
package filter
