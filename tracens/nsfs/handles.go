// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"cmp"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
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
	// identity finds the processes that it forked and left behind.
	identity *identity
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
	h = &handle{of: s, owner: owner, file: file, users: 1}
	if id, ok := identify(tid, nil); ok {
		h.identity = &id
	}
	s.byOwner[owner] = h
	return h, nil
}

// same is the owner whose memory a process has by its looks, the oldest one; 0 is none.
// It is for processes whose parents have ended.
func (s *handles) same(p *process, owners map[uint64]bool, access *procroot.Access) uint64 {
	s.mu.Lock()
	var list []*handle
	for owner := range owners {
		if h := s.byOwner[owner]; h != nil && h.identity != nil && owner>>pidBits <= p.StartTime {
			list = append(list, h)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *handle) int { return cmp.Compare(a.owner, b.owner) })
	for _, h := range list {
		same := make(chan bool, 1)
		err := access.DoWithin(procfs.New("").Proc(p.PID), answerTime, func(*procroot.Op) {
			_, ok := identify(p.PID, h.identity)
			same <- ok
		})
		if err == nil && <-same {
			return h.owner
		}
	}
	return 0
}

// alive reports whether the program has the memory still.
func (h *handle) alive() bool {
	var b [1]byte
	// Nothing is at address 0; where there is no memory at all it is the end of the file.
	_, err := h.file.ReadAt(b[:], 0)
	return err != io.EOF
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
