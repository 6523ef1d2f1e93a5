// SPDX-License-Identifier: Apache-2.0

// Package terminal shows a profile by container, process and function, in a terminal or as
// text: a live one, or that of a file.
//
// Samples come as slices of a recording ([analysis.Slice]). A Window keeps those of the last
// seconds and adds them up into rows; Run shows it until the user ends it, WriteText writes
// tables, Browse shows a profile that does not change.
package terminal
