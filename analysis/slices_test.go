// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/analysis/profile"
	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestSlices: the slices of a recording have its samples, each once and with its names, and
// none is longer than it should be, whatever is asked for.
func TestSlices(t *testing.T) {
	testutil.Require(t, testutil.Tool("gcc"))
	bin := compile(t, "work")
	const base = 0x7f0000000000
	tenth := uint64(100 * time.Millisecond)
	open := func() *Session {
		r := newRecording(t, 0)
		r.add(comm(1, "one"), comm(2, "two"), mapped(1, base, "/app/server", bin.id))
		for i := range 150 {
			r.now += tenth
			if i == 100 {
				r.add(comm(2, "three"))
			}
			r.add(sample(1, base+bin.pgoff), sample(2, 0x99))
			if err := r.w.FinishRound(); err != nil {
				t.Fatal(err)
			}
		}
		return r.open(nil, &Options{Binaries: []symbol.Opener{openFiles{bin.id.String(): bin.path}}})
	}
	for _, o := range []CollectOptions{
		{Fields: profile.FieldComm, Symbols: true}, {Fields: profile.FieldComm, Symbols: true, Stacks: true},
		{Fields: profile.FieldComm, Symbols: true, Addresses: true}, {Fields: profile.FieldComm},
	} {
		whole, err := open().Collect(o)
		if err != nil {
			t.Fatal(err)
		}
		sum, n, last := map[string]uint64{}, 0, uint64(0)
		err = open().Slices(o, time.Second, func(s Slice) error {
			for row, count := range rows(s.Profile, byComm) {
				sum[row] += count
			}
			if last != 0 && s.From != last || s.To-s.From > 15*tenth {
				t.Errorf("a slice from %d to %d behind one to %d", s.From, s.To, last)
			}
			n, last = n+1, s.To
			return nil
		})
		if err != nil || n < 10 {
			t.Fatalf("%d slices, %v", n, err)
		}
		if diff := cmp.Diff(rows(whole, byComm), sum); diff != "" {
			t.Errorf("%+v: %s", o, diff)
		}
	}
	wrong, n := errors.New("enough"), 0
	err := open().Slices(CollectOptions{}, time.Second, func(Slice) error { n++; return wrong })
	if !errors.Is(err, wrong) || n != 1 {
		t.Errorf("%v after %d slices, want %v after one", err, n, wrong)
	}
	empty := newRecording(t, 0).open(nil, nil)
	if err := empty.Slices(CollectOptions{}, time.Second, func(Slice) error { return wrong }); err != nil {
		t.Errorf("a slice without a sample: %v", err)
	}
}
