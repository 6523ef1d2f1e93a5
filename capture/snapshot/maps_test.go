// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"testing"

	"github.com/gantry-tools/gantry/capture/binaries"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// However many files processes have mapped, only so many are remembered, whichever
// way they are read.
func TestRememberedIDsAreBounded(t *testing.T) {
	for _, text := range []bool{true, false} {
		var r mapReader
		r.init(&Proc{TextMaps: text})
		for i := range uint64(maxIDs) {
			r.ids[binaries.FileKey{Inode: i + 1, Path: "/of/another (deleted)"}] = nil
		}
		files := 0
		err := r.each(procfs.FS{}.Self(), 0, func(m *perf.Mmap2) error {
			if m.Ino != 0 {
				files++
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Errorf("%d files of this process, %v", files, err)
		}
		if n := len(r.ids); n == 0 || n > files {
			t.Errorf("%s: %d files are remembered, this process has mapped %d", r.method(), n, files)
		}
		r.close()
	}
}
