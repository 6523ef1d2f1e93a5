// SPDX-License-Identifier: Apache-2.0

// Package top shows who uses the CPU now: by container, process and function, over the last
// seconds, in a terminal or as text.
//
// Samples come as slices of a live recording ([analysis.Slice]). A Window keeps those of the
// last seconds and adds them up into rows; Run shows it in a terminal until the user ends it.
package top
