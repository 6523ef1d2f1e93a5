// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestStates has one container of runc on each kind of machine, in each state.
func TestStates(t *testing.T) {
	const (
		unified = "41 31 0:38 / /cg2 rw - cgroup2 cgroup2 rw\n"
		freezer = "42 31 0:39 / /freezer rw - cgroup cgroup rw,freezer\n"
	)
	for _, tt := range []struct {
		name   string
		mounts string
		procs  string
		files  map[string]string
		fifo   bool
		want   State
	}{
		{"v2", unified, "7\n", map[string]string{"cg2/a/cgroup.events": "populated 1\nfrozen 0\n"}, false,
			StateRunning},
		{"v2, paused", unified, "7\n", map[string]string{"cg2/a/cgroup.events": "populated 1\nfrozen 1\n"}, false,
			StatePaused},
		{"v2, created", unified, "7\n", map[string]string{"cg2/a/cgroup.events": "populated 1\nfrozen 0\n"}, true,
			StateCreated},
		{"v2, exited", unified, "", nil, false, StateExited},
		{"an old kernel that tells nothing", unified, "7\n", nil, false, StateRunning},
		{"hybrid, paused", unified + freezer, "7\n",
			map[string]string{"cg2/a/cgroup.events": "frozen 0\n", "freezer/f/freezer.state": "FROZEN\n"}, false,
			StatePaused},
		{"hybrid, not yet", unified + freezer, "7\n", map[string]string{"freezer/f/freezer.state": "FREEZING\n"}, false,
			StateRunning},
		{"hybrid, running", unified + freezer, "7\n", map[string]string{"freezer/f/freezer.state": "THAWED\n"}, false,
			StateRunning},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, tt.mounts)
			f.proc(7, 1, "3:freezer:/f\n0::/a\n", 1000)
			f.cgroup("/cg2", "1\n")
			f.cgroup("/cg2/a", tt.procs)
			for name, text := range tt.files {
				write(t, filepath.Join(f.root, name), text)
			}
			state := filepath.Join(f.root, "run/runc")
			write(t, state+"/web/state.json", `{"init_process_pid":7,"cgroup_paths":{"":"/cg2/a"}}`)
			if tt.fifo {
				write(t, state+"/web/exec.fifo", "")
			}
			r, err := NewResolver(&ResolverOptions{Root: f.root, Sources: []Source{OCIState{state}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range r.Refresh(context.Background()) {
				t.Error(w)
			}
			found, err := r.Table().Select(ByName("web"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if got := r.Status()[found[0]]; got.State != tt.want {
				t.Errorf("%+v, want %v", got, tt.want)
			}
		})
	}
}

// TestStatesOfRuntimes takes a container of each runtime through its states.
func TestStatesOfRuntimes(t *testing.T) {
	for _, tool := range []string{"runc", "crun"} {
		t.Run(tool, func(t *testing.T) {
			testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool(tool, "busybox"))
			c := testutil.CreateContainer(t, testutil.ContainerSpec{Runtime: tool})
			expect := func(want State) {
				t.Helper()
				r, err := NewResolver(nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Refresh(context.Background())
				found, err := r.Table().Select(ByName(c.ID))
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				if got := r.Status()[found[0]]; got.State != want {
					t.Errorf("%+v, want %v", got, want)
				}
			}
			freeze := func(verb, v2 string) {
				t.Helper()
				if tool == "crun" { // which needs the v1 freezer where that is mounted, and makes no cgroup in it
					write(t, c.CgroupDir+"/cgroup.freeze", v2)
					waitFrozen(t, c.CgroupDir, "frozen "+v2)
				} else if out, err := exec.Command(tool, verb, c.ID).CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", verb, err, out)
				}
			}
			expect(StateCreated)
			c.Start(t)
			expect(StateRunning)
			freeze("pause", "1")
			expect(StatePaused)
			freeze("resume", "0")
			expect(StateRunning)
		})
	}
}

// waitFrozen waits until the kernel has done what was written.
func waitFrozen(t *testing.T, dir, want string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; runtime.Gosched() {
		text, err := os.ReadFile(dir + "/cgroup.events")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), want) {
			return
		}
	}
	t.Fatalf("not %s", want)
}
