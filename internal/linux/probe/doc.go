// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package probe finds out what this kernel lets this process do: yes, no, or
// could not tell; and if no, which layer says so and what would help.
//
// Start with New and Prober.Check. A check does what the recorder will do
// (opens the event, maps the ring, reads the file) and undoes it: versions are
// never compared. It changes nothing on the machine and leaves nothing behind.
//
// What surprises: a No is not an error, and an Unknown is no No. Only
// conclusive answers are cached, so that asking again after an Unknown tries
// again.
package probe
