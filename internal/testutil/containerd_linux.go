// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// ContainerdSpec says what a containerd test container is.
type ContainerdSpec struct {
	// Files and HostPrograms are as in ContainerSpec.
	Files        map[string]string
	HostPrograms bool
	// Args is the command.
	Args []string
	// Profile is the file of a seccomp profile, "" for none.
	Profile string
}

// Containerd is a running container of a containerd of the test's own, with runc.
type Containerd struct {
	// ID is its id, unique on this machine.
	ID string
	// PID is the init process in the host's pid namespace.
	PID int
	// Rootfs is the container's root.
	Rootfs string

	address string
	execs   int
}

// StartContainerd runs a container with containerd and runc.
func StartContainerd(t testing.TB, spec *ContainerdSpec) *Containerd {
	t.Helper()
	Require(t, Root, CgroupV2, Tool("containerd", "ctr", "runc", "busybox"))
	bundle := &Container{spec: ContainerSpec{Files: spec.Files, HostPrograms: spec.HostPrograms}}
	bundle.makeBundle(t)
	c := &Containerd{ID: uniqueName(), Rootfs: bundle.Rootfs, address: filepath.Join(bundle.Bundle, "sock")}
	c.serve(t, bundle.Bundle)
	parent := "/" + uniqueName()
	t.Cleanup(func() { removeCgroups(t, parent) })
	args := []string{"run", "--detach", "--rootfs", "--cgroup", parent + "/" + c.ID, "--env", "PATH=/bin:/app:/usr/bin"}
	if spec.Profile != "" {
		args = append(args, "--seccomp", "--seccomp-profile", spec.Profile)
	}
	if spec.HostPrograms {
		for _, dir := range programDirs {
			args = append(args, "--mount", fmt.Sprintf("type=bind,src=%s,dst=%s,options=rbind:ro", dir, dir))
		}
	}
	args = append(append(args, bundle.Rootfs, c.ID), spec.Args...)
	t.Cleanup(func() {
		if out, err := c.ctr("tasks", "delete", "--force", c.ID).CombinedOutput(); err != nil {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
		if out, err := c.ctr("containers", "delete", c.ID).CombinedOutput(); err != nil {
			t.Errorf("cleanup: %v\n%s", err, out)
		}
	})
	if out, err := c.ctr(args...).CombinedOutput(); err != nil {
		t.Fatalf("ctr run: %v\n%s", err, out)
	}
	out, err := c.ctr("tasks", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == c.ID {
			c.PID, err = strconv.Atoi(f[1])
		}
	}
	if err != nil || c.PID == 0 {
		t.Fatalf("ctr tasks list: %v\n%s", err, out)
	}
	return c
}

func (c *Containerd) ctr(args ...string) *exec.Cmd {
	return exec.Command("ctr", append([]string{"--address", c.address, "--namespace", "gantry-test"}, args...)...)
}

// Exec returns a command that runs args inside the container.
func (c *Containerd) Exec(args ...string) *exec.Cmd {
	c.execs++
	return c.ctr(append([]string{"tasks", "exec", "--exec-id", strconv.Itoa(c.execs), c.ID}, args...)...)
}

// serve runs the daemon with its state below dir.
func (c *Containerd) serve(t testing.TB, dir string) {
	t.Helper()
	config := filepath.Join(dir, "containerd.toml")
	text := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\ndisabled_plugins = [%q, %q]\n[grpc]\naddress = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), "io.containerd.grpc.v1.cri",
		"io.containerd.internal.v1.opt", c.address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("containerd", "--config", config, "--log-level", "error")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // of the signal
	})
	Poll(t, "containerd listens", func() bool {
		conn, err := net.Dial("unix", c.address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
