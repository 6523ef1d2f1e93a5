// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// ociRuntime is how to call runc or crun on this machine.
type ociRuntime struct {
	name string
	root string // state directory; "" is the runtime's default
	log  string
	// private is set for crun on a hybrid cgroup layout, which it refuses: it
	// is run in a mount namespace where /sys/fs/cgroup is the cgroup2 tree.
	private bool
}

// newRuntime requires the runtime and returns how to call it.
func newRuntime(t testing.TB, spec *ContainerSpec) *ociRuntime {
	t.Helper()
	Require(t, Root, CgroupV2, Tool(spec.Runtime, "busybox"))
	return &ociRuntime{
		name:    spec.Runtime,
		root:    spec.Root,
		log:     filepath.Join(t.TempDir(), "log"),
		private: spec.Runtime == "crun" && CgroupHybrid.Missing() == "",
	}
}

const privateCgroup2 = `umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"`

func (r *ociRuntime) command(args ...string) *exec.Cmd {
	argv := []string{r.name}
	if r.root != "" {
		argv = append(argv, "--root", r.root)
	}
	argv = append(argv, "--log", r.log)
	if r.name == "crun" {
		argv = append(argv, "--cgroup-manager", "cgroupfs")
	}
	argv = append(argv, args...)
	if r.private {
		argv = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", privateCgroup2, "sh"}, argv...)
	}
	return exec.Command(argv[0], argv[1:]...)
}
