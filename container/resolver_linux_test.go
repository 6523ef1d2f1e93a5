// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// refresh finds the containers of this machine.
func refresh(t *testing.T, o *ResolverOptions) *Resolver {
	t.Helper()
	r, err := NewResolver(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range r.Refresh(context.Background()) {
		t.Log("warning:", w)
	}
	return r
}

func one(t *testing.T, r *Resolver, selector string) *Container {
	t.Helper()
	list, err := r.Table().Select(ByName(selector))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %v, %v", selector, list, err)
	}
	return list[0]
}

// TestResolverRunc runs two containers at once: one whose cgroup names it,
// one whose cgroup is a path of runc's caller that says nothing.
func TestResolverRunc(t *testing.T) {
	id := testutil.RandomHex(64)
	docker := testutil.StartContainer(t, testutil.ContainerSpec{ID: id, CgroupPath: "/docker/" + id})
	plain := testutil.StartContainer(t, testutil.ContainerSpec{CgroupPath: "/gantry-demo/a"})
	checkTwo(t, docker, plain, "runc")
}

func TestResolverCrun(t *testing.T) {
	id := testutil.RandomHex(64)
	docker := testutil.StartContainer(t, testutil.ContainerSpec{Runtime: "crun", ID: id, CgroupPath: "/docker/" + id})
	plain := testutil.StartContainer(t, testutil.ContainerSpec{Runtime: "crun", CgroupPath: "/gantry-demo/a",
		Annotations: map[string]string{"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "pod-0"}})
	checkTwo(t, docker, plain, "crun")
	r := refresh(t, nil)
	if c := one(t, r, plain.ID); c.Name != "app" || c.Pod != "pod-0" || c.Label() != "pod-0/app" {
		t.Errorf("annotations: %+v", c)
	}
}

func checkTwo(t *testing.T, docker, plain *testutil.Container, runtime string) {
	t.Helper()
	r := refresh(t, nil)
	c := one(t, r, docker.ID)
	if c.Runtime != "docker" || c.CgroupPath != docker.CgroupPath || c.PID != docker.PID || c.StartTime == 0 ||
		c.Created.IsZero() {
		t.Errorf("%+v", c)
	}
	p := one(t, r, plain.ID)
	if p.Runtime != runtime || p.CgroupPath != plain.CgroupPath || p.PID != plain.PID || p == c {
		t.Errorf("%+v", p)
	}
	if c.Namespaces[PIDNS] == p.Namespaces[PIDNS] || c.Namespaces[MntNS] == r.Table().Host[MntNS] ||
		c.Namespaces[MntNS] == 0 {
		t.Errorf("namespaces %v, %v", c.Namespaces, p.Namespaces)
	}
	for _, tc := range []struct {
		got  *Container
		want *testutil.Container
	}{{c, docker}, {p, plain}} {
		if id := inode(t, tc.want.CgroupDir); tc.got.CgroupID != CgroupID(id) ||
			r.Table().ByCgroup(CgroupID(id)) != tc.got {
			t.Errorf("cgroup %d, want %d", tc.got.CgroupID, id)
		}
		if n := r.Processes()[tc.got]; n < 1 {
			t.Errorf("%d processes", n)
		}
		task, err := r.Task(tc.want.PID)
		if err != nil {
			t.Fatal(err)
		}
		def := Default()
		id, ok := r.Table().Identify(&def, &task)
		if !ok || id != (Identity{Definition: "container", Cgroup: tc.got.CgroupID, CgroupPath: tc.got.CgroupPath}) {
			t.Errorf("identity %+v, %v", id, ok)
		}
	}
	if again := refresh(t, nil); len(again.Table().Containers()) < 2 {
		t.Error("not found twice")
	}
	before := len(r.Table().Containers())
	r.Refresh(context.Background())
	if after := len(r.Table().Containers()); after != before {
		t.Errorf("a second refresh made %d containers out of %d", after, before)
	}
}

func inode(t *testing.T, dir string) uint64 {
	t.Helper()
	out, err := exec.Command("stat", "-c", "%i", dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	if _, err := fmt.Sscan(string(out), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestResolverReuse starts a second container with the name of a dead one.
func TestResolverReuse(t *testing.T) {
	root := t.TempDir()
	spec := testutil.ContainerSpec{ID: "gantry-test-reuse-" + testutil.RandomHex(6), Root: root}
	opts := &ResolverOptions{Sources: []Source{OCIState{root}}}
	var first *Container
	r := func() *Resolver {
		var r *Resolver
		t.Run("first", func(t *testing.T) {
			testutil.StartContainer(t, spec)
			r = refresh(t, opts)
			first = one(t, r, spec.ID)
		})
		return r
	}()
	if r == nil {
		testutil.Lacks(t, "no container")
	}
	testutil.StartContainer(t, spec)
	r.Refresh(context.Background())
	list, err := r.Table().Select(ByName(spec.ID))
	if err != nil || len(list) != 2 || list[0] != first {
		t.Fatalf("%v, %v", list, err)
	}
	if a, b := list[0], list[1]; a.CgroupID == b.CgroupID || a.StartTime >= b.StartTime ||
		r.Table().ByCgroup(a.CgroupID) != a || r.Table().ByCgroup(b.CgroupID) != b {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestResolverNamespaces finds a container that no runtime made.
func TestResolverNamespaces(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("unshare"))
	cmd := exec.Command("unshare", "-pmf", "sh", "-c", "echo ready; exec cat")
	testutil.StartReady(t, cmd)
	r := refresh(t, &ResolverOptions{Sources: []Source{}})
	kids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(kids), &pid); err != nil {
		t.Fatal(err)
	}
	task, err := r.Task(pid)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Table().ByNamespaces(task.Namespaces)
	if c == nil || c.PID != pid || c.CgroupID != 0 || c.CgroupPath != "" || r.Processes()[c] != 1 ||
		!strings.HasPrefix(c.Label(), "pid:4") {
		t.Errorf("%+v", c)
	}
	if host := r.Table().ByCgroup(task.Cgroup); host == c {
		t.Error("the host's cgroup became the container's")
	}
	for _, tt := range []struct {
		name  string
		pids  []int
		ok    bool
		finds bool
	}{
		{"the container's process", []int{os.Getpid(), pid}, true, true},
		{"others", []int{os.Getpid()}, true, false},
		{"a list that is not complete", nil, false, true},
	} {
		r, err := NewResolver(&ResolverOptions{Sources: []Source{}})
		if err != nil {
			t.Fatal(err)
		}
		r.Among(func(context.Context) ([]int, bool) { return tt.pids, tt.ok })
		for _, w := range r.Refresh(t.Context()) {
			t.Errorf("%s: %v", tt.name, w)
		}
		if found := r.Table().ByNamespaces(task.Namespaces) != nil; found != tt.finds {
			t.Errorf("among %s: found is %v", tt.name, found)
		}
	}
}

// insideEnv makes TestResolverInside the process inside.
const insideEnv = "GANTRY_TEST_CGROUP_NS"

// TestResolverInside looks at the host's tree from within a private cgroup
// namespace, where the own cgroup is "0::/" and others are "0::/../other".
func TestResolverInside(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		r, err := NewResolver(&ResolverOptions{Sources: []Source{}})
		if err != nil {
			t.Fatal(err)
		}
		var answer []Task
		for _, pid := range []int{os.Getpid(), os.Getppid()} {
			task, err := r.Task(pid)
			if err != nil {
				t.Fatal(err)
			}
			answer = append(answer, task)
		}
		if err := json.NewEncoder(os.Stderr).Encode(answer); err != nil {
			t.Fatal(err)
		}
		return
	}
	testutil.Require(t, testutil.Root, testutil.Tool("unshare"))
	outer := refresh(t, &ResolverOptions{Sources: []Source{}})
	cg := testutil.NewCgroup(t, "inside/deep")
	// The shell enters the cgroup; its parent stays outside.
	cmd := exec.Command("sh", "-c",
		`echo $$ > "$1"/cgroup.procs && exec unshare -C "$2" -test.run '^TestResolverInside$'`, "sh", cg.Dir,
		os.Args[0])
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	var got []Task
	if err := json.Unmarshal(stderr.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	self, err := outer.Task(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got[0].CgroupPath != cg.Path || got[0].Cgroup != CgroupID(cg.ID(t)) {
		t.Errorf("own cgroup %+v, want %s", got[0], cg.Path)
	}
	if got[1].CgroupPath != self.CgroupPath || got[1].Cgroup != self.Cgroup {
		t.Errorf("cgroup outside %+v, want %+v", got[1], self)
	}
}

func TestOwnCgroup(t *testing.T) {
	for _, tt := range []struct{ path, noted, want string }{
		{"/gantry-demo/a", "/gantry-demo/a", "/gantry-demo/a"},
		{"/gantry-demo/a/init.scope", "/sys/fs/cgroup/unified/gantry-demo/a", "/gantry-demo/a"},
		{"/a", "/sys/fs/cgroup/a", "/a"},
		{"/", "", ""}, {"/", "/sys/fs/cgroup", ""}, {"/system.slice/x.service", "", ""},
		{"/docker/" + hexA + "/init.scope", "", "/docker/" + hexA},
		{"/b", "/sys/fs/cgroup/a", ""},
		{"/ab", "/sys/fs/cgroup/a", ""},
	} {
		if got := ownCgroup(tt.path, tt.noted); got != tt.want {
			t.Errorf("%s noted %s: %q, want %q", tt.path, tt.noted, got, tt.want)
		}
	}
}

// TestResolverUntrusted has a user claim to be a container of root.
func TestResolverUntrusted(t *testing.T) {
	r := refresh(t, &ResolverOptions{Sources: []Source{}})
	r.table.AddCgroup(1<<60, "/docker/"+hexA)
	r.table.AddCgroup(1<<60+1, "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-"+hexB+".scope")
	for _, tt := range []struct {
		info Info
		want bool
	}{
		{Info{Container: Container{ID: hexA, Name: "fake"}, Owner: 1000}, false},
		{Info{Container: Container{ID: hexA, PID: 1}, Owner: 1000}, false},
		{Info{Container: Container{ID: hexA}}, true},
		{Info{Container: Container{ID: hexB}, Owner: 1000}, true},
		{Info{Container: Container{ID: hexB}, Owner: 1001}, false},
		{Info{Container: Container{ID: "new"}}, true},
		{Info{Container: Container{ID: "new"}, Owner: 1000}, false},
		{Info{Container: Container{ID: "old-log"}, Hint: true}, false},
		{Info{Container: Container{ID: hexA}, Hint: true}, true},
		{Info{Container: Container{}}, false},
		{Info{Container: Container{ID: "x", PID: os.Getpid()}, Owner: uint32(os.Getuid())}, true},
		{Info{Container: Container{ID: "x", PID: os.Getpid(), StartTime: 1}}, false},
		{Info{Container: Container{ID: "x", PID: 1 << 30}}, false},
	} {
		if got := r.admit(&tt.info); got != tt.want {
			t.Errorf("%+v: %v", tt.info, got)
		}
	}
}

func TestClip(t *testing.T) {
	in := Info{Container: Container{Name: strings.Repeat("n", 1<<20), Labels: map[string]string{}}}
	for i := range 1000 {
		in.Labels[fmt.Sprintf("k%03d", i)] = "v"
	}
	in.Labels["a"] = strings.Repeat("v", 1<<20)
	in.clip()
	if len(in.Name) != maxSourceText || len(in.Labels) != maxSourceLabels-1 || in.Labels["k000"] != "v" {
		t.Errorf("%d, %d", len(in.Name), len(in.Labels))
	}
}

func TestDefaultSources(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"run/user/1000/crun", "run/containerd/runc/k8s.io",
		"run/user/1000/podman/podman.sock"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, s := range DefaultSources(root) {
		names = append(names, s.Name())
	}
	for _, want := range []string{"OCI state (" + root + "/run/runc)",
		"OCI state (" + root + "/run/containerd/runc/k8s.io)",
		"OCI state (" + root + "/run/user/1000/crun)", "docker (" + root + "/run/docker.sock)",
		"podman (" + root + "/run/user/1000/podman/podman.sock)"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %q", want, names)
		}
	}
}
