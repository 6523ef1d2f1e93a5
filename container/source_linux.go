// SPDX-License-Identifier: Apache-2.0

package container

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// Source is one place that knows containers: a runtime's state directory or
// its socket.
type Source interface {
	// Name says in a warning where the trouble is, such as
	// "docker (/run/docker.sock)".
	Name() string
	// Containers lists what runs now. A place that does not exist is no
	// error; with an error the list is what could be had.
	Containers(ctx context.Context) ([]Info, error)
}

// Info is what a source tells about one container.
type Info struct {
	Container
	// Owner is the user who could have made it up: 0 for what only root can
	// write or serve. Info of others counts for their own processes only.
	Owner uint32
	// Hint says that the container may be long gone: the info completes a
	// container that is known and adds none.
	Hint bool

	// cgroup is the container's own cgroup as the runtime noted it: a path,
	// or the directory wherever the runtime had the tree mounted.
	cgroup string
	// seen: cgroup and namespaces are those of the first process when it ran.
	seen bool
}

// Bounds of what a source may tell.
const (
	maxSourceFile   = 4 << 20  // a state or config file
	maxSourceBody   = 16 << 20 // an answer of a socket
	maxSourceList   = 1 << 14  // containers
	maxSourceLabels = 128
	maxSourceText   = 1 << 10
)

var errNotRegular = errors.New("not a regular file")

// readState reads a file that somebody else owns: not through a link, not
// from a FIFO that would block, not without end. It also gives the file's
// owner, whose word the content is: that of the directory proves nothing where
// a user chose the way to it.
func readState(name string) ([]byte, uint32, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: %w", name, errNotRegular)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSourceFile+1))
	if err != nil {
		return nil, 0, err
	}
	if len(b) > maxSourceFile {
		return nil, 0, fmt.Errorf("%s: more than %d bytes", name, maxSourceFile)
	}
	return b, st.Uid, nil
}

// owner is the user a file or directory belongs to, links not followed.
func owner(name string) (uint32, fs.FileMode, error) {
	fi, err := os.Lstat(name)
	if err != nil {
		return 0, 0, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("%s: no owner", name)
	}
	return st.Uid, fi.Mode(), nil
}

// subdirs lists the directories in dir; none if dir does not exist. A dir that
// is a link is an error: its owner chose where it leads.
func subdirs(dir string) ([]string, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	list, err := d.ReadDir(maxSourceList)
	if err != nil && err != io.EOF {
		return nil, err
	}
	var out []string
	for _, e := range list {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// clip cuts what a source tells to a sane size.
func (in *Info) clip() {
	c := &in.Container
	for _, s := range []*string{&c.ID, &c.Name, &c.Runtime, &c.Image, &c.Pod, &c.PodNamespace, &c.PodUID} {
		if len(*s) > maxSourceText {
			*s = strings.Clone((*s)[:maxSourceText])
		}
	}
	for i, k := range slices.Sorted(maps.Keys(c.Labels)) {
		if i >= maxSourceLabels || len(k)+len(c.Labels[k]) > maxSourceText {
			delete(c.Labels, k)
		}
	}
}

// kubeLabels are the keys by which a runtime tells a container's place in
// Kubernetes.
type kubeLabels struct{ name, pod, namespace, uid, image string }

// The keys of the kubelet (labels in CRI and Docker), and of the annotations
// that containerd and CRI-O write into the OCI configuration.
func kubeKeys() []kubeLabels {
	return []kubeLabels{
		{"io.kubernetes.container.name", "io.kubernetes.pod.name", "io.kubernetes.pod.namespace",
			"io.kubernetes.pod.uid", "io.kubernetes.cri-o.ImageName"},
		{"io.kubernetes.cri.container-name", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace",
			"io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.image-name"},
	}
}

// SandboxName is the container name of a pod's sandbox, as cAdvisor has it.
const SandboxName = "POD"

// kube fills what a map of labels or annotations tells about Kubernetes.
func (c *Container) kube(m map[string]string) {
	set := func(dst *string, key string) {
		if v := m[key]; v != "" {
			*dst = v
		}
	}
	for _, k := range kubeKeys() {
		set(&c.Name, k.name)
		set(&c.Pod, k.pod)
		set(&c.PodNamespace, k.namespace)
		set(&c.PodUID, k.uid)
		set(&c.Image, k.image)
	}
	set(&c.Name, "nerdctl/name")
	if m["io.kubernetes.cri.container-type"] == "sandbox" || m["io.kubernetes.cri-o.ContainerType"] == "sandbox" {
		c.Name = SandboxName
	}
}

// chosenName is an id that a person gave, "" for one that a machine made.
func chosenName(id string) string {
	if isHex(id, idLen) {
		return ""
	}
	return id
}
