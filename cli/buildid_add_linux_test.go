// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/linux/procroot"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// secretName is in every file that must not be read.
const secretName = "gantry_secret_function"

// TestAddHostileContainer: a container that has links out of its root, and what
// is no file, where its binaries should be. What it must not lead to is an ELF
// file of the host, which would be stored if it were opened.
func TestAddHostileContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("runc"))
	secret := testutil.SpinProgram(t, secretName)
	server := testutil.SpinProgram(t, "add_hot")
	c := testutil.StartContainer(t, testutil.ContainerSpec{Files: map[string]string{"/app/server": server}})
	plant := func(name string) string { return filepath.Join(c.Rootfs, name) }
	up := strings.Repeat("../", 40)
	links := map[string]string{
		"absolute":  secret,
		"relative":  up + secret,
		"bundle":    up + c.Rootfs + "/app/server",
		"selfroot":  "/proc/self/root/app/server", // a magic link, though it stays inside
		"initroot":  "/proc/1/root" + secret,
		"selfcwd":   "/proc/self/cwd/" + secret,
		"exe":       "/proc/self/exe", // gantry itself
		"kcore":     "/proc/kcore",
		"loop":      "loop",
		"indirect":  "/absolute",
		"directory": "/app",
	}
	for name, target := range links {
		if err := os.Symlink(target, plant(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		syscall.Mkfifo(plant("fifo"), 0o666),
		syscall.Mknod(plant("device"), syscall.S_IFCHR|0o666, int(unix.Mkdev(1, 5))), // /dev/zero
		syscall.Mknod(plant("block"), syscall.S_IFBLK|0o666, int(unix.Mkdev(7, 0))),
		syscall.Mknod(plant("socket"), syscall.S_IFSOCK|0o666, 0),
		os.WriteFile(plant("script"), []byte("#!/bin/sh\n"), 0o755),
		os.WriteFile(plant("huge"), []byte("\x7fELF"), 0o755),
		os.Truncate(plant("huge"), 1<<40),
		os.WriteFile(plant("empty"), nil, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "store")
	add := func(args ...string) (stdout, stderr string, code int) {
		var out, errs bytes.Buffer
		code = Main(strings.NewReader(""), &out, &errs,
			append([]string{"buildid", "add", "--buildid-dir", store, "--container", c.ID}, args...))
		return out.String(), errs.String(), code
	}
	bad := []string{"fifo", "device", "block", "socket", "script", "huge", "empty", "nothing", "../../" + secret}
	for name := range links {
		bad = append(bad, name)
	}
	for _, name := range bad {
		out, errs, code := add("/" + name)
		if code != 1 || out != "" || !strings.HasPrefix(errs, "gantry: ") {
			t.Errorf("%s: status %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
	out, errs, code := add("/app/server")
	if code != 0 || !strings.HasSuffix(out, " /app/server\n") {
		t.Fatalf("the container's own file: status %d, %q, %q", code, out, errs)
	}
	id, _, _ := strings.Cut(out, " ")
	for _, name := range bad {
		if name == "script" || name == "empty" {
			continue // files of the container, as a source file may be
		}
		if out, errs, code := add("--source-of", id, "/"+name); code != 1 || out != "" ||
			!strings.HasPrefix(errs, "gantry: ") {
			t.Errorf("%s for a source file: status %d, stdout %q, stderr %q", name, code, out, errs)
		}
	}
	if _, errs, code := add("app/server"); code != 1 || !strings.Contains(errs, "not an absolute path") {
		t.Errorf("a relative path: status %d, %q", code, errs)
	}
	if err := os.Symlink("/app/server", plant("inside")); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := add("/inside"); code != 0 || out == "" {
		t.Errorf("a link that stays inside: status %d, %q", code, errs)
	}
	checkStored(t, store)
}

// checkStored looks at all that is in the store: one program, and not the one
// that must not be read.
func checkStored(t *testing.T, store string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(store, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == ".gantry.lock" {
			return err
		}
		b, err := os.ReadFile(name)
		if files++; bytes.Contains(b, []byte(secretName)) {
			t.Errorf("%s is what must not be read", name)
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d files in the store, %v", files, err)
	}
}

// TestAddFUSE: neither a file that a program serves nor one below a directory
// of such a program makes gantry wait.
func TestAddFUSE(t *testing.T) {
	testutil.Require(t, testutil.Root)
	var root *sys.FD
	var run func() error
	run = func() error {
		// The thread, and with it the mount, ends with the goroutine. But not the first
		// thread, which /proc/self is about: all tests after this one would seem to be in
		// a container.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done := make(chan error)
			go func() { done <- run() }()
			return <-done
		}
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		dir := t.TempDir()
		dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0) // whose server never answers
		if err != nil {
			return err
		}
		defer dev.Close() // wakes who waits
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev.Fd())
		if err := unix.Mount("gantry-test", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		if root, err = sys.Open("/", sys.OPath|sys.ODirectory); err != nil {
			return err
		}
		c := &containerRoot{proc: procfs.FS{}.Proc(unix.Gettid()), root: root, name: "test"}
		if _, err := c.Open(dir); !errors.Is(err, procroot.ErrPseudoFile) { // the root of the mount
			t.Errorf("on FUSE: %v", err)
		}
		if _, err := c.Open(dir + "/lib.so"); !errors.Is(err, procroot.ErrPseudoFile) {
			t.Errorf("below FUSE: %v", err)
		}
		return nil
	}
	done := make(chan error)
	go func() { done <- run() }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	root.Close()
}

// TestOpenInTime: another file system that does not answer is not waited for
// either.
func TestOpenInTime(t *testing.T) {
	answer := make(chan error)
	waits := opener(func(string) (*os.File, error) { return nil, <-answer })
	if _, err := openInTime(waits, "/lib.so", time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "no answer in") {
		t.Errorf("%v", err)
	}
	answer <- io.EOF
}
