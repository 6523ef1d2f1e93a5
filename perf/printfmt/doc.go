// SPDX-License-Identifier: Apache-2.0

// Package printfmt prints the raw data of tracepoint samples as the kernel
// would: it interprets the "print fmt" line of a tracepoint's format file, a
// format string of printf and its arguments as C expressions.
//
// [Compile] reads a line once, [Format.Append] prints a sample. An argument
// that needs the kernel itself (its functions, its constants, its memory) is
// printed as a question mark. If Compile fails, the caller prints the plain
// fields instead.
package printfmt
