// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"sync/atomic"
	"time"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

const (
	// grace is how long a hand may be busy with one file, and longer for each
	// copyRate bytes by a second.
	grace    = 3 * time.Second
	copyRate = 16 << 20
	// maxLost bounds the hands that do not come back, maxLostOf those that were
	// lost for processes of one cgroup: a container is not to use up what the
	// others need.
	maxLost, maxLostOf = 16, 4
	// watchEvery is how often is looked for them at the end.
	watchEvery = 50 * time.Millisecond
)

// hand is a goroutine that reads files of containers, whose file systems may
// never answer (a server that is gone). Then it is lost, and another one goes
// on with the next file; what the lost one still does, nobody looks at. A nil hand
// has all the time.
type hand struct {
	until atomic.Int64 // when it is lost, unix time in ns; 0: it has nothing to do
	lost  atomic.Bool
	of    string // the cgroup it was lost for
}

// hands are those of a keeper, whose mutex guards them.
type hands struct {
	current *hand // nil: there are none left
	lost    int
	of      map[string]int // of them, by the cgroup
}

// busy: it works on a file of so many bytes, as far as that is known.
func (h *hand) busy(size int64) {
	if h != nil {
		h.until.Store(time.Now().Add(grace + time.Duration(size)*time.Second/copyRate).UnixNano())
	}
}

func (h *hand) idle() {
	if h != nil {
		h.until.Store(0)
	}
}

// isLost: nobody looks any more at what it does.
func (h *hand) isLost() bool { return h != nil && h.lost.Load() }

// overdue says whether the current one, which works for proc, is lost from now
// on.
func (s *hands) overdue(now time.Time, proc procfs.Proc) bool {
	h := s.current
	if h == nil {
		return false
	}
	until := h.until.Load()
	if until == 0 || now.UnixNano() < until {
		return false
	}
	h.lost.Store(true)
	h.of, _ = proc.CgroupText() // "" if it has ended
	s.current = nil
	s.lost++
	if s.of == nil {
		s.of = make(map[string]int)
	}
	s.of[h.of]++
	return true
}

// back is for a lost one that comes back.
func (s *hands) back(h *hand) {
	s.lost--
	if s.of[h.of]--; s.of[h.of] == 0 {
		delete(s.of, h.of)
	}
}

// enough says whether so many were lost for proc that none is to be any more.
func (s *hands) enough(proc procfs.Proc) bool {
	if s.lost < maxLostOf {
		return false
	}
	of, _ := proc.CgroupText()
	return s.of[of] >= maxLostOf
}

// hire is another hand; nil if too many are lost.
func (s *hands) hire() *hand {
	if s.lost < maxLost {
		s.current = new(hand)
		return s.current
	}
	return nil
}

// await waits until done, or the deadline, and calls watch meanwhile. It is true
// if it is done.
func await(done <-chan struct{}, deadline time.Time, watch func()) bool {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	end := time.NewTimer(time.Until(deadline))
	defer end.Stop()
	for {
		select {
		case <-done:
			return true
		case <-end.C:
			return false
		case <-tick.C:
			watch()
		}
	}
}
