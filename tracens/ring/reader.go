// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// ErrRing says that memory is not a ring.
var ErrRing = errors.New("not a ring")

// Record is one record as the program wrote it.
type Record struct {
	// Index numbers the event, as its registration in the program gave it.
	Index uint16
	// Time is of the ring's clock, if the program says the truth.
	Time uint64
	// TID is the thread, as the program's pid namespace numbers it; 0 is not known.
	TID uint32
	// Data are the event's; they are valid until the function that has them returns.
	Data []byte
}

// Reader empties a ring, whose memory programs write to at the same time, whatever they
// like. It is one reader's, and one goroutine's.
type Reader struct {
	page, data []byte
	mask, tail uint64

	lost    uint64 // as the writers said last
	dropped uint64 // by them, in all
	skipped uint64 // by us
	stuck   time.Time
	record  Record
	room    [MaxRecord]byte // of its data
}

// patience is how long a record may be reserved and not written: then its writer has
// ended, or waits for something; it does not keep others from being read.
const patience = 100 * time.Millisecond

// Format makes a new ring of memory, whose length is Header and the data's. Its times are
// of that kind of clock.
func Format(mem []byte, clock uint64) error {
	size := uint64(len(mem)) - Header
	if len(mem) < Header || !ValidSize(size) {
		return fmt.Errorf("%d bytes: %w", len(mem), ErrRing)
	}
	clear(mem[:Header])
	binary.NativeEndian.PutUint32(mem[versionAt:], version)
	binary.NativeEndian.PutUint64(mem[sizeAt:], size)
	binary.NativeEndian.PutUint64(mem[clockAt:], clock)
	copy(mem, magic)
	return nil
}

// NewReader reads what was not read yet of a ring's memory, which begins at a page.
func NewReader(mem []byte) (*Reader, error) {
	r := &Reader{page: mem[:min(Header, len(mem))], data: mem[min(Header, len(mem)):]}
	size := uint64(len(r.data))
	if !ValidSize(size) {
		return nil, fmt.Errorf("%d bytes: %w", len(mem), ErrRing)
	}
	r.mask = size - 1
	r.tail = r.word(tailAt).Load()
	r.lost = r.word(lostAt).Load()
	if head := r.word(headAt).Load(); r.tail%align != 0 || head-r.tail > size {
		r.restart(head)
	}
	return r, nil
}

// word is a number of the page.
func (r *Reader) word(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.page[at])) }

// at is the first word of a record.
func (r *Reader) at(pos uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.data[pos&r.mask]))
}

// Lost counts the records that found no room, as writers say, and what was no record.
func (r *Reader) Lost() uint64 { return r.dropped + r.skipped }

// restart begins anew at head: what is before it is not what a writer writes.
func (r *Reader) restart(head uint64) {
	r.tail = aligned(head)
	r.skipped++
	if head != r.tail {
		r.word(headAt).CompareAndSwap(head, r.tail)
	}
	r.word(tailAt).Store(r.tail)
}

// Read calls fn with the records that there are, and returns how many. With last, nobody
// writes any more: what was reserved is not waited for.
func (r *Reader) Read(last bool, fn func(*Record)) int {
	r.countLost()
	head, n := r.word(headAt).Load(), 0
	if head-r.tail > uint64(len(r.data)) || head%align != 0 {
		r.restart(head)
		return 0
	}
	for r.tail != head {
		size := r.next(head)
		if size == 0 {
			if !last && !r.late() {
				break
			}
			r.skip(head)
			continue
		}
		r.stuck = time.Time{}
		fn(&r.record)
		n++
		r.tail += size
	}
	r.word(tailAt).Store(r.tail)
	return n
}

// maxLost is how many records writers can have lost since the last look: what says more
// was not written by one.
const maxLost = 1 << 32

// countLost counts what found no room.
func (r *Reader) countLost() {
	lost := r.word(lostAt).Load()
	if n := lost - r.lost; n <= maxLost {
		r.dropped += n
	} else {
		r.skipped++
	}
	r.lost = lost
}

// next reads the record at the tail and returns the room it takes; 0 if there is none yet.
func (r *Reader) next(head uint64) uint64 {
	first := r.at(r.tail).Load()
	size := uint64(uint16(first >> 32))
	if uint32(first) != uint32(r.tail/align) || size < RecordHeader || aligned(size) > head-r.tail {
		return 0
	}
	b := r.room[:size]
	from := r.tail & r.mask
	n := copy(b, r.data[from:])
	copy(b[n:], r.data)
	r.record = Record{Index: uint16(first >> 48), Time: binary.NativeEndian.Uint64(b[8:]),
		TID: binary.NativeEndian.Uint32(b[16:]), Data: b[RecordHeader:]}
	return aligned(size)
}

// late reports whether the record at the tail has had its time.
func (r *Reader) late() bool {
	if r.stuck.IsZero() {
		r.stuck = time.Now()
	}
	return time.Since(r.stuck) > patience
}

// skip looks for the next record, and leaves out what is in front of it.
func (r *Reader) skip(head uint64) {
	r.skipped++
	r.stuck = time.Time{}
	for r.tail += align; r.tail != head; r.tail += align {
		if uint32(r.at(r.tail).Load()) == uint32(r.tail/align) {
			return
		}
	}
}
