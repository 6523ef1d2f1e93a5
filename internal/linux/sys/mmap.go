// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mapping is mapped memory, of a file as a rule. Its Bytes must not be touched after
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

// Memory maps size bytes of memory of nobody else. It is zero. The first ready
// bytes are there, more comes where it is written to: page by page, for a thread
// that must not wait until the kernel has moved others to make a huge one.
func Memory(size, ready int) (*Mapping, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map memory: %w", err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a kernel without huge pages does not know it
	for i := 0; i < min(ready, size); i += PageSize() {
		b[i] = 0
	}
	return &Mapping{bytes: b}, nil
}

// Bytes is the mapped memory, or nil after Close.
func (m *Mapping) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Forget takes the file away from the memory, which stays where it is, zero and nobody
// else's: who still uses it does no harm.
func (m *Mapping) Forget() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.bytes) == 0 {
		return nil
	}
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&m.bytes[0]), uintptr(len(m.bytes)), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	return nil
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
