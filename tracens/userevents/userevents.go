// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package userevents writes user events from a Go program: to a tracing namespace that is
// mounted into its container, or to the kernel's own user_events (Linux 6.4 with
// CONFIG_USER_EVENTS), which have the same files.
//
// Start with Open, Register an event once, and Write it where it happens; an event that
// nobody listens to costs one load:
//
//	if request.Enabled() {
//		request.Write(userevents.Append(nil).Uint32(id).String(path))
//	}
package userevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/tracens/ring"
)

// DefaultDir is where the files are in a container that has a namespace mounted, and
// where the kernel's are.
const DefaultDir = "/sys/kernel/tracing"

// Provider is an open user_events_data. Its methods may be called from several goroutines.
type Provider struct {
	file *os.File

	mu    sync.Mutex
	words *sys.Mapping // the enable words of the events
	used  int

	ring    *ring.Writer // nil: there is none
	ringMem *sys.Mapping
	begin   time.Time // when CLOCK_MONOTONIC was beginNS
	beginNS uint64
}

// maxEvents bounds the events of a Provider.
const maxEvents = 1024

const wordSize = 4

// Open opens the files in a directory; "" is DefaultDir. The caller closes it.
func Open(dir string) (*Provider, error) {
	if dir == "" {
		dir = DefaultDir
	}
	file, err := os.OpenFile(filepath.Join(dir, "user_events_data"), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("user events: %w", err)
	}
	// Not the heap's: others write to it, also after an event is collected.
	words, err := sys.Memory(maxEvents*wordSize, maxEvents*wordSize)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p := &Provider{file: file, words: words}
	p.openRing(filepath.Clean(dir))
	return p, nil
}

// Close ends all events of the provider: none is enabled any more.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for i := range p.used {
		err = errors.Join(err, p.unregister(p.word(i)))
	}
	// The memory stays: an event may still be looked at, or be written just now.
	p.used = 0
	if p.ringMem != nil {
		err = errors.Join(err, p.ringMem.Forget())
	}
	return errors.Join(err, p.file.Close())
}

// word is an enable word.
func (p *Provider) word(i int) *uint32 {
	return (*uint32)(unsafe.Pointer(&p.words.Bytes()[i*wordSize]))
}

// command is an ioctl on the file, with an argument that does not move.
func (p *Provider) command(number uintptr, arg unsafe.Pointer) error {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) { _, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, number, uintptr(arg)) })
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// unregister ends the registration of an enable word.
func (p *Provider) unregister(word *uint32) error {
	var un [unregisterSize]byte
	binary.NativeEndian.PutUint32(un[0:], unregisterSize)
	binary.NativeEndian.PutUint64(un[8:], uint64(uintptr(unsafe.Pointer(word))))
	if err := p.command(commandUnregister, unsafe.Pointer(&un[0])); err != nil {
		return fmt.Errorf("unregister: %w", err)
	}
	return nil
}

// Event is a registered event. A nil Event is never enabled.
type Event struct {
	p     *Provider
	word  *uint32
	index uint32
}

// The commands and structs (user_reg, user_unreg) of linux/user_events.h.
const (
	commandRegister   = 0xc0082a00
	registerSize      = 28
	commandUnregister = 0x40082a02
	unregisterSize    = 16
)

// Register registers an event: NAME TYPE FIELD; TYPE FIELD, with types such as u32, s64,
// char[16] and __rel_loc char[]. The error is the kernel's: EADDRINUSE is an event that
// has other fields already, EINVAL a description that is none.
func (p *Provider) Register(description string) (*Event, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == maxEvents {
		return nil, fmt.Errorf("register %q: %d events: %w", description, maxEvents, syscall.EMFILE)
	}
	word := p.word(p.used)
	text := append([]byte(description), 0)
	var reg [registerSize]byte
	ne := binary.NativeEndian
	ne.PutUint32(reg[0:], registerSize)
	reg[5] = wordSize
	ne.PutUint64(reg[8:], uint64(uintptr(unsafe.Pointer(word))))
	ne.PutUint64(reg[16:], uint64(uintptr(unsafe.Pointer(&text[0]))))
	var pin runtime.Pinner
	pin.Pin(&text[0])
	defer pin.Unpin()
	if err := p.command(commandRegister, unsafe.Pointer(&reg[0])); err != nil {
		return nil, fmt.Errorf("register %q: %w", description, err)
	}
	p.used++
	return &Event{p, word, ne.Uint32(reg[24:])}, nil
}

// Enabled reports whether somebody listens.
func (e *Event) Enabled() bool { return e != nil && atomic.LoadUint32(e.word) != 0 }

// Write writes the event with its data: to a ring, without a system call, if the directory
// has them. EBADF says that nobody listens any more, EINVAL that the data are less than
// the fields, ErrNoRoom that more comes than is read. In a ring too few data are noticed by
// who reads them, and counted as lost.
func (e *Event) Write(d *Data) error {
	if e == nil {
		return syscall.EBADF
	}
	p, b := e.p, d.finish()
	if p.ring != nil && len(b) <= maxInRing {
		if !e.Enabled() {
			return syscall.EBADF
		}
		now := uint64(0)
		if !p.ring.TSC() {
			now = p.beginNS + uint64(time.Since(p.begin))
		}
		return p.ring.Write(uint16(e.index), now, 0, b[indexSize:])
	}
	binary.NativeEndian.PutUint32(b, e.index)
	_, err := p.file.Write(b)
	return err
}

// ErrNoRoom: a ring is full.
var ErrNoRoom = ring.ErrNoRoom

const maxInRing = ring.MaxRecord - ring.RecordHeader + indexSize

// Data is what an event has in it, in the order of its fields. Append begins it.
type Data struct {
	b    []byte
	late []late
}

// late is a text that follows the fields.
type late struct {
	at   int
	text string
}

const indexSize = 4

// Append begins the data of an event in a buffer, which may be nil.
func Append(b []byte) *Data { return &Data{b: append(b[:0], 0, 0, 0, 0)} }

// Uint8 and the others add a number.
func (d *Data) Uint8(v uint8) *Data { d.b = append(d.b, v); return d }

// Uint16 adds a number.
func (d *Data) Uint16(v uint16) *Data { d.b = binary.NativeEndian.AppendUint16(d.b, v); return d }

// Uint32 adds a number.
func (d *Data) Uint32(v uint32) *Data { d.b = binary.NativeEndian.AppendUint32(d.b, v); return d }

// Uint64 adds a number.
func (d *Data) Uint64(v uint64) *Data { d.b = binary.NativeEndian.AppendUint64(d.b, v); return d }

// Bytes adds a field of a fixed size, an array or a struct.
func (d *Data) Bytes(v []byte) *Data { d.b = append(d.b, v...); return d }

// String adds a text for a field of type __rel_loc char[].
func (d *Data) String(text string) *Data {
	d.late = append(d.late, late{len(d.b), text})
	d.b = append(d.b, 0, 0, 0, 0)
	return d
}

// finish puts the texts behind the fields.
func (d *Data) finish() []byte {
	for _, l := range d.late {
		const most = 1<<16 - 1
		text := l.text[:min(len(l.text), most-1)]
		from := len(d.b) - l.at - 4
		if from > most {
			text, from = "", 0
		}
		binary.NativeEndian.PutUint32(d.b[l.at:], uint32(len(text)+1)<<16|uint32(from))
		d.b = append(append(d.b, text...), 0)
	}
	return d.b
}
