// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"context"
	"sync"

	"github.com/gantry-tools/gantry/container"
)

// namespacedProcesses are the processes in a pid and a mount namespace other than the
// host's: those among which the resolver looks for containers that no cgroup
// tells of. The snapshot and the sideband tell of them, so that /proc need not
// be read for it.
type namespacedProcesses struct {
	host         container.Namespaces
	snapshotDone chan struct{} // closed when the snapshot has told of all
	once         sync.Once

	mu   sync.Mutex
	pids map[int32]struct{}
	// These are all if complete and not blinded. Otherwise /proc has to tell.
	complete, incomplete bool
}

// maxNamespaced bounds the processes that are remembered.
const maxNamespaced = 1 << 17

func newNamespacedProcesses(host container.Namespaces) *namespacedProcesses {
	return &namespacedProcesses{host: host, snapshotDone: make(chan struct{}), pids: make(map[int32]struct{})}
}

// setNamespaces takes note of the namespaces of a process.
func (s *namespacedProcesses) setNamespaces(pid int32, pidNS, mntNS uint64) {
	if s == nil {
		return
	}
	stranger := pidNS != s.host[container.PIDNS] && mntNS != s.host[container.MntNS]
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !stranger:
		delete(s.pids, pid)
	case len(s.pids) >= maxNamespaced:
		s.incomplete = true
	default:
		s.pids[pid] = struct{}{}
	}
}

// ended forgets a process.
func (s *namespacedProcesses) ended(pid int32) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pids, pid)
}

// setIncomplete says that something may not have been told.
func (s *namespacedProcesses) setIncomplete() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incomplete = true
}

// finish is called when the snapshot has been taken, or will not be. all: it
// told of every process. The first call counts.
func (s *namespacedProcesses) finish(all bool) {
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

// list waits for the snapshot. It is not ok if these are not all.
func (s *namespacedProcesses) list(ctx context.Context) (pids []int, ok bool) {
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
