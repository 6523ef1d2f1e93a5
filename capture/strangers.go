// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"sync"

	"github.com/gantry-tools/gantry/container"
)

// strangers are the processes in a pid and a mount namespace other than the
// host's: those among which the resolver looks for containers that no cgroup
// tells of. The snapshot and the sideband tell of them, so that /proc need not
// be read for it.
type strangers struct {
	host container.Namespaces
	told chan struct{} // closed when the snapshot has told of all
	once sync.Once

	mu   sync.Mutex
	pids map[int32]struct{}
	// These are all if complete and not blinded. Otherwise /proc has to tell.
	complete, blinded bool
}

// maxStrangers bounds the processes that are remembered.
const maxStrangers = 1 << 17

func newStrangers(host container.Namespaces) *strangers {
	return &strangers{host: host, told: make(chan struct{}), pids: make(map[int32]struct{})}
}

// saw takes note of the namespaces of a process.
func (s *strangers) saw(pid int32, pidNS, mntNS uint64) {
	if s == nil {
		return
	}
	stranger := pidNS != s.host[container.PIDNS] && mntNS != s.host[container.MntNS]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !stranger:
		delete(s.pids, pid)
	case len(s.pids) >= maxStrangers:
		s.blinded = true
	default:
		s.pids[pid] = struct{}{}
	}
}

// ended forgets a process.
func (s *strangers) ended(pid int32) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, pid)
}

// blind says that something may not have been told.
func (s *strangers) blind() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blinded = true
}

// finish is called when the snapshot has been taken, or will not be. all: it
// told of every process. The first call counts.
func (s *strangers) finish(all bool) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.mu.Lock()
		s.complete = all
		s.mu.Unlock()
		close(s.told)
	})
}

// list waits for the snapshot. It is not ok if these are not all.
func (s *strangers) list(ctx context.Context) (pids []int, ok bool) {
	select {
	case <-s.told:
	case <-ctx.Done():
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.complete || s.blinded {
		return nil, false
	}
	for pid := range s.pids {
		pids = append(pids, int(pid))
	}
	return pids, true
}
