// SPDX-License-Identifier: Apache-2.0

//go:build linux

package agent

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// maxListeners bounds the seccomp filters that are served at a time: one for each
// container and each program that was run in one.
const maxListeners = 4096

// slots is memory that outlives a worker, with a place for the call that each
// listener answers.
type slots struct {
	calls []sys.Notification

	mu   sync.Mutex
	used [maxListeners]bool
}

// newSlots makes the memory.
func newSlots() (*sys.FD, error) {
	return sys.SharedMemory("gantry-calls", maxListeners*sys.NotificationSize)
}

// mapSlots maps it.
func mapSlots(fd *sys.FD) (*slots, error) {
	calls, err := sys.MapNotifications(fd, maxListeners)
	if err != nil {
		return nil, fmt.Errorf("map the memory of calls: %w", err)
	}
	return &slots{calls: calls}, nil
}

// take gives out a free slot.
func (s *slots) take() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, used := range s.used {
		if !used {
			s.used[i] = true
			s.calls[i] = sys.Notification{}
			return i, nil
		}
	}
	return 0, fmt.Errorf("%d seccomp listeners: %w", maxListeners, syscall.EMFILE)
}

// keep marks a slot that was given out by the worker before.
func (s *slots) keep(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[i] = true
}

// free takes a slot back.
func (s *slots) free(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[i] = false
}
