// SPDX-License-Identifier: Apache-2.0

// Package convert writes a recording for tools that find binaries by their path
// only, such as hotspot and samply: each binary gets a path of its own, below a
// directory that has a copy of it.
//
// It takes two passes: after a report of the recording, which looks at every
// address, [Binaries.Add] copies what that has opened; then [Write] writes the
// records of a second pass, with other paths in those of mappings.
package convert
