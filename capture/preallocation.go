// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"os"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// preallocation has the file system set disk space aside ahead of the recording. Where
// blocks are found for each page as it is written, which ext4 does, that takes
// a third of the time of writing. A killed recorder leaves up to roomStep bytes
// preallocated behind the end of the file, until that is removed or truncated.
type preallocation struct {
	file *os.File
	off  bool  // nothing more is preallocated
	end  int64 // of what is
}

const (
	preallocStep = 32 << 20
	// preallocMinFile is how large a file is for which it is worth the trouble.
	preallocMinFile = 4 << 20
	// preallocFreeShare is how many times as much must be free: what is preallocated is
	// missing elsewhere.
	preallocFreeShare = 32
)

// newPreallocation looks at the file system of a regular file.
func newPreallocation(f *os.File) preallocation {
	if fs, err := sys.FileSystemOf(f); err != nil || !fs.Ext4 {
		return preallocation{off: true}
	}
	return preallocation{file: f}
}

// extend is called with the size of the file before more is written.
func (m *preallocation) extend(size int64) {
	if m.file == nil || m.off || size < preallocMinFile || size+preallocStep/2 < m.end {
		return
	}
	fs, err := sys.FileSystemOf(m.file)
	if err != nil || fs.Free < preallocFreeShare*preallocStep {
		m.off = true
		return
	}
	from := max(size, m.end)
	if err := sys.Preallocate(m.file, from, preallocStep); err != nil {
		m.off = true // it costs more, and the disk may be full
		return
	}
	m.end = from + preallocStep
}

// finish gives back what the file does not use.
func (m *preallocation) finish() error {
	if m.end == 0 {
		return nil
	}
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	return m.file.Truncate(info.Size())
}
