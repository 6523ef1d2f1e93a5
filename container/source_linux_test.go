// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// listen serves on a unix socket of the test.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, socket
}

// fakeDocker is no dockerd: a server that speaks the one request of the
// Docker Engine API that gantry makes, with an answer as dockerd 20.10 gave it.
func fakeDocker(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	l, socket := listen(t)
	srv := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	return socket
}

const dockerAnswer = `[{"Id":"` + hexA +
	`","Names":["/web"],"Image":"nginx:1.25","ImageID":"sha256:605c77e624ddb75e6110f997c58876baa13f8754486b461117934b24a9dc3a85",
"Command":"/docker-entrypoint.sh nginx -g 'daemon off;'","Created":1643728996,"Ports":[],"Labels":{"com.docker.compose.project":"shop"},
"State":"running","Status":"Up 3 minutes","HostConfig":{"NetworkMode":"default"},"NetworkSettings":{"Networks":{}},"Mounts":[]},
{"Id":"` + hexB + `","Names":["/k8s_app_shop-0_prod_` + uid + `_0"],"Image":"sha256:605c","Created":0,
"Labels":{"io.kubernetes.container.name":"app","io.kubernetes.pod.name":"shop-0","io.kubernetes.pod.namespace":"prod","io.kubernetes.pod.uid":"` + uid + `"}}]`

var ignoreLabels = cmpopts.IgnoreFields(Container{}, "Labels")

func TestDocker(t *testing.T) {
	socket := fakeDocker(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet || req.URL.String() != "/containers/json" {
			http.Error(w, `{"message":"page not found"}`, http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(dockerAnswer))
	})
	list, err := Docker{socket}.Containers(context.Background())
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	want := []Container{
		{ID: hexA, Name: "web", Runtime: "docker", Image: "nginx:1.25", Created: time.Unix(1643728996, 0).UTC()},
		{ID: hexB, Name: "app", Runtime: "docker", Image: "sha256:605c", Pod: "shop-0", PodNamespace: "prod",
			PodUID: uid},
	}
	for i := range want {
		if diff := cmp.Diff(want[i], list[i].Container, ignoreLabels); diff != "" {
			t.Error(diff)
		}
		if int(list[i].Owner) != os.Getuid() || list[i].Hint {
			t.Errorf("%+v", list[i])
		}
	}
	if list[0].Labels["com.docker.compose.project"] != "shop" {
		t.Errorf("%v", list[0].Labels)
	}
}

// TestHostileSocket has servers that answer wrong, too much or never.
func TestHostileSocket(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, handler := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://example.com/", http.StatusFound)
		},
		"no json": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"object":  func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(`{"a":1}`)) },
		"cut off": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(dockerAnswer[:200])) },
		"many": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("[" + strings.Repeat("{},", maxSourceList) + "{}]"))
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(`[{"Id":"`))
			for chunk := []byte(strings.Repeat("a", 1<<20)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"silent": func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-hang:
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := fakeDocker(t, handler)
			r := &Resolver{timeout: 500 * time.Millisecond}
			start := time.Now()
			err := r.ask(context.Background(), Docker{socket}, r.timeout)
			if err == nil || len(r.table.list) != 0 {
				t.Errorf("%v, %v", r.table.list, err)
			}
			if name == "silent" && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if d := time.Since(start); d > 30*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestMissingSockets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "dead")
	l, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	ctx := context.Background()
	for _, make := range []func(string) Source{
		func(s string) Source { return Docker{s} }, func(s string) Source { return Podman{s} },
		func(s string) Source { return CRI{s, ""} },
	} {
		if list, err := make(filepath.Join(dir, "none")).Containers(ctx); list != nil || err != nil {
			t.Errorf("missing: %v, %v", list, err)
		}
		if _, err := make(file).Containers(ctx); !errors.Is(err, errNotSocket) {
			t.Errorf("file: %v", err)
		}
		if _, err := make(dead).Containers(ctx); err == nil {
			t.Error("dead socket: no error")
		}
	}
	for _, s := range []Source{OCIState{dir + "/none"}, ContainerdTasks{dir + "/none"}, Kubelet{dir + "/none"}} {
		if list, err := s.Containers(ctx); list != nil || err != nil {
			t.Errorf("missing: %v, %v", list, err)
		}
	}
}

