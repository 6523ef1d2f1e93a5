// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/events"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// dataFile is user_events_data: the kernel's interface of that name
// (linux/user_events.h).
type dataFile struct{ files }

var (
	_ fs.NodeOpener   = (*dataFile)(nil)
	_ fs.FileWriter   = (*dataHandle)(nil)
	_ fs.FileReader   = (*dataHandle)(nil)
	_ fs.FileIoctler  = (*dataHandle)(nil)
	_ fs.FileReleaser = (*dataHandle)(nil)
)

// dataHandle is one open of it.
type dataHandle struct {
	of
	file *events.File

	ringMu sync.Mutex
	ring   *openRing // of its events; nil: there is none
}

func (f *dataFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if err := f.fs.registry.Hold(f.ns); err != nil {
		return nil, 0, errno(err)
	}
	const flags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NONSEEKABLE | fuse.FOPEN_PARALLEL_DIRECT_WRITES | fuse.FOPEN_NOFLUSH
	return &dataHandle{of: f.of, file: f.set().Open()}, flags, 0
}

func (h *dataHandle) Release(context.Context) syscall.Errno {
	h.ringMu.Lock()
	if h.ring != nil {
		h.fs.rings.of(h.ns).remove(h.ring)
	}
	h.ringMu.Unlock()
	h.file.Close()
	h.fs.registry.Release(h.ns)
	return 0
}

func (h *dataHandle) Read(context.Context, []byte, int64) (fuse.ReadResult, syscall.Errno) {
	return nil, syscall.EINVAL
}

// Write takes one event: its index and its data.
func (h *dataHandle) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	pid, err := caller(ctx)
	if err != nil {
		return 0, errno(err)
	}
	now := writer(pid)
	if wait := h.set().Pace(); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done(): // a signal: it is written all the same
		}
	}
	n, err := h.file.Write(now, data)
	return uint32(n), errno(err)
}

// The commands of linux/user_events.h.
const (
	commandRegister   = 0xc0082a00
	commandDelete     = 0x40082a01
	commandUnregister = 0x40082a02

	// Sizes of struct user_reg and user_unreg, and how much newer ones may have.
	registerSize   = 28
	indexOffset    = 24
	unregisterSize = 16
	maxStruct      = 4096

	flagPersist     = 1
	flagMultiFormat = 2
)

// Ioctl carries out a command. Its argument is an address of the thread's memory, which
// it cannot leave before we answer.
func (h *dataHandle) Ioctl(ctx context.Context, cmd uint32, arg uint64, in, out []byte) (int32, syscall.Errno) {
	// By its number the command is one that changes the first bytes of what it points to.
	copy(out, in)
	tid, err := caller(ctx)
	if err != nil {
		return 0, errno(err)
	}
	m := &memory{tid: tid, fs: h.fs}
	result := make(chan error, 1)
	// What it points to may lie on a file system that never answers.
	if h.fs.access.DoWithin(m.proc(), answerTime, func(*procroot.Op) { result <- h.command(m, cmd, arg, in) }) != nil {
		m.late.Store(true)
		return 0, syscall.EFAULT
	}
	return 0, errno(<-result)
}

// answerTime is how long a command may take to read and write the memory of its thread.
const answerTime = time.Second

func (h *dataHandle) command(m *memory, cmd uint32, arg uint64, in []byte) error {
	switch cmd {
	case commandRegister:
		return h.register(m, arg)
	case commandUnregister:
		return h.unregister(m, arg)
	case commandDelete:
		name, err := m.text(arg)
		if err != nil {
			return err
		}
		return h.set().Delete(name)
	case ring.Command:
		return h.attachRing(m, in)
	}
	return syscall.ENOTTY
}

// memory is that of a thread that waits for us.
type memory struct {
	tid int
	fs  *FS
	// late says that the thread has its answer: its number may be another's.
	late atomic.Bool
}

func (m *memory) proc() procfs.Proc { return procfs.New("").Proc(m.tid) }

// write changes memory of the thread as it could itself.
func (m *memory) write(addr uint64, b []byte) error {
	if m.late.Load() {
		return syscall.EFAULT
	}
	if err := sys.WriteMemory(m.tid, addr, b); err != nil {
		return errors.Join(syscall.EFAULT, err)
	}
	return nil
}

// read reads a struct that begins with its size; known is what we know of it. More must
// be zero, as the kernel has it.
func (m *memory) read(addr uint64, known, least int) ([]byte, error) {
	var size [4]byte
	if n, err := sys.ReadMemory(m.tid, addr, size[:]); err != nil || n != len(size) {
		return nil, syscall.EFAULT
	}
	n := int(binary.NativeEndian.Uint32(size[:]))
	switch {
	case n > maxStruct:
		return nil, syscall.E2BIG
	case n < least:
		return nil, syscall.EINVAL
	}
	b := make([]byte, max(n, known))
	if got, err := sys.ReadMemory(m.tid, addr, b[:n]); err != nil || got != n {
		return nil, syscall.EFAULT
	}
	if len(bytes.TrimLeft(b[known:], "\x00")) > 0 {
		return nil, syscall.E2BIG
	}
	return b[:known], nil
}

// text reads a text that ends with a zero, page by page: the next one may not be there.
func (m *memory) text(addr uint64) (string, error) {
	var b []byte
	for page := uint64(sys.PageSize()); len(b) <= events.MaxDescription; {
		part := make([]byte, min(page-addr%page, events.MaxDescription+1))
		n, err := sys.ReadMemory(m.tid, addr, part)
		if err != nil || n == 0 {
			return "", syscall.EFAULT
		}
		if end := bytes.IndexByte(part[:n], 0); end >= 0 {
			return string(append(b, part[:end]...)), nil
		}
		b = append(b, part[:n]...)
		addr += uint64(n)
	}
	return "", syscall.EINVAL
}

