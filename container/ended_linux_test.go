// SPDX-License-Identifier: Apache-2.0

//go:build linux

package container

import (
	"context"
	"testing"
)

// told is a source that tells what it holds.
type fixedSource []Info

func (t fixedSource) Name() string                               { return "fixed" }
func (t fixedSource) Containers(context.Context) ([]Info, error) { return t, nil }

// TestEndedContainers: the runtime still knows a container whose process is
// gone, and the recording saw its cgroup.
func TestEndedContainers(t *testing.T) {
	const gone = 1 << 22 // above every pid
	info := func(id, cgroup string, owner uint32) Info {
		return Info{Container: Container{ID: id, Name: id, Runtime: RuntimeRunc, PID: gone, StartTime: 1}, Owner: owner,
			cgroup: cgroup}
	}
	for _, c := range []struct {
		name  string
		ended bool
		info  Info
		want  string
	}{
		{"by path", true, info("c", "/demo/c", 0), "c"},
		{"by the directory of a hierarchy", true, info("c", "/sys/fs/cgroup/memory/demo/c", 0), "c"},
		{"not asked for", false, info("c", "/demo/c", 0), "/demo/c"},
		{"a user's word", true, info("c", "/demo/c", 1000), "/demo/c"},
		{"another cgroup", true, info("c", "/demo/other", 0), "/demo/c"},
		{"no cgroup", true, info("c", "", 0), "/demo/c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := NewResolver(&ResolverOptions{Root: newFixture(t,
				"41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n").root, Sources: []Source{fixedSource{c.info}}})
			if err != nil {
				t.Fatal(err)
			}
			if c.ended {
				r.RememberEnded()
			}
			r.Table().AddCgroup(77, "/demo/c")
			r.Refresh(t.Context())
			if got := r.Table().Label(77); got != c.want {
				t.Errorf("cgroup is %q, want %q", got, c.want)
			}
		})
	}
}
