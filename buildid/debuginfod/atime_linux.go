// SPDX-License-Identifier: Apache-2.0

package debuginfod

import (
	"io/fs"
	"syscall"
	"time"
)

// lastUse is when a file was last read or written.
func lastUse(info fs.FileInfo) time.Time {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.ModTime()
	}
	if read := time.Unix(st.Atim.Unix()); read.After(info.ModTime()) {
		return read
	}
	return info.ModTime()
}
