// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// An errand that does not come back is given up; what others wait for in vain is
// not waited for again, everything else is. What it brings too late is released.
func TestErrands(t *testing.T) {
	e := &Errands{vain: 10} // with little patience
	answer, released := make(chan bool), make(chan bool)
	for range maxOutOn {
		if e.run(func(x *errand) {
			x.release(func() { released <- true })
			if err := x.waitsFor("silent", true); err != nil {
				t.Error(err)
			}
			<-answer
		}) {
			t.Error("an errand came back that did not")
		}
	}
	var err error
	if !e.run(func(x *errand) { err = x.waitsFor("silent", true) }) || !errors.Is(err, ErrSilent) {
		t.Errorf("what others wait for: %v", err)
	}
	if !e.run(func(x *errand) { err = x.waitsFor("other", true) }) || err != nil {
		t.Errorf("something else: %v", err)
	}
	if e.out != maxOutOn {
		t.Errorf("%d are out", e.out)
	}
	for range maxOutOn {
		answer <- true
		<-released
	}
	if e.out != 0 || len(e.on) != 0 {
		t.Errorf("%d are out, waiting for %v", e.out, e.on)
	}
	e.out = maxOut
	if e.run(func(*errand) { t.Error("one too many") }) {
		t.Error("one too many was sent")
	}
}

// An errand that is not begun takes nothing with it: Go panics at a Procmap that
// is left without being closed.
func TestErrandNotBegun(t *testing.T) {
	reader := NewIDReader(&Errands{out: maxOut})
	defer reader.Close()
	query := reader.query
	if _, err := reader.read(procfs.FS{}.Self(), new(perf.Mmap2)); !errors.Is(err, ErrSilent) {
		t.Errorf("with too many errands out: %v", err)
	}
	if reader.query != query {
		t.Error("the query went with an errand that was not begun")
	}
}
