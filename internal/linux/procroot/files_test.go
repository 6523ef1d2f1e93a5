// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procroot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// TestOpenOnRootMount leaves neither the root nor its mount.
func TestOpenOnRootMount(t *testing.T) {
	self := procfs.FS{}.Self()
	f, err := OpenOnRootMount(self, "/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for path, want := range map[string]error{
		"/proc/kcore": syscall.EXDEV, "/dev/null": syscall.EXDEV, "/etc": sys.ErrNotRegular, "/no/such/file": fs.ErrNotExist,
	} {
		if f, err := OpenOnRootMount(self, path); !errors.Is(err, want) {
			if err == nil {
				f.Close()
			}
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if f, err := OpenOnRootMount(procfs.FS{}.Proc(1<<30), "/etc/passwd"); err == nil {
		f.Close()
		t.Error("the root of a process that is not there")
	}
}

// TestOpenBelow: links, absolute ones too, stay below the root, and what the
// kernel makes up is no file.
func TestOpenBelow(t *testing.T) {
	dir := t.TempDir()
	secret, inside := filepath.Join(dir, "secret"), filepath.Join(dir, "root")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Mkdir(inside, 0o700),
		os.Symlink(secret, filepath.Join(inside, "absolute")), os.Symlink("../secret", filepath.Join(inside, "relative")),
		os.WriteFile(filepath.Join(inside, "file"), []byte("inside"), 0o600), os.Symlink("/file", filepath.Join(inside, "link"))); err != nil {
		t.Fatal(err)
	}
	self := procfs.FS{}.Self()
	root, err := sys.Open(inside, sys.OPath|sys.ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for path, ok := range map[string]bool{"/absolute": false, "/relative": false, "/../secret": false, "/file": true, "/link": true} {
		f, err := OpenBelow(self, root, path)
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			f.Close()
		}
	}
	whole, err := sys.Open("/", sys.OPath|sys.ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	for _, path := range []string{"/proc/self/status", "/proc/version", "/sys/kernel/notes"} {
		if f, err := OpenBelow(self, whole, path); !errors.Is(err, ErrPseudoFile) {
			if err == nil {
				f.Close()
			}
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestFindDir follows no link, and finds nothing on file systems that are made up.
func TestFindDir(t *testing.T) {
	self := procfs.FS{}.Self()
	dir, err := FindDir(self, "etc")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	f, err := OpenIn(dir, "passwd")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, name := range []string{"no-such", "/proc/version", "../../dev/null", "../proc/version", "."} {
		if f, err := OpenIn(dir, name); err == nil {
			f.Close()
			t.Errorf("%s was opened", name)
		}
	}
	if none, err := FindDir(self, "no-such-directory"); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	if made, err := FindDir(self, "proc"); !errors.Is(err, ErrPseudoFile) {
		made.Close()
		t.Errorf("/proc: %v", err)
	}
	if other, err := FindDir(procfs.FS{}.Proc(1<<30), "etc"); err == nil {
		other.Close()
		t.Error("the root of a process that is not there")
	}
}
