// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"testing"
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
