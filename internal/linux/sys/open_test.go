// SPDX-License-Identifier: Apache-2.0

//go:build linux

package sys

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestOpenRegular: a pipe would wait for a writer, a device would act.
func TestOpenRegular(t *testing.T) {
	dir := t.TempDir()
	pipe, plain := filepath.Join(dir, "pipe"), filepath.Join(dir, "plain")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) (*FD, error) {
		fd, err := Open(path, OPath)
		if err != nil {
			t.Fatal(err)
		}
		defer fd.Close()
		return OpenRegular(fd)
	}
	for _, path := range []string{pipe, dir, "/dev/null"} {
		if f, err := open(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v, %v", path, f, err)
		}
	}
	fd, err := open(plain)
	if err != nil {
		t.Fatal(err)
	}
	f := fd.File(plain)
	defer f.Close()
	if b, err := os.ReadFile(f.Name()); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestOpenInRootGivesUp: who leases a file for writing makes each open that
// must not wait fail, for as long as he likes.
func TestOpenInRootGivesUp(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "leased"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		testutil.NotHere(t, "no lease on this file system: %v", err)
	}
	root, err := Open(dir, OPath|ODirectory)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if fd, err := OpenInRoot(root, "leased", os.O_RDONLY|unix.O_NONBLOCK); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%v, %v, want EAGAIN", fd, err)
	}
}
