// SPDX-License-Identifier: Apache-2.0

// Package perf is the kernel's perf ABI as values: event attributes, records
// and samples, decoded from bytes and encoded to bytes, in either byte order.
// It needs no operating system: it opens no file and reads no clock.
//
// Start with [Decode] and [Append], which turn a whole record into a value and
// back. A record can only be understood with the [Event] it belongs to, which
// [Events] finds; the [Layout] of an event answers for the hot fields (time,
// thread, cpu) without decoding the rest, and [Sample.Decode] reuses memory.
//
// What surprises: records other than samples carry their time, thread and cpu
// behind their body (sample_id), and only if the attr says sample_id_all; the
// records 64 and up are not the kernel's but perf's own, found in files only.
//
// Sources: include/uapi/linux/perf_event.h of Linux 6.18 for everything the
// kernel emits; the perf.data-file-format document for perf's own records.
package perf
