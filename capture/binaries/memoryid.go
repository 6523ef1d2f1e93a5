// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"io"
	"os"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/perf"
)

// fromMemory reads the build-id out of the memory of the process that has the
// file mapped, where nothing leads to the file itself any more: it was replaced
// and /proc/PID/map_files is closed to this user. It is not ok if the first page
// of the file is not mapped before m, or has no id: the process may have written
// to it.
func fromMemory(proc procfs.Proc, m *perf.Mmap2) (id []byte, ok bool) {
	start, found := uint64(0), false
	err := proc.Maps(procfs.NewMapsScanner(), func(x *procfs.Mapping) error {
		if x.Start > m.Addr {
			return errEnough
		}
		if x.Offset == 0 && x.Inode == m.Ino && x.DevMajor == m.Maj && x.DevMinor == m.Min {
			start, found = x.Start, true
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) || !found {
		return nil, false
	}
	mem, err := os.Open(proc.Path("mem"))
	if err != nil {
		return nil, false
	}
	defer mem.Close()
	size := int64(m.Addr + m.Len - start)
	got, err := buildid.FromImage(io.NewSectionReader(mem, int64(start), size), size)
	if err != nil || got.Len() > maxID {
		return nil, false
	}
	return got.Bytes(), true
}

// errEnough ends a scan.
var errEnough = errors.New("enough")
