// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math/rand/v2"
	"testing"
)

// naive is what Maps should do, address by address.
type naive [64]struct {
	file *File
	off  uint64
}

func (n *naive) insert(m Mapping, missingOnly bool) {
	for a := m.Start; a < m.End; a++ {
		if missingOnly && n[a].file != nil {
			continue
		}
		n[a].file, n[a].off = m.File, m.PgOff+a-m.Start
	}
}

func TestMapsAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	files := []*File{{Path: "a"}, {Path: "b"}, {Path: "c"}}
	for range 2000 {
		var m Maps
		var want naive
		for range 12 {
			start := rng.Uint64N(60)
			p := Mapping{Start: start, End: start + 1 + rng.Uint64N(64-start), PgOff: rng.Uint64N(4) * 100, File: files[rng.IntN(3)]}
			if rng.IntN(2) == 0 {
				m.insert(p)
				want.insert(p, false)
			} else {
				m.insertMissing(p)
				want.insert(p, true)
			}
			check(t, &m, &want)
		}
		if t.Failed() {
			return
		}
	}
}

func check(t *testing.T, m *Maps, want *naive) {
	t.Helper()
	for a := range uint64(len(want)) {
		p := m.Find(a)
		switch {
		case p == nil && want[a].file != nil:
			t.Fatalf("nothing at %d in %+v", a, m.list)
		case p != nil && (p.File != want[a].file || p.PgOff+a-p.Start != want[a].off):
			t.Fatalf("at %d %+v, want %+v", a, p, want[a])
		}
	}
	for i := 1; i < len(m.list); i++ {
		if m.list[i].Start < m.list[i-1].End {
			t.Fatalf("overlap in %+v", m.list)
		}
	}
}

func TestMapsInsertSaysWhatItReplaced(t *testing.T) {
	f := &File{}
	var m Maps
	for _, c := range []struct {
		p    Mapping
		want bool
	}{
		{Mapping{10, 20, 0, f}, false},
		{Mapping{20, 30, 0, f}, false},
		{Mapping{10, 20, 0, f}, false}, // the same again
		{Mapping{19, 21, 0, f}, true},
	} {
		if got := m.insert(c.p); got != c.want {
			t.Errorf("insert %+v: replaced %v", c.p, got)
		}
	}
}
