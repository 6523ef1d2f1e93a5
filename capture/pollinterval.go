// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import "time"

// How often sideband is looked at. The kernel wakes the recorder for each
// record of it, which where processes start all the time would cost more than
// the recording.
const (
	// minInterval is the time between two looks after something happened. A
	// process must live as long, or its file, for the build-id of a file
	// that was not seen before.
	minInterval = 4 * time.Millisecond
	// knownInterval is the time after a look that the kernel woke the recorder
	// for and that found known files only.
	knownInterval = 25 * time.Millisecond
	// maxInterval is the longest: when all files that are mapped are known.
	maxInterval = tick / 2
	// mountNSWindow is how long looks are frequent after a mount namespace appeared:
	// a container is being made, whose files are known by no other path and
	// may be gone with its first process.
	mountNSWindow = time.Second
	// quietTime is how long nothing happens before the kernel is to wake the
	// recorder again.
	quietTime = 100 * time.Millisecond
	// highFill is how full a ring of sideband should be at a look at most.
	highFill = 1. / 8
)

// pollInterval says when to look at sideband. The first record after a calm wakes the
// recorder at once. Then it looks by the clock: often where there are new
// files, which have to be found before their processes end, and else less and
// less so.
type pollInterval struct {
	longest    time.Duration
	interval   time.Duration // 0: the kernel wakes
	last       time.Time     // the last look
	newMountNS time.Time     // the last new mount namespace
	empty      time.Duration // for how long looks have found nothing
}

// newPollInterval makes one for rings of sideband of so many bytes. Where they are
// small, they are read more often: faster than in proportion, since a flood
// begins between two looks.
func newPollInterval(size int) pollInterval {
	longest := maxInterval * time.Duration(size) / sidebandRing
	if size < sidebandRing {
		longest /= 4
	}
	return pollInterval{longest: min(max(longest, minInterval), maxInterval)}
}

// left is the time until the next look, long if the kernel wakes.
func (p *pollInterval) left(now time.Time) time.Duration {
	if p.interval == 0 {
		return time.Hour
	}
	return p.interval - now.Sub(p.last)
}

// due: it is time to look.
func (p *pollInterval) due(now time.Time) bool { return p.interval == 0 || p.left(now) <= 0 }

// observation is what a look has found.
type observation struct {
	fill    float64 // the share of the fullest ring that was filled
	file    bool    // files that were not known
	mountNS bool    // mount namespaces that were not known
}

// observe chooses the time of the next look.
func (p *pollInterval) observe(now time.Time, f observation) {
	p.last = now
	if f.mountNS {
		p.newMountNS = now
	}
	switch {
	case f.fill == 0 && p.interval == 0:
	case f.fill == 0 && p.empty+p.interval >= quietTime:
		p.interval, p.empty = 0, 0
	case f.fill == 0:
		p.empty += p.interval
	case f.file || f.fill > highFill || now.Sub(p.newMountNS) < mountNSWindow:
		p.interval, p.empty = minInterval, 0
	case p.interval == 0:
		p.interval, p.empty = min(knownInterval, p.longest), 0
	default:
		p.interval, p.empty = min(2*p.interval, p.longest), 0
	}
}
