// SPDX-License-Identifier: Apache-2.0

// Package analysis reads a recording: it replays the sideband, says what each
// address of each sample was, and adds samples up to a profile.
//
// A [Session] is one pass over one recording. Next gives the samples in the
// order of time, each with its thread, and Locate names an address at that
// moment; Collect does both for all samples and returns a profile. A Session
// opens no file by itself: [Options] tell it where binaries and the kernel's
// symbols come from.
package analysis
