// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// newTree makes a directory to be "/" with files and links, beside which is a
// file that must not be read.
func newTree(t *testing.T) string {
	t.Helper()
	outer := t.TempDir()
	dir := filepath.Join(outer, "root")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outer, "secret"), "secret")
	write(filepath.Join(dir, "usr/bin/app"), "app")
	write(filepath.Join(dir, "secret"), "harmless")
	for name, target := range map[string]string{
		"bin":        "usr/bin",
		"abs":        "/usr/bin/app",
		"usr/up":     "../../../../usr/bin",
		"out":        "../secret",
		"far":        outer + "/secret",
		"chain":      "/abs",
		"loop":       "loop",
		"a":          "/b",
		"b":          "/a",
		"dev":        "/null",
		"usr/absdir": "/usr",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(o symbol.Opener, ref symbol.Ref) (string, error) {
	f, size, err := o.Open(ref)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	return string(b), err
}

func TestRoot(t *testing.T) {
	dir := newTree(t)
	r, err := OpenRoot(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, tt := range []struct {
		path, want string
		err        error
	}{
		{path: "/usr/bin/app", want: "app"},
		{path: "//usr/./bin/../bin/app", want: "app"},
		{path: "/bin/app", want: "app"},
		{path: "/abs", want: "app"},
		{path: "/chain", want: "app"},
		{path: "/usr/up/app", want: "app"},
		{path: "/usr/absdir/up/app", want: "app"},
		{path: "/../../secret", want: "harmless"},
		{path: "/out", want: "harmless"}, // "/.." is "/"
		{path: "/far", err: fs.ErrNotExist},
		{path: "/loop", err: syscall.ELOOP},
		{path: "/a", err: syscall.ELOOP},
		{path: "/dev", err: fs.ErrNotExist},
		{path: "/fifo", err: ErrNotRegular},
		{path: "/usr", err: ErrNotRegular},
		{path: "/", err: ErrNotRegular},
		{path: "/none", err: fs.ErrNotExist},
		{path: "/usr/bin/app (deleted)", err: fs.ErrNotExist},
		{path: "usr/bin/app", err: fs.ErrNotExist},
		{path: "[vdso]", err: fs.ErrNotExist},
		{path: "", err: fs.ErrNotExist},
	} {
		got, err := read(r, symbol.Ref{Path: tt.path})
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: %q, %v, want %q, %v", tt.path, got, err, tt.want, tt.err)
		}
	}
}

func TestRootIdentity(t *testing.T) {
	dir := newTree(t)
	r, err := OpenRoot(dir, 17)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	info, err := os.Stat(filepath.Join(dir, "usr/bin/app"))
	if err != nil {
		t.Fatal(err)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	id, err := buildid.Parse("0123")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		ref  symbol.Ref
		err  error
	}{
		{"inode", symbol.Ref{MountNS: 17, Inode: inode}, nil},
		{"other inode", symbol.Ref{MountNS: 17, Inode: inode + 1}, symbol.ErrMismatch},
		{"other namespace", symbol.Ref{MountNS: 18, Inode: inode}, fs.ErrNotExist},
		{"build-id", symbol.Ref{MountNS: 18, Inode: inode + 1, BuildID: id}, nil}, // the Resolver compares it
	} {
		tt.ref.Path = "/usr/bin/app"
		if got, err := read(r, tt.ref); !errors.Is(err, tt.err) || (err == nil) != (got == "app") {
			t.Errorf("%s: %q, %v, want %v", tt.name, got, err, tt.err)
		}
	}
}

func TestProcesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		testutil.NotHere(t, "needs procfs")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ref := symbol.Ref{Path: exe, PID: int32(os.Getpid()), Inode: info.Sys().(*syscall.Stat_t).Ino}
	o, err := symbol.NewResolver(&Processes{}).Object(ref)
	if err != nil || len(o.Segments) == 0 {
		t.Fatalf("this test through its own root: %v", err)
	}
	var ns syscall.Stat_t
	if err := syscall.Stat("/proc/self/ns/mnt", &ns); err != nil {
		t.Fatal(err)
	}
	for mountNS, want := range map[uint64]error{ns.Ino: nil, ns.Ino + 1: fs.ErrNotExist} {
		ref.MountNS = mountNS
		f, _, err := (&Processes{}).Open(ref)
		if !errors.Is(err, want) {
			t.Errorf("in mount namespace %d: %v, want %v", mountNS, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
	ref.Inode = 0
	if _, _, err := (&Processes{}).Open(ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process's file that cannot be checked: %v", err)
	}
}

func TestStore(t *testing.T) {
	s, err := buildid.CreateStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	content := elfWithID("\x01\x02\x03\x04")
	id, err := s.Add(strings.NewReader(content), buildid.Source{Path: "/app"})
	if err != nil {
		t.Fatal(err)
	}
	opener := &Store{s}
	if got, err := read(opener, symbol.Ref{BuildID: id, Path: "/elsewhere"}); err != nil || got != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := read(opener, symbol.Ref{Path: "/app"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a build-id: %v", err)
	}
	o, err := symbol.NewResolver(opener).Object(symbol.Ref{BuildID: id})
	if err != nil || o.BuildID != id {
		t.Errorf("resolved %v, %v", o, err)
	}
}

// elfWithID is the smallest file with a build-id of four bytes: a header, one
// PT_NOTE, one note.
func elfWithID(id string) string {
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	b.WriteString("\x03\x00\x3e\x00\x01\x00\x00\x00") // ET_DYN, x86-64
	b.Write(make([]byte, 8))
	b.WriteString("\x40\x00\x00\x00\x00\x00\x00\x00") // program headers at 64
	b.Write(make([]byte, 8))
	b.WriteString("\x00\x00\x00\x00\x40\x00\x38\x00\x01\x00\x40\x00\x00\x00\x00\x00")
	b.WriteString("\x04\x00\x00\x00\x04\x00\x00\x00\x78\x00\x00\x00\x00\x00\x00\x00") // PT_NOTE at 120
	b.Write(make([]byte, 16))
	b.WriteString("\x14\x00\x00\x00\x00\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x00") // 20 bytes
	b.WriteString("\x04\x00\x00\x00\x00\x00\x00\x00")
	b.WriteString("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00" + id)
	return b.String()
}
