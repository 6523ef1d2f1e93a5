// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Disk space is preallocated ahead of a file that grows, and given back.
func TestPreallocation(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blocks := func() int64 {
		t.Helper()
		var st syscall.Stat_t
		if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	fs, err := sys.FileSystemOf(f)
	if err != nil {
		t.Fatal(err)
	}
	m := newPreallocation(f)
	m.extend(preallocMinFile - 1)
	if n := blocks(); n != 0 {
		t.Errorf("%d bytes for a small file", n)
	}
	if _, err := f.WriteAt([]byte("end"), preallocMinFile); err != nil {
		t.Fatal(err)
	}
	m.extend(preallocMinFile)
	if n := blocks(); fs.Ext4 && fs.Free > preallocFreeShare*preallocStep*2 && n < preallocStep || !fs.Ext4 && n >= preallocStep {
		t.Errorf("%d bytes preallocated on %+v", n, fs)
	}
	if err := m.finish(); err != nil {
		t.Fatal(err)
	}
	if n := blocks(); n >= preallocStep {
		t.Errorf("%d bytes are still preallocated", n)
	}
	if info, err := f.Stat(); err != nil || info.Size() != preallocMinFile+3 {
		t.Errorf("%v, %v: the size has changed", info, err)
	}
}
