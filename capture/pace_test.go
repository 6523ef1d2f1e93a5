// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"testing"
	"time"
)

// A recorder looks often while files are new, less often where all are known,
// and lets the kernel wake it when nothing happens.
func TestPace(t *testing.T) {
	p := newPace(sidebandRing)
	now := time.Unix(1000, 0)
	known := finding{fill: 0.01}
	look := func(f finding) time.Duration {
		t.Helper()
		if !p.due(now) {
			t.Fatalf("no look is due at %v, every %v", now, p.every)
		}
		p.looked(now, f)
		if p.every != 0 && p.due(now) {
			t.Fatal("a look is due right after one")
		}
		now = now.Add(p.every)
		return p.every
	}
	if d := look(finding{}); d != 0 {
		t.Errorf("woken for nothing: next look in %v, want when the kernel wakes", d)
	}
	if d := look(known); d != nextPace {
		t.Errorf("first record: next look in %v", d)
	}
	for range 10 {
		look(known)
	}
	if p.every != lastPace {
		t.Errorf("known files only: every %v, want %v", p.every, lastPace)
	}
	if d := look(finding{fill: 0.01, file: true}); d != firstPace {
		t.Errorf("a new file: next look in %v", d)
	}
	look(known)
	if d := look(finding{fill: 2 * highFill}); d != firstPace {
		t.Errorf("a filling ring: next look in %v", d)
	}
	look(finding{fill: 0.01, space: true})
	for until := now.Add(alert - firstPace); now.Before(until); {
		if d := look(known); d != firstPace {
			t.Fatalf("a container is being made: next look in %v", d)
		}
	}
	var quiet time.Duration
	for p.every != 0 {
		quiet += p.every
		if look(finding{}); quiet > time.Minute {
			t.Fatal("it never becomes quiet")
		}
	}
	if p := newPace(smallestRing); p.longest != firstPace {
		t.Errorf("a small ring is read every %v", p.longest)
	}
	if quiet < calm {
		t.Errorf("quiet after %v, want %v", quiet, calm)
	}
}
