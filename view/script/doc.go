// SPDX-License-Identifier: Apache-2.0

// Package script prints a recording sample by sample: a line for each, and a
// line for each frame of its call chain, in the form of perf script, so that
// what was written to read perf's output reads gantry's.
//
// [Write] does it all. [ParseFields] reads the columns as perf's -F spells
// them. What a name holds that could steer a terminal is spelled out.
package script
