// SPDX-License-Identifier: Apache-2.0

//go:build linux

package binaries

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// Nothing is asked of a file system that a program serves, which is mounted over
// the path of a mapped file, whatever leads there.
func TestCovered(t *testing.T) {
	testutil.Require(t, testutil.Root)
	dir := t.TempDir()
	at, link := filepath.Join(dir, "covered"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "file"), nil, 0o600),
		os.Symlink("covered", link)); err != nil {
		t.Fatal(err)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(at, "file"), &st); err != nil {
		t.Fatal(err)
	}
	self := procfs.FS{}.Self()
	reader := NewIDReader(nil)
	defer reader.Close()
	fuse := testutil.MountFUSE(t, 0, at, nil)
	fuse.Silence()
	for _, path := range []string{at + "/file", at + "/none", link + "/file", at + "/../covered/file", at + "/a/b"} {
		m := &perf.Mmap2{Ino: st.Ino, Maj: uint32(st.Dev >> 8 & 0xfff), Min: uint32(st.Dev & 0xff), Filename: path}
		if f, err := reader.OpenMapped(self, 0, 0, path); !errors.Is(err, procroot.ErrPseudoFile) {
			f.Close()
			t.Errorf("%s: opened: %v", path, err)
		}
		if id, err := reader.AtPath(self, m, math.MaxInt64); !errors.Is(err, procroot.ErrPseudoFile) {
			t.Errorf("%s: %x, %v", path, id, err)
		}
		if s := reader.State(self, m); s != (FileState{}) {
			t.Errorf("%s: %+v", path, s)
		}
		if s := reader.OwnState(m); s != (FileState{}) {
			t.Errorf("%s: %+v", path, s)
		}
	}
	if n := fuse.Asked(); n > 0 {
		t.Errorf("the server was asked %d times", n)
	}
}
