// SPDX-License-Identifier: Apache-2.0

package perf

// New gives the empty record of type t: a pointer to the struct of this
// package, or *Unknown if the type has none.
func New(t RecordType) Record {
	if t == RecordSample {
		return new(Sample)
	}
	return newBody(t)
}

// SetMisc sets the misc field of rec.
func SetMisc(rec Record, m Misc) { *rec.misc() = m }