// fakeCRI is no containerd: the generated server of k8s.io/cri-api with one
// pod, over real gRPC.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
}

func (fakeCRI) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if req.GetFilter().GetState().GetState() != cri.PodSandboxState_SANDBOX_READY {
		return nil, errors.New("not asked for what runs")
	}
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{
		Id: hexB, Metadata: &cri.PodSandboxMetadata{Name: "shop-0", Namespace: "prod", Uid: uid}, CreatedAt: 5e9,
		Labels: map[string]string{"app": "shop", "a": "of the pod"},
	}}}, nil
}

func (fakeCRI) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	if req.GetFilter().GetState().GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return nil, errors.New("not asked for what runs")
	}
	return &cri.ListContainersResponse{Containers: []*cri.Container{
		{Id: hexA, PodSandboxId: hexB, Metadata: &cri.ContainerMetadata{Name: "app"}, CreatedAt: 6e9,
			Labels: map[string]string{"a": "b"},
			Image:  &cri.ImageSpec{Image: "sha256:605c", UserSpecifiedImage: "registry.example/shop:v3"}},
		{Id: "no-pod", Labels: map[string]string{"io.kubernetes.pod.name": "other"}},
	}}, nil
}

func serveCRI(t *testing.T, srv cri.RuntimeServiceServer) string {
	t.Helper()
	l, socket := listen(t)
	g := grpc.NewServer()
	if srv != nil {
		cri.RegisterRuntimeServiceServer(g, srv)
	}
	done := make(chan struct{})
	go func() { defer close(done); g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return socket
}

func TestCRI(t *testing.T) {
	socket := serveCRI(t, fakeCRI{})
	list, err := CRI{socket, RuntimeContainerd}.Containers(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []Container{
		{ID: hexB, Name: "POD", Runtime: "containerd", Pod: "shop-0", PodNamespace: "prod", PodUID: uid,
			Created: time.Unix(5, 0).UTC()},
		{ID: hexA, Name: "app", Runtime: "containerd", Image: "registry.example/shop:v3", Pod: "shop-0",
			PodNamespace: "prod", PodUID: uid,
			Created: time.Unix(6, 0).UTC()},
		{ID: "no-pod", Runtime: "containerd", Pod: "other"},
	}
	var got []Container
	for _, in := range list {
		got = append(got, in.Container)
	}
	if diff := cmp.Diff(want, got, ignoreLabels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"app": "shop", "a": "b"}, got[1].Labels); diff != "" {
		t.Error(diff)
	}
	// The CRI is switched off where containerd serves Docker only.
	if list, err := (CRI{serveCRI(t, nil), ""}).Containers(context.Background()); list != nil || err != nil {
		t.Errorf("without the service: %v, %v", list, err)
	}
}

func TestCRISilent(t *testing.T) {
	_, socket := listen(t) // nobody accepts
	r := &Resolver{timeout: 300 * time.Millisecond}
	if err := r.ask(context.Background(), CRI{socket, ""}, r.timeout); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestCRINames joins the names of CRI with the cgroups of its containers.
func TestCRINames(t *testing.T) {
	r := &Resolver{timeout: time.Minute}
	slice := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ + ".slice"
	r.table.AddCgroup(7, slice+"/cri-containerd-"+hexA+".scope")
	if got := r.table.Label(7); got != hexA[:12] {
		t.Errorf("before: %s", got)
	}
	if err := r.ask(context.Background(), CRI{serveCRI(t, fakeCRI{}), RuntimeContainerd},
		r.timeout); os.Getuid() == 0 && err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		testutil.Lacks(t, "the socket is not root's, and so not believed")
	}
	c := r.table.ByCgroup(7)
	if c.Label() != "shop-0/app" || c.CgroupID != 7 || c.PodUID != uid {
		t.Errorf("%+v", c)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestKubelet(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop-0_prod_app-1_-"+hexB+".log"), "") // an underscore too much
	write(t, filepath.Join(dir, "shop-0_prod_my-app-"+hexA+".log"), "")
	write(t, filepath.Join(dir, "shop-0_prod_app-"+hexA[1:]+".log"), "")
	write(t, filepath.Join(dir, "README"), "")
	list, err := Kubelet{dir}.Containers(context.Background())
	if err != nil || len(list) != 1 || !list[0].Hint {
		t.Fatal(list, err)
	}
	want := Container{ID: hexA, Name: "my-app", Pod: "shop-0", PodNamespace: "prod"}
	if diff := cmp.Diff(want, list[0].Container); diff != "" {
		t.Error(diff)
	}
}

// TestContainerdTasks reads a directory as containerd's shim v2 lays it out.
func TestContainerdTasks(t *testing.T) {
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{"ociVersion": "1.1.0", "annotations": map[string]string{
		"io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.container-type": "container",
		"io.kubernetes.cri.sandbox-name":      "shop-0",
		"io.kubernetes.cri.sandbox-namespace": "prod", "io.kubernetes.cri.sandbox-uid": uid,
		"io.kubernetes.cri.image-name": "shop:v3"}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/k8s.io/"+hexA+"/config.json", string(config))
	write(t, dir+"/k8s.io/"+hexA+"/init.pid", "41")
	write(t, dir+"/k8s.io/"+hexB+"/config.json", `{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`)
	write(t, dir+"/k8s.io/"+hexB+"/init.pid", "42\n")
	write(t, dir+"/default/hand/init.pid", "43")
	write(t, dir+"/moby/"+hexA+"/init.pid", "44")
	write(t, dir+"/default/broken/init.pid", "-1")
	if err := os.MkdirAll(dir+"/default/starting", 0o755); err != nil {
		t.Fatal(err)
	}
	list, err := ContainerdTasks{dir}.Containers(context.Background())
	if err == nil || !strings.Contains(err.Error(), "default/broken") {
		t.Errorf("%v", err)
	}
	got := make(map[int]Container)
	for _, in := range list {
		got[in.PID] = in.Container
	}
	want := map[int]Container{
		41: {ID: hexA, Name: "app", Runtime: "containerd", Image: "shop:v3", Pod: "shop-0", PodNamespace: "prod",
			PodUID: uid, PID: 41},
		42: {ID: hexB, Name: "POD", Runtime: "containerd", PID: 42},
		43: {ID: "hand", Name: "hand", Runtime: "containerd", PID: 43},
		44: {ID: hexA, Runtime: "docker", PID: 44},
	}
	if diff := cmp.Diff(want, got, ignoreLabels); diff != "" {
		t.Error(diff)
	}
}

// TestHostileState has files that a user could put where gantry looks.
func TestHostileState(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/good/state.json",
		`{"init_process_pid":7,"init_process_start":3,"created":"2026-01-02T03:04:05Z","cgroup_paths":{"":"/sys/fs/cgroup/x"}}`)
	write(t, dir+"/json/state.json", "{")
	write(t, dir+"/type/status", `{"pid":"x"}`)
	write(t, dir+"/big/state.json", strings.Repeat(" ", maxSourceFile+1))
	write(t, dir+"/file", "")
	for name, make := range map[string]func(string) error{
		"fifo": func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"link": func(p string) error { return os.Symlink(dir+"/good/state.json", p) },
		"dir":  func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := make(filepath.Join(dir, name, "state.json")); err != nil {
			t.Fatal(err)
		}
	}
	list, err := OCIState{dir}.Containers(context.Background())
	if len(list) != 1 || list[0].ID != "good" || list[0].PID != 7 || list[0].StartTime != 30e6 ||
		list[0].cgroup != "/sys/fs/cgroup/x" {
		t.Errorf("%+v", list)
	}
	for _, name := range []string{"json", "type", "big", "fifo", "link", "dir"} {
		if err == nil || !strings.Contains(err.Error(), "container "+name+":") {
			t.Errorf("%s is not in: %v", name, err)
		}
	}
}
