// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/perf"
)

// Step by step the same is found as by openat2 in one, with the same errors.
func TestSteps(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	at := func(name string) string { return filepath.Join(root, name) }
	if err := errors.Join(os.MkdirAll(at("a/b"), 0o755), os.WriteFile(at("a/b/file"), nil, 0o600), os.WriteFile(filepath.Join(dir, "secret"), nil, 0o600),
		os.Symlink("/a", at("absolute")), os.Symlink("../b/../../absolute/b", at("a/b/up")), os.Symlink("self", at("self")),
		os.Symlink("../../../../../../secret", at("out")), os.Symlink("a/b/file", at("link")), os.Symlink("none", at("dangling"))); err != nil {
		t.Fatal(err)
	}
	fd, err := sys.Open(root, sys.OPath|sys.ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	for _, name := range []string{"/", "/a/b/file", "a//./b/file", "/absolute/b/file", "/a/b/up/file", "/link", "/../a", "/a/../../a/b",
		"/self", "/out", "/dangling", "/a/b/file/x", "/none", "/link/.."} {
		want, wantErr := sys.OpenInRoot(fd, name, sys.OPath)
		s := steps{way: &way{types: new(mountTypes), proc: procfs.FS{}.Self()}, at: []*sys.FD{fd}}
		err := s.walk(name)
		got := s.at[len(s.at)-1]
		switch {
		case wantErr != nil || err != nil:
			var errno, wantErrno syscall.Errno
			if errors.As(err, &errno); !errors.As(wantErr, &wantErrno) || errno != wantErrno {
				t.Errorf("%s: %v, want %v", name, err, wantErr)
			}
		default:
			a, err1 := got.Stat()
			b, err2 := want.Stat()
			if err := errors.Join(err1, err2); err != nil || a != b {
				t.Errorf("%s: %+v, want %+v, %v", name, a, b, err)
			}
		}
		want.Close()
		s.close()
	}
}

// Nothing is asked of a file system that a program serves, which is mounted over
// the path of a mapped file, whatever leads there.
func TestCovered(t *testing.T) {
	testutil.Require(t, testutil.Root)
	dir := t.TempDir()
	at, link := filepath.Join(dir, "covered"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(at, 0o755), os.WriteFile(filepath.Join(at, "file"), nil, 0o600), os.Symlink("covered", link)); err != nil {
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
		if f, err := reader.OpenMapped(self, 0, 0, path); !errors.Is(err, ErrMadeUp) {
			f.Close()
			t.Errorf("%s: opened: %v", path, err)
		}
		if f, err := reader.OpenInTime(self, 0, 0, path); !errors.Is(err, ErrMadeUp) {
			f.Close()
			t.Errorf("%s: opened in time: %v", path, err)
		}
		if id, err := reader.AtPath(self, m); !errors.Is(err, ErrMadeUp) {
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
	if n := reader.errands.vain; n > 0 {
		t.Errorf("waited in vain %d times", n)
	}
}

// The number of a device or mount is believed for a moment only: the next file
// system may have it.
func TestTypesAreForgotten(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "proc/42")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	proc := procfs.New(root).Proc(42)
	var types mountTypes
	for _, fstype := range []string{"tmpfs", "fuse", "tmpfs"} {
		line := "30 22 0:40 / /mnt rw - " + fstype + " x rw\n"
		if err := os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		types.since = types.since.Add(-2 * keepTypes)
		if got := types.served(proc, device{0, 40}, "/x"); got != (fstype == "fuse") {
			t.Errorf("%s: %v", fstype, got)
		}
		if _, err := types.check(proc, &sys.Stat{Mount: 30}); errors.Is(err, ErrMadeUp) != (fstype == "fuse") {
			t.Errorf("%s: %v", fstype, err)
		}
	}
}
