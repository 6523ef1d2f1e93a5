// SPDX-License-Identifier: Apache-2.0

package container

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// podman calls podman with a storage of the test's own.
type podman struct{ dir string }

func (p podman) command(args ...string) *exec.Cmd {
	return exec.Command("podman",
		append([]string{"--root", p.dir + "/st", "--runroot", p.dir + "/run", "--storage-driver", "vfs",
			"--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"}, args...)...)
}

func (p podman) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("podman %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// serve starts the API service and returns its socket.
func (p podman) serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(p.dir, "podman.sock")
	cmd := p.command("system", "service", "--time", "0", "unix://"+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if list, err := (Podman{socket}).Containers(ctx); err == nil && list != nil {
			return socket
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("podman does not serve its socket")
		}
	}
}

// TestPodman asks a real Podman about a real container.
func TestPodman(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("podman", "runc", "busybox"))
	parent := testutil.NewCgroup(t, "podman")
	p := podman{t.TempDir()}
	bin := filepath.Join(p.dir, "rootfs/bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "cat"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	name := "gantry-test-" + testutil.RandomHex(8)
	var conmon int
	t.Cleanup(func() {
		p.run(t, "rm", "-f", "-t", "0", name)
		if conmon > 0 {
			testutil.AwaitEnd(t, conmon)
		}
	})
	id := p.run(t, "run", "-d", "-i", "--name", name, "--label", "team=blue", "--network", "none", "--cgroup-parent",
		parent.Path,
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000", "--rootfs", filepath.Join(p.dir, "rootfs"),
		"/bin/cat")
	if conmon, err = strconv.Atoi(p.run(t, "inspect", "--format", "{{.State.ConmonPid}}", name)); err != nil {
		t.Fatal(err)
	}
	socket := p.serve(t)

	r := refresh(t, &ResolverOptions{Sources: []Source{OCIState{"/run/runc"}, Podman{socket}}})
	c := one(t, r, name)
	if c.ID != id || c.Runtime != RuntimePodman || c.Labels["team"] != "blue" || c.Created.IsZero() ||
		!strings.HasPrefix(c.CgroupPath, parent.Path+"/") || c.CgroupID == 0 || r.Processes()[c] != 1 {
		t.Errorf("%+v, %d processes", c, r.Processes()[c])
	}
	if list, err := r.Table().Select(ByName(id[:12])); err != nil || len(list) != 1 || list[0] != c {
		t.Errorf("by id prefix: %v, %v", list, err)
	}
}
