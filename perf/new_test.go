// SPDX-License-Identifier: Apache-2.0

package perf

import "testing"

func TestNew(t *testing.T) {
	for typ := range RecordType(90) {
		rec := New(typ)
		SetMisc(rec, MiscUser)
		if rec.RecordType() != typ || MiscOf(rec) != MiscUser {
			t.Errorf("New(%v) is a %v with misc %v", typ, rec.RecordType(), MiscOf(rec))
		}
	}
	for _, rec := range testRecords() {
		if _, ok := New(rec.RecordType()).(*Unknown); ok && rec.RecordType().Known() {
			t.Errorf("%v has a struct that New does not make", rec.RecordType())
		}
	}
}
