// SPDX-License-Identifier: Apache-2.0

//go:build linux

package perfevent

import (
	"fmt"
	"io"

	"github.com/gantry-tools/gantry/perf"
)

// maxGroup bounds what is read of a group: the kernel's own limit is the
// 16 bits of a record's size.
const maxGroup = 1024

// ReadCounts reads the event's counts, in the form that its attr's read format
// asks for. A pinned event that lost its counter gives io.EOF.
func (e *Event) ReadCounts() (perf.ReadValues, error) {
	size := 8 * (3 + 3*maxGroup)
	if e.Attr.ReadFormat&perf.FormatGroup == 0 {
		size = 8 * 5
	}
	buf := make([]byte, size)
	n, err := e.fd.Read(buf)
	if err != nil {
		return perf.ReadValues{}, fmt.Errorf("read counts: %w", err)
	}
	if n == 0 {
		return perf.ReadValues{}, fmt.Errorf("read counts: the event lost its counter: %w", io.EOF)
	}
	v, err := perf.DecodeRead(buf[:n], e.Attr.ReadFormat, nativeOrder)
	if err != nil {
		return perf.ReadValues{}, fmt.Errorf("read counts: %w", err)
	}
	return v, nil
}
