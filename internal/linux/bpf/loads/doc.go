// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package loads copies the details of BPF programs in the kernel while they are
// being loaded, so that one that lives some microseconds is known as well.
//
// It needs the tracepoint irq_work_entry (x86-64), BTF of the kernel, Linux 5.17
// and CAP_BPF with CAP_PERFMON; and somebody who has a ring with a watermark
// for BPF_EVENT records, which makes the kernel raise the interrupt. Nothing runs
// unless a program is loaded.
package loads
