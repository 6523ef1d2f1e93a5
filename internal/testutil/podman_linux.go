// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PodmanSpec says what a Podman test container is.
type PodmanSpec struct {
	// Name must be unique only within this Podman, which is the test's own.
	Name string
	// Files are copied into the rootfs, as in ContainerSpec.
	Files map[string]string
	// HostPrograms is as in ContainerSpec.
	HostPrograms bool
	// Args is the command; default a busybox that waits.
	Args []string
	// Options are more flags of podman run.
	Options []string
	// Labels of the container.
	Labels map[string]string
}

// Podman is a running container of a Podman with its own storage, and the API
// socket that lists it.
type Podman struct {
	// Socket is the path of the API's unix socket.
	Socket string
	// ID has 64 hexadecimal digits.
	ID string
	// PID is the init process in the host's pid namespace.
	PID int
	// CgroupPath is the path on the cgroup2 hierarchy.
	CgroupPath string
	// Rootfs is the container's root.
	Rootfs string

	dir string
}

// StartPodman runs a container with Podman and runc, and serves Podman's API
// on a socket.
func StartPodman(t testing.TB, spec PodmanSpec) *Podman {
	t.Helper()
	Require(t, Root, CgroupV2, Tool("podman", "runc", "busybox"))
	if spec.Args == nil {
		spec.Args = []string{"/bin/busybox", "sleep", "86400"}
	}
	bundle := &Container{spec: ContainerSpec{Files: spec.Files, HostPrograms: spec.HostPrograms}}
	bundle.makeBundle(t)
	p := &Podman{dir: bundle.Bundle, Rootfs: bundle.Rootfs}
	parent := "/" + uniqueName()
	t.Cleanup(func() { removeCgroups(t, parent) })
	p.run(t, &spec, parent, bundle.Rootfs)
	p.serve(t)
	return p
}

// command is a podman whose state is all below the test's directory.
func (p *Podman) command(args ...string) *exec.Cmd {
	return exec.Command("podman", append([]string{
		"--root", filepath.Join(p.dir, "root"),
		"--runroot", filepath.Join(p.dir, "runroot"),
		"--tmpdir", filepath.Join(p.dir, "tmp"),
		"--storage-driver", "vfs",
		"--cgroup-manager", "cgroupfs",
		"--events-backend", "none",
		"--runtime", "runc",
	}, args...)...)
}

func (p *Podman) output(t testing.TB, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := p.command(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("podman %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

func (p *Podman) run(t testing.TB, spec *PodmanSpec, parent, rootfs string) {
	t.Helper()
	args := []string{"run", "--detach", "--name", spec.Name, "--cgroup-parent", parent, "--network", "none",
		"--log-driver", "none",
		// The defaults may be above what a virtual machine lets root set.
		"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--pids-limit", "0"}
	for key, value := range spec.Labels {
		args = append(args, "--label", key+"="+value)
	}
	if spec.HostPrograms {
		for _, dir := range programDirs {
			args = append(args, "--volume", dir+":"+dir+":ro")
		}
	}
	args = slices.Concat(args, spec.Options, []string{"--rootfs", rootfs}, spec.Args)
	var conmon int
	t.Cleanup(func() {
		// --ignore: there is no container if run failed.
		if out, err := p.command("rm", "--force", "--ignore", "--time", "0", spec.Name).CombinedOutput(); err != nil {
			t.Errorf("cleanup: podman rm: %v\n%s", err, out)
		}
		if conmon > 0 {
			AwaitEnd(t, conmon)
		}
	})
	p.ID = p.output(t, args...)
	var err error
	if conmon, err = strconv.Atoi(p.output(t, "inspect", "--format", "{{.State.ConmonPid}}", spec.Name)); err != nil {
		t.Fatal(err)
	}
	if p.PID, err = strconv.Atoi(p.output(t, "inspect", "--format", "{{.State.Pid}}", spec.Name)); err != nil {
		t.Fatal(err)
	}
	p.CgroupPath = filepath.Join(parent, "libpod-"+p.ID)
}

// Exec returns a command that runs args inside the container.
func (p *Podman) Exec(args ...string) *exec.Cmd {
	return p.command(append([]string{"exec", p.ID}, args...)...)
}

// AwaitEnd waits until a process that is no child has ended, at most a minute. Who
// is its parent may leave it a zombie.
// The monitor of a Podman container calls Podman once more when the container is
// gone, which writes into directories that the test is about to remove.
func AwaitEnd(t testing.TB, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("process %d does not end", pid)
			return
		}
	}
}

// serve runs the API service. It is given a socket that already listens, as
// systemd does it, so that nobody has to wait for one.
func (p *Podman) serve(t testing.TB) {
	t.Helper()
	p.Socket = filepath.Join(p.dir, "podman.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	service := p.command("system", "service", "--time", "0")
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh"}, service.Args...)...)
	cmd.Env = append(os.Environ(), "LISTEN_FDS=1")
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("cleanup: kill podman: %v", err)
		}
		cmd.Wait() // says that it was killed
	})
}
