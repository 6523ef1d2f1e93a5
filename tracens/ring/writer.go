// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ErrNoRoom: the reader has not read enough yet; the ring counted the record as lost.
var ErrNoRoom = errors.New("no room in the ring")

// Writer writes records. Its methods may be called from several goroutines.
type Writer struct {
	head, lost, tail *atomic.Uint64
	data             []byte
	mask             uint64
	tsc              bool
}

// DataSize reads the size of a ring's data, in bytes, from its page.
func DataSize(page []byte) (int, error) {
	if len(page) < Header || string(page[:len(magic)]) != magic ||
		binary.NativeEndian.Uint32(page[versionAt:]) != version {
		return 0, ErrRing
	}
	size := binary.NativeEndian.Uint64(page[sizeAt:])
	if !ValidSize(size) {
		return 0, fmt.Errorf("%d bytes of data: %w", size, ErrRing)
	}
	return int(size), nil
}

// NewWriter writes to a ring's memory, which begins at a page, and lasts as long as the
// Writer.
func NewWriter(mem []byte) (*Writer, error) {
	if size, err := DataSize(mem); err != nil || size != len(mem)-Header {
		return nil, fmt.Errorf("%d bytes: %w", len(mem), ErrRing)
	}
	word := func(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&mem[at])) }
	return &Writer{head: word(headAt), lost: word(lostAt), tail: word(tailAt), data: mem[Header:],
		mask: uint64(len(mem)-Header) - 1, tsc: binary.NativeEndian.Uint64(mem[clockAt:]) == TSC && hasTSC}, nil
}

// TSC reports whether the ring's times are of the time stamp counter, which Write reads
// then.
func (w *Writer) TSC() bool { return w.tsc }

// Write writes one record; time is of CLOCK_MONOTONIC, unless TSC. ErrNoRoom is all that
// can go wrong with data of up to MaxRecord-RecordHeader bytes.
func (w *Writer) Write(index uint16, time uint64, tid uint32, data []byte) error {
	size := uint64(RecordHeader + len(data))
	room := aligned(size)
	if w.tsc {
		time = tsc()
	}
	var pos uint64
	for {
		pos = w.head.Load()
		if size > MaxRecord || pos+room-w.tail.Load() > uint64(len(w.data)) {
			w.lost.Add(1)
			return ErrNoRoom
		}
		if w.head.CompareAndSwap(pos, pos+room) {
			break
		}
	}
	from := pos & w.mask
	ne := binary.NativeEndian
	if from+size <= uint64(len(w.data)) {
		b := w.data[from : from+size]
		ne.PutUint64(b[8:], time)
		ne.PutUint32(b[16:], tid)
		copy(b[RecordHeader:], data)
	} else {
		var b [RecordHeader]byte
		ne.PutUint64(b[8:], time)
		ne.PutUint32(b[16:], tid)
		w.put(pos+8, b[8:])
		w.put(pos+RecordHeader, data)
	}
	storeRelease(&w.data[from], uint64(uint32(pos/align))|size<<32|uint64(index)<<48)
	return nil
}

// put writes bytes at a position, in two parts where the data end.
func (w *Writer) put(pos uint64, b []byte) {
	n := copy(w.data[pos&w.mask:], b)
	copy(w.data, b[n:])
}
