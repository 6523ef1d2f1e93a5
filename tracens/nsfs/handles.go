// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"os"
	"sync"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// handles are the open memories of programs that have registered events: one for each,
// however many events it has.
type handles struct {
	mu      sync.Mutex
	byOwner map[uint64]*handle
}

// handle is the memory of a program. It is that memory for ever: after an exec, and when
// the program has ended, nothing is behind it.
type handle struct {
	of    *handles
	owner uint64
	file  *os.File
	users int
}

// open opens the memory of a thread that waits for us; at is an address that it has.
func (s *handles) open(tid int, owner, at uint64) (*handle, error) {
	s.mu.Lock()
	h := s.byOwner[owner]
	if h != nil {
		h.users++
	}
	s.mu.Unlock()
	if h != nil {
		var b [1]byte
		if _, err := h.file.ReadAt(b[:], int64(at)); err == nil {
			return h, nil
		}
		_ = h.close() // it is from before an exec
	}
	file, err := os.OpenFile(procfs.New("").Proc(tid).Path("mem"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byOwner == nil {
		s.byOwner = make(map[uint64]*handle)
	}
	h = &handle{s, owner, file, 1}
	s.byOwner[owner] = h
	return h, nil
}

// close gives one use back; the last one closes the memory.
func (h *handle) close() error {
	h.of.mu.Lock()
	h.users--
	last := h.users == 0
	if last && h.of.byOwner[h.owner] == h {
		delete(h.of.byOwner, h.owner)
	}
	h.of.mu.Unlock()
	if last {
		return h.file.Close()
	}
	return nil
}
