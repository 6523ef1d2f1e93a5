// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// makeBundle makes the bundle's directory and the rootfs in it.
func (c *Container) makeBundle(t testing.TB) {
	t.Helper()
	// Not t.TempDir: its parent is closed to a user namespace's root.
	dir, err := os.MkdirTemp("", ownPrefix())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("cleanup: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Bundle, c.Rootfs = dir, filepath.Join(dir, "rootfs")
	root := c.Rootfs
	if c.spec.Overlay {
		root = filepath.Join(dir, "lower")
	}
	c.fillRootfs(t, root)
	if c.spec.Overlay {
		c.mountOverlay(t, root)
	}
}

// fillRootfs installs busybox and the spec's files in root.
func (c *Container) fillRootfs(t testing.TB, root string) {
	t.Helper()
	for _, dir := range []string{"bin", "dev", "proc", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	copyProgram(t, busybox, filepath.Join(root, "bin/busybox"))
	for _, applet := range []string{"sh", "cat", "echo", "ls", "true"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	if c.spec.HostPrograms {
		for _, dir := range programDirs {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The root of a user namespace could not make them.
	for _, list := range []map[string]string{c.spec.Mounts, c.spec.WritableMounts} {
		for at := range list {
			if err := os.MkdirAll(filepath.Join(root, at), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for path, from := range c.spec.Files {
		copyProgram(t, from, filepath.Join(root, path))
	}
}

// programDirs are what HostPrograms mounts.
var programDirs = []string{"/usr", "/lib", "/lib64", "/bin", "/sbin"}

func copyProgram(t testing.TB, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(dst, src)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mountOverlay mounts an overlay of lower at the rootfs.
func (c *Container) mountOverlay(t testing.TB, lower string) {
	t.Helper()
	upper, work := filepath.Join(c.Bundle, "upper"), filepath.Join(c.Bundle, "work")
	for _, dir := range []string{upper, work, c.Rootfs} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := syscall.Mount("overlay", c.Rootfs, "overlay", 0, options); err != nil {
		t.Fatalf("mount overlay: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(c.Rootfs, 0); err != nil {
			t.Errorf("cleanup: unmount %s: %v", c.Rootfs, err)
		}
	})
}

// The part of the OCI runtime specification's config.json that is used.
type (
	ociConfig struct {
		Version     string            `json:"ociVersion"`
		Process     ociProcess        `json:"process"`
		Root        ociRoot           `json:"root"`
		Hostname    string            `json:"hostname,omitempty"`
		Mounts      []ociMount        `json:"mounts"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Linux       ociLinux          `json:"linux"`
	}
	ociProcess struct {
		User struct {
			UID uint32 `json:"uid"`
			GID uint32 `json:"gid"`
		} `json:"user"`
		Args         []string            `json:"args"`
		Env          []string            `json:"env"`
		Cwd          string              `json:"cwd"`
		Capabilities map[string][]string `json:"capabilities,omitempty"`
	}
	ociRoot struct {
		Path string `json:"path"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		CgroupsPath string          `json:"cgroupsPath"`
		Namespaces  []ociNamespace  `json:"namespaces"`
		UIDMappings []ociIDMapping  `json:"uidMappings,omitempty"`
		GIDMappings []ociIDMapping  `json:"gidMappings,omitempty"`
		Seccomp     json.RawMessage `json:"seccomp,omitempty"`
	}
	ociNamespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	ociIDMapping struct {
		ContainerID uint32 `json:"containerID"`
		HostID      uint32 `json:"hostID"`
		Size        uint32 `json:"size"`
	}
)

// writeConfig writes the bundle's config.json.
func (c *Container) writeConfig(t testing.TB) {
	t.Helper()
	data, err := json.MarshalIndent(c.config(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.Bundle, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func (c *Container) config() *ociConfig {
	spec := &c.spec
	conf := &ociConfig{
		Version:     "1.0.2",
		Root:        ociRoot{Path: c.Rootfs},
		Annotations: spec.Annotations,
		Mounts: []ociMount{
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=1m"}},
		},
		Linux: ociLinux{CgroupsPath: c.CgroupPath},
	}
	conf.Process.User.UID, conf.Process.User.GID = spec.UID, spec.UID
	conf.Process.Args = spec.Args
	conf.Process.Env = append([]string{"PATH=/bin:/app:/usr/bin:/usr/sbin"}, spec.Env...)
	conf.Process.Cwd = "/"
	if spec.Capabilities != nil {
		conf.Process.Capabilities = map[string][]string{
			"bounding": spec.Capabilities, "effective": spec.Capabilities, "permitted": spec.Capabilities,
		}
	}
	for _, ns := range spec.Namespaces {
		one := ociNamespace{Type: ns}
		if from := spec.Join[ns]; from != nil {
			one.Path = from.namespaceFile(kernelName(ns))
		}
		conf.Linux.Namespaces = append(conf.Linux.Namespaces, one)
	}
	if slices.Contains(spec.Namespaces, "uts") {
		conf.Hostname = spec.Hostname
	}
	if slices.Contains(spec.Namespaces, "user") {
		ids := []ociIDMapping{{HostID: UserNSBase, Size: 65536}}
		conf.Linux.UIDMappings, conf.Linux.GIDMappings = ids, ids
	}
	conf.Mounts = append(conf.Mounts, procMount(spec))
	conf.Linux.Seccomp = spec.Seccomp
	for mode, list := range map[string]map[string]string{"ro": spec.Mounts, "rw": spec.WritableMounts} {
		for to, from := range list {
			conf.Mounts = append(conf.Mounts, ociMount{Destination: to, Type: "bind", Source: from,
				Options: []string{"bind", mode}})
		}
	}
	if spec.HostPrograms {
		conf.Mounts = append(conf.Mounts, ociMount{Destination: "/sys", Type: "sysfs", Source: "sysfs",
			Options: []string{"nosuid", "noexec", "nodev", "ro"}})
		for _, dir := range programDirs {
			conf.Mounts = append(conf.Mounts, ociMount{Destination: dir, Type: "bind", Source: dir,
				Options: []string{"bind", "ro"}})
		}
	}
	return conf
}

// kernelName is what /proc/PID/ns calls a namespace of OCI.
func kernelName(ns string) string {
	switch ns {
	case "network":
		return "net"
	case "mount":
		return "mnt"
	}
	return ns
}

// procMount is a proc of the container's own pid namespace, or the host's.
func procMount(spec *ContainerSpec) ociMount {
	if slices.Contains(spec.Namespaces, "pid") {
		return ociMount{Destination: "/proc", Type: "proc", Source: "proc"}
	}
	return ociMount{Destination: "/proc", Type: "bind", Source: "/proc", Options: []string{"rbind", "rprivate"}}
}
