// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package tasks tells, by BPF iterators, of the tasks that run and of what they
// have mapped executable: all of them in two passes through the kernel, each
// with the time at which it was looked at.
//
// Start with Load, then Programs.Tasks and Programs.Mappings. It takes Linux
// 5.17 (iterators over mappings, bpf_loop), the types of the kernel in
// /sys/kernel/btf, and CAP_BPF with CAP_PERFMON.
//
// What surprises:
//   - A task that begins or ends while the iterator goes on may be reported or
//     not. One that executes meanwhile may show a part of its old mappings,
//     with a time before the execution, or none.
//   - vm_file of a mapping in an overlay is a file of the layer below, of
//     another device and with another path. The kernel keeps the overlay's
//     beside it (struct backing_file); how that is recognized is said in
//     tasks.bpf.c.
//   - The open-coded iterator over mappings (bpf_iter_task_vma_new, Linux 6.7)
//     would be faster, but takes no reference to the memory of the task: as of
//     6.18 a task that exits meanwhile makes the kernel touch freed memory. The
//     seq_file iterator that is used here takes one.
//   - Reading the tree of mappings by hand, with bpf_probe_read_kernel and a look
//     at mm_lock_seq before and after, gains nothing: most of the time goes for
//     mappings that are not in the processor's caches, and each read is a call
//     that waits for one. Direct loads of what is not executable are as cheap as
//     it gets.
package tasks
