// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

func fixtureResolver(t *testing.T) *Resolver {
	t.Helper()
	f := newFixture(t, "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	r, err := NewResolver(&ResolverOptions{Root: f.root, Sources: []Source{}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// writeState writes a container's state as runc does: beside it, then renamed.
func writeState(t *testing.T, root, states, id, cgroup string) {
	t.Helper()
	dir := filepath.Join(root, states, id)
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"init_process_pid":4194303,"init_process_start":123,"cgroup_paths":{"":%q}}`, cgroup)
	if err := os.WriteFile(filepath.Join(dir, "state-1"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "state-1"), filepath.Join(dir, "state.json")); err != nil {
		t.Fatal(err)
	}
}

// nextState is what the watch tells next, of one container.
func nextState(t *testing.T, w *StateWatch) Info {
	t.Helper()
	stop := time.AfterFunc(time.Minute, func() { w.Close() })
	defer stop.Stop()
	list, err := w.Next()
	if err != nil || len(list) != 1 {
		t.Fatalf("%d containers, %v", len(list), err)
	}
	return list[0]
}

// TestWatchStates: containers are told of when their state is written, in
// directories that were there before and in such that come later, below others
// that come later. What a user may write is not looked at.
func TestWatchStates(t *testing.T) {
	testutil.Require(t, testutil.Root)
	r := fixtureResolver(t)
	root := r.fs.Root()
	if err := os.MkdirAll(filepath.Join(root, "run/runc"), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := r.WatchStates()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, tc := range []struct{ states, id string }{
		{"run/runc", "first"},
		{"run/docker/runtime-runc/moby", hexA},
		{"run/containerd/runc/k8s.io", hexB},
		{"run/containerd/runc/default", "second"},
		{"run/runc", "third"},
	} {
		writeState(t, root, tc.states, tc.id, "/x/"+tc.id)
		in := nextState(t, w)
		if in.ID != tc.id || in.PID != 4194303 || in.cgroup != "/x/"+tc.id || in.seen {
			t.Errorf("%s: %+v", tc.id, in)
		}
	}
	// A directory that everybody may write to.
	if err := os.MkdirAll(filepath.Join(root, "run/crun"), 0o755); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(root, "run/crun", "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	writeState(t, root, "run/crun", "open", "/x/open")
	writeState(t, root, "run/runc", "last", "/x/last")
	if in := nextState(t, w); in.ID != "last" && in.ID != "open" {
		t.Errorf("%+v", in)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Next(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestTold: what was told of a container that has ended counts once its cgroup is
// known, and for that cgroup only.
func TestTold(t *testing.T) {
	r := fixtureResolver(t)
	in := Info{Container: Container{ID: "a", Name: "a", Runtime: RuntimeRunc, PID: 4194303, StartTime: 1e9},
		cgroup: "/x/a"}
	again := r.Told([]Info{in}, false)
	if len(again) != 1 || len(r.table.Containers()) != 0 {
		t.Fatalf("%d again, %d in the table", len(again), len(r.table.Containers()))
	}
	r.table.AddCgroup(7, "/x/a")
	if again = r.Told(again, false); len(again) != 0 || r.table.ByCgroup(7) == nil || r.table.ByCgroup(7).Name != "a" {
		t.Fatalf("%d again, %+v", len(again), r.table.ByCgroup(7))
	}
	// The next one at this path: which of them was meant, nobody can tell.
	r.table.AddCgroup(8, "/x/a")
	in.ID, in.Name, in.StartTime = "b", "b", 2e9
	if again = r.Told([]Info{in}, true); len(again) != 0 || r.table.ByCgroup(8) != nil &&
		r.table.ByCgroup(8).Name == "b" {
		t.Errorf("%d again, %+v", len(again), r.table.ByCgroup(8))
	}
	// One that was seen in time is told apart.
	in.seen, in.CgroupPath, in.CgroupID, in.Namespaces = true, "/x/a", 8, Namespaces{PIDNS: 3, MntNS: 4}
	if r.Told([]Info{in}, false); r.table.ByCgroup(8) == nil || r.table.ByCgroup(8).Name != "b" ||
		r.table.ByCgroup(7).Name != "a" {
		t.Errorf("%+v, %+v", r.table.ByCgroup(7), r.table.ByCgroup(8))
	}
}
