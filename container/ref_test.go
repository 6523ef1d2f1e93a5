// SPDX-License-Identifier: Apache-2.0

package container

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	hexA = "8f3ca1f4c9fd0ab1f60f0c6a3f1fd0a7f0a5d2b2d3b6e2d8d17a27de9a4d7c31"
	hexB = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	uid  = "2f399a1b-7d3c-4e41-9b54-1a3a4b1f0e5d"
	uid_ = "2f399a1b_7d3c_4e41_9b54_1a3a4b1f0e5d"
	mir  = "d41d8cd98f00b204e9800998ecf8427e"
)

func TestFromCgroupPath(t *testing.T) {
	pod := func(runtime, qos, uid string) Ref {
		return Ref{Runtime: runtime, ID: hexA, QoS: qos, PodUID: uid}
	}
	for _, tt := range []struct {
		path string // a part in <> is the Ref's Path when not all is
		want Ref
	}{
		// Docker: cgroupfs and systemd drivers, custom parent, rootless, inside a service.
		{"/docker/" + hexA, Ref{Runtime: "docker", ID: hexA}},
		{"</docker/" + hexA + ">/init.scope", Ref{Runtime: "docker", ID: hexA}},
		{"/system.slice/docker-" + hexA + ".scope", Ref{Runtime: "docker", ID: hexA}},
		{"</system.slice/docker-" + hexA + ".scope>/system.slice/nginx.service", Ref{Runtime: "docker", ID: hexA}},
		{"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + hexA + ".scope",
			Ref{Runtime: "docker", ID: hexA}},
		{"/actions_job/" + hexA, Ref{ID: hexA}},
		{"/system.slice:docker:" + hexA, Ref{Runtime: "docker", ID: hexA}},
		{"/docker/" + hexB + "/docker/" + hexA, Ref{Runtime: "docker", ID: hexA}},
		{"/../../docker/" + hexA, Ref{Runtime: "docker", ID: hexA}},
		// containerd without Kubernetes.
		{"/system.slice/nerdctl-" + hexA + ".scope", Ref{Runtime: "containerd", ID: hexA}},
		// Kubernetes, cgroupfs driver.
		{"/kubepods/besteffort/pod" + uid + "/" + hexA, pod("", "besteffort", uid)},
		{"/kubepods/burstable/pod" + uid + "/" + hexA, pod("", "burstable", uid)},
		{"/kubepods/pod" + uid + "/" + hexA, pod("", "guaranteed", uid)},
		{"/kubepods/burstable/pod" + mir + "/" + hexA, pod("", "burstable", mir)},
		{"/kubepods/burstable/pod" + uid + "/crio-" + hexA, pod("crio", "burstable", uid)},
		// Kubernetes, systemd driver.
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ + ".slice/cri-containerd-" + hexA +
			".scope",
			pod("containerd", "burstable", uid)},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + uid_ + ".slice/docker-" + hexA +
			".scope",
			pod("docker", "besteffort", uid)},
		{"/kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + hexA + ".scope", pod("crio", "guaranteed", uid)},
		{"</kubepods.slice/kubepods-pod" + uid_ + ".slice/crio-" + hexA + ".scope>/container",
			pod("crio", "guaranteed", uid)},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + mir + ".slice/cri-containerd-" + hexA +
			".scope",
			pod("containerd", "burstable", mir)},
		{"/system.slice/containerd.service/kubepods-burstable-pod" + uid_ + ".slice:cri-containerd:" + hexA,
			pod("containerd", "burstable", uid)},
		// kind: a node in a Docker container.
		{"/docker/" + hexB + "/kubelet/kubepods/besteffort/pod" + uid + "/" + hexA, pod("", "besteffort", uid)},
		{"/system.slice/docker-" + hexB +
			".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
			"kubelet-kubepods-burstable-pod" + uid_ + ".slice/cri-containerd-" + hexA + ".scope",
			pod("containerd", "burstable", uid)},
		// Podman: root, rootless, cgroupfs, in a pod, in its own service.
		{"/machine.slice/libpod-" + hexA + ".scope", Ref{Runtime: "podman", ID: hexA}},
		{"</machine.slice/libpod-" + hexA + ".scope>/container", Ref{Runtime: "podman", ID: hexA}},
		{"</user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + hexA + ".scope>/container",
			Ref{Runtime: "podman", ID: hexA}},
		{"/libpod_parent/libpod-" + hexA, Ref{Runtime: "podman", ID: hexA}},
		{"/libpod_parent/" + hexA, Ref{Runtime: "podman", ID: hexA}},
		{"/machine.slice/machine-libpod_pod_" + hexB + ".slice/libpod-" + hexA + ".scope",
			Ref{Runtime: "podman", ID: hexA}},
		{"/system.slice/web.service/libpod-payload-" + hexA, Ref{Runtime: "podman", ID: hexA}},
		// ECS: EC2 and Fargate.
		{"/ecs/" + "5e6d0b6e-6d2a-4f6b-8f9d-3b6b3f4a2a11" + "/" + hexA, Ref{Runtime: "ecs", ID: hexA}},
		{"/ecs/cluster/" + mir + "/" + mir + "-2574839563", Ref{Runtime: "ecs", ID: mir + "-2574839563"}},
		// LXC and Incus, Proxmox, and Docker within.
		{"/lxc/web1", Ref{Runtime: "lxc", ID: "web1"}},
		{"</lxc/101>/ns/system.slice/ssh.service", Ref{Runtime: "lxc", ID: "101"}},
		{"</lxc.payload.web1>/init.scope", Ref{Runtime: "lxc", ID: "web1"}},
		{"/lxc.payload/web1", Ref{Runtime: "lxc", ID: "web1"}},
		{"/lxc.payload.web1/docker/" + hexA, Ref{Runtime: "docker", ID: hexA}},
		// Machines of systemd.
		{`</machine.slice/machine-deb\x2d12.scope>/payload`, Ref{Runtime: "nspawn", ID: `deb\x2d12`}},
		{"</machine.slice/systemd-nspawn@deb.service>/payload", Ref{Runtime: "nspawn", ID: "deb"}},
		{`</machine.slice/machine-qemu\x2d1\x2dvm.scope>/libvirt/emulator`,
			Ref{Runtime: "libvirt", ID: `qemu\x2d1\x2dvm`}},
		// Heirs of Docker that nobody told us of.
		{"/system.slice/isulad-" + hexA + ".scope", Ref{Runtime: "isulad", ID: hexA}},
		// Units.
		{"/system.slice/nginx.service", Ref{Kind: KindUnit, Runtime: "systemd", ID: "nginx.service"}},
		{"</system.slice/containerd.service>/x", Ref{Kind: KindUnit, Runtime: "systemd", ID: "containerd.service"}},
		{"/user.slice/user-1000.slice/session-3.scope", Ref{Kind: KindUnit, Runtime: "systemd", ID: "session-3.scope"}},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.scope",
			Ref{Kind: KindUnit, Runtime: "systemd", ID: "app-firefox.scope"}},
		// OpenTelemetry's false positive: a host terminal.
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.gnome.Terminal.slice/vte-spawn-7be4c1f8-49e9-4cd2-9b7f-2f9bda7e4d1c.scope",
			Ref{Kind: KindUnit, Runtime: "systemd", ID: "vte-spawn-7be4c1f8-49e9-4cd2-9b7f-2f9bda7e4d1c.scope"}},
		// Monitors are not in the container.
		{"/machine.slice/libpod-conmon-" + hexA + ".scope",
			Ref{Kind: KindUnit, Runtime: "systemd", ID: "libpod-conmon-" + hexA + ".scope"}},
		{"/system.slice/crio-conmon-" + hexA + ".scope",
			Ref{Kind: KindUnit, Runtime: "systemd", ID: "crio-conmon-" + hexA + ".scope"}},
		{"/libpod_parent/conmon-" + hexA, Ref{}},
		{"/lxc.monitor.web1", Ref{}},
		// Neither.
		{"/", Ref{}}, {"", Ref{}}, {"/..", Ref{}}, {"/gantry-demo/a", Ref{}},
		{"/init.scope/", Ref{Kind: KindUnit, Runtime: "systemd", ID: "init.scope"}},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + uid_ + ".slice", Ref{}},
		{"/docker/" + hexA[1:], Ref{}}, {"/docker/" + strings.ToUpper(hexA), Ref{}}, {"/docker/" + hexA + "0", Ref{}},
		{"/a/.scope", Ref{}}, {"/a/.service", Ref{}}, {"/lxc.payload.", Ref{}},
		{"/" + mir + "-", Ref{}}, {"/" + mir + "-12a", Ref{}},
	} {
		path, want := tt.path, tt.want
		if pre, rest, ok := strings.Cut(strings.TrimPrefix(path, "<"), ">"); ok {
			path, want.Path = pre+rest, pre
		} else if want.ID != "" {
			want.Path = strings.TrimSuffix(path, "/")
		}
		got, ok := FromCgroupPath(path)
		if diff := cmp.Diff(want, got); diff != "" || ok != (want.ID != "") {
			t.Errorf("%s: ok %v\n%s", path, ok, diff)
		}
	}
}

