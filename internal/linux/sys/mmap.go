// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Mapping is memory mapped from a file. Its Bytes must not be touched after
// Close: the access would kill the process.
type Mapping struct {
	mu    sync.Mutex
	bytes []byte
}

// Mmap maps the first size bytes of fd shared and readable, and writable if
// asked. The mapping outlives the descriptor.
func Mmap(fd *FD, size int, writable bool) (*Mapping, error) {
	prot := unix.PROT_READ
	if writable {
		prot |= unix.PROT_WRITE
	}
	b, err := unix.Mmap(fd.Int(), 0, size, prot, unix.MAP_SHARED)
	runtime.KeepAlive(fd)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	return &Mapping{bytes: b}, nil
}

// Bytes is the mapped memory, or nil after Close.
func (m *Mapping) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Close unmaps. Closing nil or closing twice does nothing.
func (m *Mapping) Close() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bytes
	m.bytes = nil
	if b == nil {
		return nil
	}
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("munmap: %w", err)
	}
	return nil
}
