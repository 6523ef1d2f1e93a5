// SPDX-License-Identifier: Apache-2.0

// Package unwind walks the stack of a sample that was recorded as memory
// (--call-graph dwarf): from the user registers and a piece of the stack, by
// the call frame information (CFI) that compilers leave in binaries.
//
// An [Unwinder] does the walking. A [Binary] holds the CFI of one file:
// .eh_frame, with or without .eh_frame_hdr, and .debug_frame, compressed or
// not. What covers an address the caller's [Space] says. No path is opened: a
// Binary is given a function that opens its file.
//
// CFI is a program per function that has to be run to get the table of rules,
// address by address, of where the caller's registers are. Only the programs of
// functions that are met are run, and what they give is kept; a rule that many
// functions have is kept once. Rules of addresses met before are in a small
// cache in front of all that, so that a step is a look-up and a few loads.
//
// What surprises:
//   - The address of a caller is one byte less than the one that its call
//     returns to, so that it lies in the call. The address that was
//     interrupted, by the sample or by a signal, is exact.
//   - Where there is no CFI (stripped Go programs, generated code), the frame
//     pointer is followed. It may lead past callers, so the result says from
//     which frame on.
//   - Files and stacks are hostile. No length in them is believed, no loop is
//     without bound, and what a stack looks like can only make it shorter.
package unwind
