// SPDX-License-Identifier: Apache-2.0

//go:build linux

package proctable

import (
	"context"
	"sync"

	"github.com/gantry-tools/gantry/perf"
)

// Namespaced are the processes in a pid and a mount namespace other than the
// host's: those among which to look for containers without a cgroup of their own. They
// are known from the snapshot and the sideband, so that /proc need not be read.
//
// The methods of a nil Namespaced do nothing. List may be called in any goroutine.
type Namespaced struct {
	hostPID, hostMnt uint64
	snapshotDone     chan struct{}
	once             sync.Once

	mu   sync.Mutex
	pids map[int32]struct{}
	// complete: the snapshot had all; incomplete: something may have been
	// missed since. Then /proc has to be read.
	complete, incomplete bool
}

// maxNamespaced bounds the processes that are remembered.
const maxNamespaced = 1 << 17

var _ Observer = (*Namespaced)(nil)

// NewNamespaced returns an empty set. The numbers are those of the host's pid and
// mount namespaces.
func NewNamespaced(hostPID, hostMnt uint64) *Namespaced {
	return &Namespaced{hostPID: hostPID, hostMnt: hostMnt, snapshotDone: make(chan struct{}),
		pids: make(map[int32]struct{})}
}

// Observe implements Observer.
func (s *Namespaced) Observe(ev *Event) {
	if s == nil {
		return
	}
	switch ev.Kind {
	case Namespaces:
		if ev.PID == ev.TID {
			s.set(ev.PID, ev.NS[perf.NSPID] != s.hostPID && ev.NS[perf.NSMnt] != s.hostMnt)
		}
	case ProcessForgot:
		s.set(ev.PID, false)
	}
}

func (s *Namespaced) set(pid int32, namespaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !namespaced:
		delete(s.pids, pid)
	case len(s.pids) >= maxNamespaced:
		s.incomplete = true
	default:
		s.pids[pid] = struct{}{}
	}
}

// SetIncomplete says that sideband was lost: from now on the set is not whole.
func (s *Namespaced) SetIncomplete() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incomplete = true
}

// Finish is called when the snapshot has been taken, or will not be; all says that
// it reported every process. The first call counts.
func (s *Namespaced) Finish(all bool) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.mu.Lock()
		s.complete = all
		s.mu.Unlock()
		close(s.snapshotDone)
	})
}

// List waits for the snapshot. It is not ok if the set is not whole.
func (s *Namespaced) List(ctx context.Context) (pids []int, ok bool) {
	select {
	case <-s.snapshotDone:
	case <-ctx.Done():
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.complete || s.incomplete {
		return nil, false
	}
	for pid := range s.pids {
		pids = append(pids, int(pid))
	}
	return pids, true
}
