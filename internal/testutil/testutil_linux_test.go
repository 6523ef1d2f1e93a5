// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestStartContainer(t *testing.T) {
	spin := SpinProgram(t, "alpha_hot")
	for _, tt := range []struct {
		name string
		spec ContainerSpec
	}{
		{"default", ContainerSpec{}},
		{"program", ContainerSpec{Name: "web", Files: map[string]string{"/app/server": spin}, Args: []string{"/app/server"}, Ready: "ready"}},
		{"cgroup", ContainerSpec{CgroupPath: "/docker/" + RandomHex(64)}},
		{"overlay", ContainerSpec{Overlay: true}},
		{"user", ContainerSpec{Namespaces: []string{"pid", "mount", "user"}}},
		{"uid", ContainerSpec{UID: 1000}},
		{"crun", ContainerSpec{Runtime: "crun"}},
		{"crun-cgroup", ContainerSpec{Runtime: "crun", CgroupPath: "/libpod_parent/libpod-" + RandomHex(64)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			CheckLeaks(t)
			c := StartContainer(t, tt.spec)
			data, err := os.ReadFile(filepath.Join(c.CgroupDir, "cgroup.procs"))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Fields(string(data)); len(got) != 1 || got[0] != strconv.Itoa(c.PID) {
				t.Errorf("cgroup.procs = %q, want only %d", got, c.PID)
			}
			text, err := os.ReadFile("/proc/" + strconv.Itoa(c.PID) + "/cgroup")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "0::"+c.CgroupPath+"\n") {
				t.Errorf("/proc/PID/cgroup = %q, want 0::%s", text, c.CgroupPath)
			}
		})
	}
}

func TestContainerIsRemoved(t *testing.T) {
	var c *Container
	t.Run("run", func(t *testing.T) { c = StartContainer(t, ContainerSpec{CgroupPath: "/a/b"}) })
	if c == nil {
		Lacks(t, "no container")
	}
	for _, path := range []string{c.CgroupDir, filepath.Dir(c.CgroupDir), c.Bundle, "/run/runc/" + c.ID} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
}

func TestContainerExec(t *testing.T) {
	c := StartContainer(t, ContainerSpec{})
	out, err := c.Exec("/bin/echo", "hello").Output()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("exec = %q, %v", out, err)
	}
	c.Write(t, "line\n")
	if got := c.ReadLine(t); got != "line" {
		t.Errorf("read %q", got)
	}
}

func TestNewCgroup(t *testing.T) {
	var cg *Cgroup
	t.Run("run", func(t *testing.T) {
		cg = NewCgroup(t, "/kubepods/pod1")
		if cg.ID(t) == 0 {
			t.Error("id 0")
		}
		c := StartContainer(t, ContainerSpec{})
		cg.Add(t, c.PID)
	})
	if cg == nil {
		Lacks(t, "no cgroup")
	}
	if _, err := os.Stat(cg.Dir); err == nil {
		t.Errorf("%s is still there", cg.Dir)
	}
}

func TestStartPodman(t *testing.T) {
	CheckLeaks(t)
	p := StartPodman(t, PodmanSpec{Name: "web", Labels: map[string]string{"tier": "front"}})
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "0::"+p.CgroupPath+"\n") {
		t.Errorf("/proc/PID/cgroup = %q, want 0::%s", text, p.CgroupPath)
	}
	conn, err := net.Dial("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /containers/json HTTP/1.0\r\nHost: podman\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(answer), p.ID) || !strings.Contains(string(answer), `"front"`) {
		t.Errorf("the API does not list the container: %s", answer)
	}
}
