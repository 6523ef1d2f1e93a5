// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestRestart: the next server has the namespaces and their options again, and programs
// use them.
func TestRestart(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	start := func() *FS {
		f, err := Mount(dir, &Options{State: state})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	end := func(f *FS) {
		wants(t, "unmount", f.Unmount(), nil)
		f.Wait()
	}
	f := start()
	for _, name := range []string{"one", "two", "gone"} {
		wants(t, "mkdir", os.Mkdir(filepath.Join(dir, name), 0o755), nil)
	}
	set := func(name, text string) error {
		return os.WriteFile(filepath.Join(dir, name, "options"), []byte(text), 0)
	}
	wants(t, "options", set("one", "owner 1000\nuser_events.max-events 7\nring.size 65536\n"), nil)
	if err := set("two", "mode 0750\nnonsense\nowner 5\n"); err == nil {
		t.Error("nonsense is taken")
	}
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "gone")), nil)
	end(f)
	f = start()
	for name, want := range map[string]string{
		"one": "owner 1000\ngroup 0\nmode 0700\nuser_events.max-events 7\n", "two": "owner 0\ngroup 0\nmode 0750\n",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name, "options"))
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is there again: %v", err)
	}
	wants(t, "mkdir", os.Mkdir(filepath.Join(dir, "one"), 0o755), os.ErrExist)
	wants(t, "a line", os.WriteFile(filepath.Join(dir, "one/root/marker"), []byte("here\n"), 0), nil)
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "one")), nil)
	wants(t, "rmdir", os.Remove(filepath.Join(dir, "two")), nil)
	end(f)
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something is kept: %v", err)
	}
}
