// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"fmt"
	"iter"

	"github.com/gantry-tools/gantry/perf"
)

// RecordError is a ring, or a piece of one, whose records do not add up.
type RecordError struct {
	Offset int    // of the record in the unread bytes
	Size   uint16 // as its header says
	Left   int    // bytes that are left from Offset on
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("record at %d says its size is %d, %d bytes are left", e.Offset, e.Size, e.Left)
}

// Records walks the records in what Peek returned. A record that lies across
// the wrap is copied into scratch, which grows to the largest such record at
// most; all others are slices of a and b. After an error the walk ends.
func Records(a, b []byte, scratch *[]byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		total := len(a) + len(b)
		for off := 0; off < total; {
			h, ok := headerAt(a, b, off)
			if !ok {
				yield(nil, &RecordError{Offset: off, Size: h.Size, Left: total - off})
				return
			}
			end := off + int(h.Size)
			if !yield(slice(a, b, off, end, scratch), nil) {
				return
			}
			off = end
		}
	}
}

// headerAt reads the header at off. Records are 8-byte aligned and so is the
// ring, hence no header lies across the wrap.
func headerAt(a, b []byte, off int) (perf.Header, bool) {
	part, left := a, len(a)+len(b)-off
	if off >= len(a) {
		part, off = b, off-len(a)
	}
	if len(part)-off < perf.HeaderSize {
		return perf.Header{}, false
	}
	h := perf.ParseHeader(part[off:], nativeOrder)
	return h, h.Size >= perf.HeaderSize && h.Size%8 == 0 && int(h.Size) <= left
}

// slice is bytes off to end of a followed by b.
func slice(a, b []byte, off, end int, scratch *[]byte) []byte {
	switch {
	case end <= len(a):
		return a[off:end]
	case off >= len(a):
		return b[off-len(a) : end-len(a)]
	}
	*scratch = append(append((*scratch)[:0], a[off:]...), b[:end-len(a)]...)
	return *scratch
}
