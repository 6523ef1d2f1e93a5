// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/gantry-tools/gantry/internal/hint"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// ErrLockedMemory: rings of this size exceed what the user may lock.
var ErrLockedMemory = errors.New("not enough locked memory allowed")

// Offsets in struct perf_event_mmap_page, the first page of the mapping.
const (
	offDataHead   = 1024
	offDataTail   = 1032
	offDataOffset = 1040
	offDataSize   = 1048
)

// Ring is the memory into which the kernel writes an event's records, and
// those of all events sent to it with SetOutput. One goroutine reads it.
type Ring struct {
	mem  *sys.Mapping
	data []byte
	head *uint64 // written by the kernel
	tail *uint64 // written by us
	at   uint64  // our copy of tail
}

// RingPages is the smallest ring, in pages, that holds size bytes.
func RingPages(size int) int {
	pages := max((size+sys.PageSize()-1)/sys.PageSize(), 1)
	return 1 << bits.Len(uint(pages-1))
}

// NewRing maps a ring of pages pages, a power of two, for ev. The ring needs
// ev no longer than this call, but the kernel writes into it only as long as
// an event that outputs to it is open. ErrLockedMemory has a hint with sizes.
func NewRing(ev *Event, pages int) (*Ring, error) {
	if pages <= 0 || pages&(pages-1) != 0 {
		return nil, fmt.Errorf("map ring of %d pages: not a power of two: %w", pages, syscall.EINVAL)
	}
	page := sys.PageSize()
	mem, err := sys.Mmap(ev.fd, (pages+1)*page, true)
	if err != nil {
		return nil, ringError(pages, err)
	}
	b := mem.Bytes()
	off, size := uint64(page), uint64(pages*page)
	// Kernels before 4.1 leave these zero.
	if n := nativeOrder.Uint64(b[offDataSize:]); n != 0 {
		off, size = nativeOrder.Uint64(b[offDataOffset:]), n
	}
	if off > uint64(len(b)) || size > uint64(len(b))-off || size == 0 || size&(size-1) != 0 {
		mem.Close()
		return nil, fmt.Errorf("map ring: kernel placed %d bytes at %d of %d: %w", size, off, len(b), syscall.EINVAL)
	}
	r := &Ring{
		mem:  mem,
		data: b[off : off+size : off+size],
		head: (*uint64)(unsafe.Pointer(&b[offDataHead])),
		tail: (*uint64)(unsafe.Pointer(&b[offDataTail])),
	}
	r.at = atomic.LoadUint64(r.tail)
	return r, nil
}

// Size is how many bytes of records the ring holds.
func (r *Ring) Size() int { return len(r.data) }

// Peek returns all unread records, where the kernel wrote them: in a, and if
// they wrap around the end of the ring then in b too. A record may lie across
// the two. They stay valid until Consume or Close.
func (r *Ring) Peek() (a, b []byte) {
	// sync/atomic orders the load before the reads of the data, as the
	// kernel's smp_rmb after data_head wants.
	size := uint64(len(r.data))
	// The kernel never writes more than fits; if it seems so, the walk over
	// the records says where they stop to make sense.
	n := min(atomic.LoadUint64(r.head)-r.at, size)
	if n == 0 {
		return nil, nil
	}
	from := r.at & (size - 1)
	if first := size - from; n > first {
		return r.data[from:], r.data[:n-first]
	}
	return r.data[from : from+n], nil
}

// Unread is how many bytes Peek would return.
func (r *Ring) Unread() int { return int(atomic.LoadUint64(r.head) - r.at) }

// Consume gives the first n unread bytes back to the kernel. n should be the
// end of a record.
func (r *Ring) Consume(n int) {
	r.at += uint64(n)
	atomic.StoreUint64(r.tail, r.at)
}

// Close unmaps the ring: slices from Peek become invalid. Closing twice does
// nothing, but nothing else may be called after Close.
func (r *Ring) Close() error {
	if r == nil {
		return nil
	}
	return r.mem.Close()
}

// ringError turns the EPERM of a limit into an error that says how much.
func ringError(pages int, err error) error {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOMEM) {
		return fmt.Errorf("map ring of %d pages: %w", pages, err)
	}
	kb := (pages + 1) * sys.PageSize() / 1024
	err = fmt.Errorf("map ring of %d kB: %w: %w", kb, ErrLockedMemory, err)
	return hint.Wrap(err, fmt.Sprintf("use smaller rings (-m), raise %s, raise ulimit -l%s, or run with CAP_IPC_LOCK",
		"kernel.perf_event_mlock_kb"+mlockKB(), memlockKB()))
}

func mlockKB() string {
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_mlock_kb")
	if err != nil {
		return ""
	}
	return " (now " + strings.TrimSpace(string(b)) + " kB a CPU)"
}

func memlockKB() string {
	soft, _, err := sys.MemlockLimit()
	if err != nil || soft == sys.Infinity {
		return ""
	}
	return " (now " + strconv.FormatUint(soft/1024, 10) + " kB)"
}
