// SPDX-License-Identifier: Apache-2.0

package binfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/analysis/symbol"
	"github.com/gantry-tools/gantry/buildid"
)

// mapTree is a root with a perf map, a link and a directory in the place of
// others, beside which is a file that must not be read.
func mapTree(t *testing.T) string {
	t.Helper()
	dir := newTree(t)
	tmp := filepath.Join(dir, "tmp")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tmp, "perf-7.map"), []byte("1000 20 f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"perf-8.map": "../../secret", "perf-9.map": "perf-7.map", "perf-10.map": "/secret"} {
		if err := os.Symlink(target, filepath.Join(tmp, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(tmp, "perf-11.map"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mapContent(t *testing.T, f symbol.File, size int64, err error) string {
	t.Helper()
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRootMaps(t *testing.T) {
	r, err := OpenRoot(mapTree(t), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for pid := range int32(13) {
		want := ""
		if pid == 7 {
			want = "1000 20 f\n"
		}
		f, size, err := r.OpenPerfMap(symbol.Ref{PID: pid, MountNS: 5})
		if got := mapContent(t, f, size, err); got != want {
			t.Errorf("process %d: %q, %v", pid, got, err)
		}
	}
	if _, _, err := r.OpenPerfMap(symbol.Ref{PID: 7, MountNS: 6}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of another mount namespace: %v", err)
	}
}

// A process in a pid namespace writes its map under the number that it has there.
func TestProcessMaps(t *testing.T) {
	proc, root := t.TempDir(), mapTree(t)
	process := func(pid int, ns uint64, status string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(filepath.Join(dir, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{"root": root, "ns/mnt": fmt.Sprintf("mnt:[%d]", ns)} {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	process(4711, 5, "Name:\tnode\nNSpid:\t4711\t7\nThreads:\t1\n")
	process(7, 5, "Name:\tnode\n")
	process(4712, 5, "Name:\tnode\nNSpid:\t4712\t8\n")
	process(4713, 5, "NSpid:\nThreads:\t1\n")
	p := &Processes{Proc: proc}
	for _, tt := range []struct {
		pid  int32
		ns   uint64
		want string
	}{
		{4711, 5, "1000 20 f\n"}, {4711, 0, "1000 20 f\n"}, {7, 5, "1000 20 f\n"},
		{4711, 6, ""}, {4712, 5, ""}, {4713, 5, ""}, {99, 5, ""}, {-1, 5, ""},
	} {
		f, size, err := p.OpenPerfMap(symbol.Ref{PID: tt.pid, MountNS: tt.ns})
		if got := mapContent(t, f, size, err); got != tt.want {
			t.Errorf("process %d: %q, %v", tt.pid, got, err)
		}
	}
}

func TestStoreMaps(t *testing.T) {
	store, err := buildid.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	id, err := store.AddJIT(strings.NewReader("1000 20 f\n"), 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{Store: store}
	f, size, err := s.OpenPerfMap(symbol.Ref{BuildID: id})
	if got := mapContent(t, f, size, err); got != "1000 20 f\n" {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := s.OpenPerfMap(symbol.Ref{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestOldPerfMap: a perf map that was not written to since the process has code is that
// of an earlier one with its number.
func TestOldPerfMap(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, mapPath(7))
	if err := os.WriteFile(name, []byte("1000 10 old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := OpenRoot(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	written := info.ModTime().UnixNano()
	for since, ok := range map[int64]bool{0: true, written - 1: true, written + tick: true, written + 2*tick: false} {
		f, _, err := root.OpenPerfMap(symbol.Ref{PID: 7, Unchanged: since})
		if (err == nil) != ok || err != nil && !errors.Is(err, symbol.ErrMismatch) {
			t.Errorf("code since %d, written %d: %v", since, written, err)
		}
		if err == nil {
			f.Close()
		}
	}
}
