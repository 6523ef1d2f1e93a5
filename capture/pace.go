// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import "time"

// How often sideband is looked at. The kernel wakes the recorder for each
// record of it, which where processes start all the time would cost more than
// the recording.
const (
	// firstPace is the time between two looks after something happened. A
	// process must live as long, or its file, for the build-id of a file
	// that was not seen before.
	firstPace = 4 * time.Millisecond
	// nextPace is the time after a look that the kernel woke the recorder
	// for and that found known files only.
	nextPace = 25 * time.Millisecond
	// lastPace is the longest: when all files that are mapped are known.
	lastPace = tick / 2
	// alert is how long looks are frequent after a mount namespace appeared:
	// a container is being made, whose files are known by no other path and
	// may be gone with its first process.
	alert = time.Second
	// calm is how long nothing happens before the kernel is to wake the
	// recorder again.
	calm = 100 * time.Millisecond
	// highFill is how full a ring of sideband should be at a look at most.
	highFill = 1. / 8
)

// pace says when to look at sideband. The first record after a calm wakes the
// recorder at once. Then it looks by the clock: often where there are new
// files, which have to be found before their processes end, and else less and
// less so.
type pace struct {
	longest time.Duration
	every   time.Duration // 0: the kernel wakes
	last    time.Time     // the last look
	alarm   time.Time     // the last new mount namespace
	empty   time.Duration // for how long looks have found nothing
}

// newPace makes one for rings of sideband of so many bytes. Where they are
// small, they are read more often: faster than in proportion, since a flood
// begins between two looks.
func newPace(size int) pace {
	longest := lastPace * time.Duration(size) / sidebandRing
	if size < sidebandRing {
		longest /= 4
	}
	return pace{longest: min(max(longest, firstPace), lastPace)}
}

// left is the time until the next look, long if the kernel wakes.
func (p *pace) left(now time.Time) time.Duration {
	if p.every == 0 {
		return time.Hour
	}
	return p.every - now.Sub(p.last)
}

// due: it is time to look.
func (p *pace) due(now time.Time) bool { return p.every == 0 || p.left(now) <= 0 }

// finding is what a look has found.
type finding struct {
	fill  float64 // the share of the fullest ring that was filled
	file  bool    // files that were not known
	space bool    // mount namespaces that were not known
}

// looked chooses the time of the next look.
func (p *pace) looked(now time.Time, f finding) {
	p.last = now
	if f.space {
		p.alarm = now
	}
	switch {
	case f.fill == 0 && p.every == 0:
	case f.fill == 0 && p.empty+p.every >= calm:
		p.every, p.empty = 0, 0
	case f.fill == 0:
		p.empty += p.every
	case f.file || f.fill > highFill || now.Sub(p.alarm) < alert:
		p.every, p.empty = firstPace, 0
	case p.every == 0:
		p.every, p.empty = min(nextPace, p.longest), 0
	default:
		p.every, p.empty = min(2*p.every, p.longest), 0
	}
}
