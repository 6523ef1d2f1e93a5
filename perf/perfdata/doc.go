// SPDX-License-Identifier: Apache-2.0

// Package perfdata reads and writes perf.data: the file that perf record
// makes (magic PERFILE2) and the stream it writes to a pipe.
//
// [Open] reads a path, [NewReader] any io.ReaderAt, [NewPipeReader] a stream.
// [Reader.Next] gives the records in file order; [Reader.Ordered] gives them by
// time, with the rounds that the recorder marked. A [Record] points into the
// reader's buffers: it is valid until the next call.
//
// What may surprise:
//
//   - A file of which the end is missing is read as far as it goes. What was
//     odd but survivable is in [Reader.Warnings], with offset and count, to be
//     looked at when the records have been read.
//   - In a stream, events and features may arrive between the records. Those
//     that stand before the first other record are known when NewPipeReader
//     returns (it blocks until then); the rest as Next comes by.
//   - Compressed records are unpacked: Next shows what was inside. All other
//     records of perf itself (HEADER_ATTR and so on) are delivered like those of
//     the kernel. A time of 0 or of all ones is no time, as perf has it.
//
// [NewWriter] writes a file that stays readable if the writer is killed;
// [NewPipeWriter] writes a stream. Neither looks inside the records.
//
// The package opens no file, except in Open, and reads no clock.
package perfdata
