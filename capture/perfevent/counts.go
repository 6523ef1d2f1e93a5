// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"fmt"
	"io"
	"math/bits"

	"github.com/gantry-tools/gantry/perf"
)

// Count is what one event counted.
type Count struct {
	Value uint64
	ID    uint64 // with perf.FormatID
	Lost  uint64 // samples lost, with perf.FormatLost
}

// Counts is what reading an event gives: one Count, or with
// perf.FormatGroup one for each event of the group, the leader first.
type Counts struct {
	// Enabled and Running are nanoseconds: how long the event was switched
	// on and how long it really counted. Zero unless the attr asks for them.
	Enabled, Running uint64
	Counts           []Count
}

// Scaled is value as it would be had the event counted all the time it was
// enabled. It is false if the event never ran, and then nothing is known.
func (c *Counts) Scaled(value uint64) (uint64, bool) {
	if c.Running >= c.Enabled {
		return value, true
	}
	if c.Running == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(value, c.Enabled)
	if hi >= c.Running {
		return ^uint64(0), true
	}
	q, _ := bits.Div64(hi, lo, c.Running)
	return q, true
}

// maxGroup bounds what is read of a group: the kernel's own limit is the
// 16 bits of a record's size.
const maxGroup = 1024

// ReadCounts reads the event's counts, in the form that its attr's read format
// asks for. A pinned event that lost its counter gives io.EOF.
func (e *Event) ReadCounts() (Counts, error) {
	size := 8 * (3 + 3*maxGroup)
	if e.Attr.ReadFormat&perf.FormatGroup == 0 {
		size = 8 * 5
	}
	buf := make([]byte, size)
	n, err := e.fd.Read(buf)
	if err != nil {
		return Counts{}, fmt.Errorf("read counts: %w", err)
	}
	if n == 0 {
		return Counts{}, fmt.Errorf("read counts: the event lost its counter: %w", io.EOF)
	}
	return decodeCounts(buf[:n], e.Attr.ReadFormat)
}

// decodeCounts reads struct read_format of perf_event_open(2).
func decodeCounts(b []byte, f perf.ReadFormat) (Counts, error) {
	r := wordReader{b: b}
	var c Counts
	num := uint64(1)
	var first Count
	if f&perf.FormatGroup != 0 {
		num = r.next()
	} else {
		first.Value = r.next()
	}
	if f&perf.FormatTotalTimeEnabled != 0 {
		c.Enabled = r.next()
	}
	if f&perf.FormatTotalTimeRunning != 0 {
		c.Running = r.next()
	}
	if num > uint64(len(b)/8) {
		return Counts{}, fmt.Errorf("read counts: group of %d in %d bytes: %w", num, len(b), io.ErrUnexpectedEOF)
	}
	for range num {
		v := first
		if f&perf.FormatGroup != 0 {
			v.Value = r.next()
		}
		if f&perf.FormatID != 0 {
			v.ID = r.next()
		}
		if f&perf.FormatLost != 0 {
			v.Lost = r.next()
		}
		c.Counts = append(c.Counts, v)
	}
	if r.short {
		return Counts{}, fmt.Errorf("read counts: %d bytes: %w", len(b), io.ErrUnexpectedEOF)
	}
	return c, nil
}

// wordReader takes 64-bit words off b and remembers if there were too few.
type wordReader struct {
	b     []byte
	short bool
}

func (r *wordReader) next() uint64 {
	if len(r.b) < 8 {
		r.short = true
		return 0
	}
	v := nativeOrder.Uint64(r.b)
	r.b = r.b[8:]
	return v
}
