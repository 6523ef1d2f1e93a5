// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func openTemp(t *testing.T, text string) *FD {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := Open(path, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fd.Close() })
	return fd
}

func TestFDClosesOnce(t *testing.T) {
	testutil.CheckLeaks(t)
	fd := openTemp(t, "")
	raw := fd.Int()
	if err := fd.Close(); err != nil {
		t.Fatal(err)
	}
	// The number is free again: a second Close must not hit its new owner.
	next := openTemp(t, "x")
	if next.Int() != raw {
		t.Fatalf("got descriptor %d, want the freed %d", next.Int(), raw)
	}
	if err := fd.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	var b [1]byte
	if n, err := next.Read(b[:]); n != 1 || err != nil {
		t.Errorf("second Close hit a stranger: read %d, %v", n, err)
	}
	if fd.Int() != -1 {
		t.Errorf("Int after Close is %d, want -1", fd.Int())
	}
}

func TestFDNil(t *testing.T) {
	var fd *FD
	if fd.Int() != -1 || fd.Close() != nil || fd.Disown() != -1 {
		t.Error("a nil FD is not a harmless none")
	}
}

func TestFDDupDisown(t *testing.T) {
	testutil.CheckLeaks(t)
	fd := openTemp(t, "ab")
	dup, err := fd.Dup()
	if err != nil {
		t.Fatal(err)
	}
	raw := fd.Disown()
	if err := syscall.Close(raw); err != nil {
		t.Errorf("disowned descriptor was closed already: %v", err)
	}
	var b [2]byte
	if n, err := dup.Read(b[:]); n != 2 || err != nil {
		t.Errorf("read of the dup: %d, %v", n, err)
	}
	if err := dup.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dup.Dup(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Dup of a closed FD: %v, want EBADF", err)
	}
}

func TestNewFDRefusesNegative(t *testing.T) {
	if _, err := NewFD(-1); !errors.Is(err, syscall.EBADF) {
		t.Errorf("got %v, want EBADF", err)
	}
}

func TestOpenInRootStaysInRoot(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Kernel("5.6"))
	dir := t.TempDir()
	for name, target := range map[string]string{"abs": "/etc/passwd", "up": "../../../../etc/passwd"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := Open(dir, OPath|ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range []string{"abs", "up", "../../../../etc/passwd", "/etc/passwd"} {
		fd, err := OpenInRoot(root, name, os.O_RDONLY)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want not found in the root", name, err)
			fd.Close()
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := OpenInRoot(root, "abs", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	var b [16]byte
	n, err := fd.Read(b[:])
	if err != nil || string(b[:n]) != "inside" {
		t.Errorf("absolute link read %q, %v", b[:n], err)
	}
}

func TestOpenInRootRefusesMagicLinks(t *testing.T) {
	testutil.Require(t, testutil.Kernel("5.6"))
	proc, err := Open("/proc/self", OPath|ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer proc.Close()
	fd, err := OpenInRoot(proc, "root/etc", OPath)
	if !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v, want ELOOP", err)
		fd.Close()
	}
}

func TestDetachedMountIsInvisible(t *testing.T) {
	testutil.CheckLeaks(t)
	testutil.Require(t, testutil.Root, testutil.Kernel("5.2"))
	before := mounts(t)
	mount, err := DetachedMount("tracefs")
	if err != nil {
		t.Fatal(err)
	}
	defer mount.Close()
	if after := mounts(t); after != before {
		t.Errorf("mount table changed:\n%s\nwas:\n%s", after, before)
	}
	if typ, err := FSTypeOf(mount.Path()); err != nil || typ != TraceFS {
		t.Errorf("file system %#x, %v, want tracefs", typ, err)
	}
	events, err := OpenAt(mount, "events/header_page", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	events.Close()
	if fd, err := OpenAt(mount, "tracing_on", os.O_WRONLY); !errors.Is(err, syscall.EROFS) {
		t.Errorf("opening for writing: %v, want EROFS", err)
		fd.Close()
	}
}

// mounts is the part of the mount table that is about tracefs: other tests
// may mount other things meanwhile.
func mounts(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return linesWith(string(b), "tracefs")
}