func FuzzFromCgroupPath(f *testing.F) {
	for _, p := range []string{"/", "/docker/" + hexA, "/a-" + hexA + ".scope/b", "/lxc.payload.x/lxc/y",
		"/system.slice:docker:" + hexB,
		"/kubepods/burstable/pod" + uid + "/" + hexA,
		"/kubepods-besteffort-pod" + uid_ + ".slice/crio-" + hexA + ".scope",
		"/machine-a.scope", "/systemd-nspawn@x.service", "/a/b.service/", "/" + mir + "-1"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		ref, ok := FromCgroupPath(path)
		again, ok2 := FromCgroupPath(path)
		if ref != again || ok != ok2 {
			t.Fatal("two answers")
		}
		if !ok {
			if ref != (Ref{}) {
				t.Fatalf("not ok, but %+v", ref)
			}
			return
		}
		if ref.ID == "" || !strings.Contains(ref.Path, ref.ID) || !strings.HasPrefix(path, ref.Path) {
			t.Fatalf("%+v", ref)
		}
		own, ok := FromCgroupPath(ref.Path)
		if !ok || own != ref {
			t.Fatalf("the container's own path gives %+v, not %+v", own, ref)
		}
		if n := len(ref.PodUID); n != 0 && n != 32 && n != 36 {
			t.Fatalf("pod uid %q", ref.PodUID)
		}
	})
}
