// SPDX-License-Identifier: Apache-2.0

package container

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
)

// DefaultSources are the places where runtimes are found now, the more
// telling ones last. root is as in ResolverOptions.
func DefaultSources(root string) []Source {
	f := procfs.New(root)
	var list []Source
	add := func(path string, s Source) {
		if strings.HasPrefix(path, f.Path("run/user")+"/") {
			s = userSource{s}
		}
		list = append(list, s)
	}
	for _, dir := range expand(f, ociDirs(f)...) {
		add(dir, OCIState{dir})
	}
	list = append(list, ContainerdTasks{f.Path("run/containerd/io.containerd.runtime.v2.task")},
		Kubelet{f.Path("var/log/containers")})
	for _, s := range expand(f, "run/docker.sock", "run/user/*/docker.sock") {
		add(s, Docker{s})
	}
	for _, s := range expand(f, "run/podman/podman.sock", "run/user/*/podman/podman.sock") {
		add(s, Podman{s})
	}
	if s, ok := dockerHost(); ok && f.Root() == "/" {
		list = append(list, s)
	}
	return append(list,
		CRI{f.Path("run/containerd/containerd.sock"), RuntimeContainerd},
		CRI{f.Path("run/k3s/containerd/containerd.sock"), RuntimeContainerd},
		CRI{f.Path("run/crio/crio.sock"), RuntimeCRIO},
		CRI{f.Path("run/cri-dockerd.sock"), RuntimeDocker},
	)
}

// dockerHost is the socket that DOCKER_HOST names, as the docker command has it.
func dockerHost() (Source, bool) {
	path, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if !ok || !filepath.IsAbs(path) || path == "/run/docker.sock" || path == "/var/run/docker.sock" {
		return nil, false
	}
	return Docker{path}, true
}

// source is the Source of a socket.
func (s Socket) source() Source {
	switch s.Runtime {
	case RuntimeDocker:
		return Docker{s.Path}
	case RuntimePodman:
		return Podman{s.Path}
	}
	return CRI{s.Path, s.Runtime}
}

// ociDirs are the state directories of runc and crun: their own default and
// those that their callers choose.
func ociDirs(f procfs.FS) []string {
	dirs := []string{
		"run/runc", "run/crun", "run/docker/runtime-runc/moby", "run/docker/runtime-crun/moby",
		"run/containerd/runc/*", "run/user/*/runc", "run/user/*/crun",
	}
	// Elsewhere than in /run/user, an unprivileged user's own.
	xdg := os.Getenv("XDG_RUNTIME_DIR")
	if f.Root() == "/" && filepath.IsAbs(xdg) && !strings.HasPrefix(xdg, "/run/user/") &&
		!strings.ContainsAny(xdg, `*?[\`) {
		dirs = append(dirs, xdg[1:]+"/runc", xdg[1:]+"/crun")
	}
	return dirs
}

// expand lists what the patterns match below the root. A path that is no
// pattern need not exist: it may appear later.
func expand(f procfs.FS, patterns ...string) []string {
	var out []string
	for _, p := range patterns {
		if !strings.Contains(p, "*") {
			out = append(out, f.Path(p))
			continue
		}
		// The patterns are well-formed, which is all that Glob complains of.
		list, _ := filepath.Glob(f.Path(p))
		out = append(out, list...)
	}
	return out
}
