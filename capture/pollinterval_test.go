// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"testing"
	"time"
)

// A recorder looks often while files are new, less often where all are known,
// and lets the kernel wake it when nothing happens.
func TestPollInterval(t *testing.T) {
	p := newPollInterval(sidebandRing)
	now := time.Unix(1000, 0)
	known := observation{fill: 0.01}
	look := func(f observation) time.Duration {
		t.Helper()
		if !p.due(now) {
			t.Fatalf("no look is due at %v, every %v", now, p.interval)
		}
		p.observe(now, f)
		if p.interval != 0 && p.due(now) {
			t.Fatal("a look is due right after one")
		}
		now = now.Add(p.interval)
		return p.interval
	}
	if d := look(observation{}); d != 0 {
		t.Errorf("woken for nothing: next look in %v, want when the kernel wakes", d)
	}
	if d := look(known); d != knownInterval {
		t.Errorf("first record: next look in %v", d)
	}
	for range 10 {
		look(known)
	}
	if p.interval != maxInterval {
		t.Errorf("known files only: every %v, want %v", p.interval, maxInterval)
	}
	if d := look(observation{fill: 0.01, file: true}); d != minInterval {
		t.Errorf("a new file: next look in %v", d)
	}
	look(known)
	if d := look(observation{fill: 2 * highFill}); d != minInterval {
		t.Errorf("a filling ring: next look in %v", d)
	}
	look(observation{fill: 0.01, mountNS: true})
	for until := now.Add(mountNSWindow - minInterval); now.Before(until); {
		if d := look(known); d != minInterval {
			t.Fatalf("a container is being made: next look in %v", d)
		}
	}
	var quiet time.Duration
	for p.interval != 0 {
		quiet += p.interval
		if look(observation{}); quiet > time.Minute {
			t.Fatal("it never becomes quiet")
		}
	}
	if p := newPollInterval(smallestRing); p.longest != minInterval {
		t.Errorf("a small ring is read every %v", p.longest)
	}
	if quiet < quietTime {
		t.Errorf("quiet after %v, want %v", quiet, quietTime)
	}
}
