// SPDX-License-Identifier: Apache-2.0

package ring

import "sync/atomic"

// Clocks that a ring's times may be of.
const (
	// Monotonic is CLOCK_MONOTONIC in nanoseconds.
	Monotonic = 0
	// TSC is the time stamp counter of x86: a third of the price. It is for machines whose
	// kernel has it for its own clock: then it runs at one rate on all CPUs.
	TSC = 1
)

// Clock turns the times of rings into nanoseconds of CLOCK_MONOTONIC. Its methods may be
// called from several goroutines.
type Clock struct {
	first pair
	last  atomic.Pointer[pair]
}

// pair is one instant by both clocks.
type pair struct{ tsc, ns uint64 }

// NewClock is a clock whose rings have times of that kind; now is the time of
// CLOCK_MONOTONIC. It is nil where the machine cannot have it.
func NewClock(kind uint64, now func() uint64) *Clock {
	if kind != TSC || !hasTSC {
		return nil
	}
	c := &Clock{first: read(now)}
	c.last.Store(&c.first)
	return c
}

// read reads both clocks at once, as far as that can be done.
func read(now func() uint64) pair {
	best, least := pair{}, ^uint64(0)
	for range 5 { // something may come in between
		before := tsc()
		ns := now()
		after := tsc()
		if after-before < least {
			best, least = pair{before + (after-before)/2, ns}, after-before
		}
	}
	return best
}

// Kind is what the times are of; a nil Clock has Monotonic.
func (c *Clock) Kind() uint64 {
	if c == nil {
		return Monotonic
	}
	return TSC
}

// Update reads the clocks again: times up to now are right then.
func (c *Clock) Update(now func() uint64) {
	if c != nil {
		p := read(now)
		c.last.Store(&p)
	}
}

// Time is a time of a ring as nanoseconds of CLOCK_MONOTONIC, since the first call of
// Update.
func (c *Clock) Time(t uint64) uint64 {
	if c == nil {
		return t
	}
	last := c.last.Load()
	ticks, ns := last.tsc-c.first.tsc, last.ns-c.first.ns
	if ticks == 0 {
		return last.ns
	}
	// Numbers of this size are exact: those of a program may be any.
	ago := float64(int64(last.tsc-t)) * (float64(ns) / float64(ticks))
	return uint64(int64(last.ns) - int64(max(min(ago, 1e18), -1e18)))
}
