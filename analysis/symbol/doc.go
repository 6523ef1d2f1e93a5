// SPDX-License-Identifier: Apache-2.0

// Package symbol turns addresses into names.
//
// Start with [ReadELF] for a binary or the vdso, [ReadKallsyms] for the kernel,
// [KernelSyms] for what the kernel adds while it runs (BPF programs,
// trampolines), and [Resolver] for the binaries of a recording: it finds each
// by its build-id, reads it once, and remembers why one could not be read.
//
// The package never opens a path by itself. A path means nothing without the
// root it was seen from, so a Resolver is given one or several [Opener]s, and
// takes from them only a file whose build-id is the wanted one.
//
// Names are those that perf shows for the same address, so that the two tools
// can be compared: the same choice among aliases, the same demangled form.
// Files are taken as hostile: what they claim is checked against their size.
package symbol
