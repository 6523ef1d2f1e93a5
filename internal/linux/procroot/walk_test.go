// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// Component by component the same is found as by openat2 in one, with the same errors.
func TestWalk(t *testing.T) {
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
		w := pathWalk{Root: new(Files).Root(procfs.FS{}.Self(), nil), dirs: []*sys.FD{fd}}
		err := w.walk(name)
		got := w.last()
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
		w.close()
	}
}