func (h *dataHandle) register(m *memory, arg uint64) error {
	b, err := m.read(arg, registerSize, registerSize)
	if err != nil {
		return err
	}
	ne := binary.NativeEndian
	bit, size, flags := b[4], int(b[5]), ne.Uint16(b[6:])
	addr, args := ne.Uint64(b[8:]), ne.Uint64(b[16:])
	switch {
	case size != 4 && size != 8, int(bit) >= 8*size, addr%uint64(size) != 0,
		flags&^(flagPersist|flagMultiFormat) != 0:
		return syscall.EINVAL
	case flags&flagPersist != 0:
		return syscall.EPERM // it takes CAP_PERFMON, which containers have not
	}
	text, err := m.text(args)
	if err != nil {
		return err
	}
	d, err := events.Parse(text)
	if err != nil {
		return err
	}
	owner, err := h.owner(m)
	if err != nil {
		return err
	}
	sw, err := m.openBit(owner, addr, size, bit)
	if err != nil {
		return err
	}
	index, err := h.file.Register(d, flags&flagMultiFormat != 0,
		events.Bit{Key: events.Key{Owner: owner, Addr: addr, Bit: bit}, Switch: sw, At: now()})
	if err != nil {
		return err
	}
	h.keepRing()
	return m.write(arg+indexOffset, ne.AppendUint32(nil, uint32(index)))
}

// keepRing has the next server know what is registered now.
func (h *dataHandle) keepRing() {
	h.ringMu.Lock()
	defer h.ringMu.Unlock()
	if err := h.fs.rings.of(h.ns).keep(h.ring); err != nil {
		h.fs.log.Printf("namespace %s: a ring will not be there after a restart: %v", h.ns.Name, err)
	}
}

func (h *dataHandle) unregister(m *memory, arg uint64) error {
	b, err := m.read(arg, unregisterSize, unregisterSize)
	if err != nil {
		return err
	}
	if b[5] != 0 || b[6] != 0 || b[7] != 0 {
		return syscall.EINVAL
	}
	owner, err := h.owner(m)
	if err != nil {
		return err
	}
	return h.set().Unregister(events.Key{Owner: owner, Addr: binary.NativeEndian.Uint64(b[8:]), Bit: b[4]})
}

// owner numbers the memory of a thread, which has inherited then what it should.
func (h *dataHandle) owner(m *memory) (uint64, error) {
	st, err := m.proc().Status()
	if err != nil {
		return 0, fmt.Errorf("%w: %w", syscall.EFAULT, err)
	}
	p := findProcess(st.TGID)
	if p == nil {
		return 0, fmt.Errorf("%w: process %d has ended", syscall.EFAULT, st.TGID)
	}
	if p.mayInherit() {
		h.set().Inherit(p.owner, func(owners map[uint64]bool) (events.Heir, bool) {
			return h.fs.heir(p, owners, findProcess)
		})
	}
	return p.owner, nil
}

// memoryBit is a bit in a process's memory: an events.Switch. It holds the memory, so
// that nothing is written to another program once this one has become that.
type memoryBit struct {
	handle *handle
	addr   uint64
	bit    uint8
	proc   procfs.Proc
	access *procroot.Access
}

// openBit opens the bit, and clears it.
func (m *memory) openBit(owner, addr uint64, size int, bit uint8) (*memoryBit, error) {
	// What the program cannot write itself it must not have written: /proc/PID/mem would.
	word := make([]byte, size)
	if n, err := sys.ReadMemory(m.tid, addr, word); err != nil || n != size {
		return nil, syscall.ENOMEM
	}
	setBit(word, bit, false)
	if err := m.write(addr, word); err != nil {
		return nil, errors.Join(syscall.ENOMEM, err)
	}
	h, err := m.fs.handles.open(m.tid, owner, addr)
	if err != nil {
		return nil, errors.Join(syscall.ENOMEM, err)
	}
	return &memoryBit{handle: h, addr: addr, bit: bit, proc: m.proc(), access: &m.fs.access}, nil
}

// setBit changes a bit of a word of 4 or 8 bytes, the lowest first.
func setBit(word []byte, bit uint8, on bool) {
	mask := byte(1) << (bit % 8)
	if on {
		word[bit/8] |= mask
	} else {
		word[bit/8] &^= mask
	}
}

// Set implements events.Switch. Only the byte of the bit is written: the others are the
// program's.
func (b *memoryBit) Set(on bool) error {
	result := make(chan error, 1)
	err := b.access.DoWithin(b.proc, answerTime, func(*procroot.Op) {
		var word [1]byte
		at := int64(b.addr) + int64(b.bit/8)
		_, err := b.handle.file.ReadAt(word[:], at)
		if err == nil {
			setBit(word[:], b.bit%8, on)
			_, err = b.handle.file.WriteAt(word[:], at)
		}
		result <- err
	})
	if err != nil {
		return err
	}
	return <-result
}

// Alive implements events.Switch.
func (b *memoryBit) Alive() bool {
	result := make(chan bool, 1)
	err := b.access.DoWithin(b.proc, answerTime, func(*procroot.Op) { result <- b.handle.alive() })
	return err != nil || <-result // who does not answer lives
}

// Close implements events.Switch.
func (b *memoryBit) Close() error { return b.handle.close() }
