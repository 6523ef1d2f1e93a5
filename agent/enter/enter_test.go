// SPDX-License-Identifier: Apache-2.0

//go:build linux

package enter

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/sys"
)

// fakeContainer has this process's namespaces and a root with files of users.
func fakeContainer(t *testing.T) *Container {
	t.Helper()
	c, err := Open(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\nbroken line\nbad:x:nan:1::/:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n",
		"group":  "root:x:0:\nwheel:x:10:root,app\napp:x:1001:\nadm:x:4:app\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, "etc", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := sys.Open(dir, syscall.O_DIRECTORY|syscall.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	c.root.Close()
	c.root = root
	return c
}

func TestUser(t *testing.T) {
	c := fakeContainer(t)
	for _, tt := range []struct {
		text   string
		uid    uint32
		gid    uint32
		groups []uint32
		home   string
		err    error
	}{
		{"root", 0, 0, []uint32{10}, "/root", nil},
		{"app", 1000, 1001, []uint32{10, 4}, "/home/app", nil},
		{"1000", 1000, 1001, []uint32{10, 4}, "/home/app", nil},
		{"app:adm", 1000, 4, nil, "/home/app", nil},
		{"app:7", 1000, 7, nil, "/home/app", nil},
		{"4242", 4242, 0, nil, "/", nil},
		{"4242:4243", 4242, 4243, nil, "/", nil},
		{"nobody-here", 0, 0, nil, "", syscall.ENOENT},
		{"app:nothing", 0, 0, nil, "", syscall.ENOENT},
	} {
		u, err := c.user(tt.text)
		if !errors.Is(err, tt.err) || (tt.err == nil && err != nil) {
			t.Errorf("%q: %v, want %v", tt.text, err, tt.err)
			continue
		}
		if err == nil && (u.uid != tt.uid || u.gid != tt.gid || u.home != tt.home || !slices.Equal(u.groups, tt.groups)) {
			t.Errorf("%q: %+v, want %+v", tt.text, u, tt)
		}
	}
}

func TestUserFileIsPipe(t *testing.T) {
	c := fakeContainer(t)
	file := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	passwd := filepath.Join(c.root.Path(), "etc/passwd")
	if err := os.Remove(passwd); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(passwd, 0o600); err != nil {
		t.Fatal(err)
	}
	// Nothing is waited for.
	if _, err := c.user("app"); err == nil {
		t.Error("a pipe has users")
	}
}

func TestCandidates(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want []string
	}{
		{"/bin/x", []string{"PATH=/a:/b"}, []string{"/bin/x"}},
		{"./x", []string{"PATH=/a"}, []string{"./x"}},
		{"x", []string{"PATH=/a:/b"}, []string{"/a/x", "/b/x"}},
	} {
		if got := candidates(tt.name, tt.env); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
