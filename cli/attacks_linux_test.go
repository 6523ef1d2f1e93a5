// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// attacked is a container with the program that attacks, and what starts it there.
func attacked(t *testing.T, spec testutil.ContainerSpec) *testutil.Container {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec.HostPrograms = true
	spec.Files = map[string]string{"/app/" + attackName: self}
	if spec.Capabilities == nil {
		spec.Capabilities = testutil.DefaultCapabilities
	}
	return testutil.StartContainer(t, spec)
}

// TestAttacks: what the root of a container tries against the broker and its opener.
// Afterwards its neighbour has events as before.
func TestAttacks(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "perf"))
	testutil.CheckLeaks(t)
	with := append([]string{"CAP_SYS_PTRACE"}, testutil.DefaultCapabilities...)
	next := attacked(t, testutil.ContainerSpec{Name: "next"})
	for _, tc := range []struct {
		name string
		spec testutil.ContainerSpec
		args []string
	}{
		{name: "default"},
		{name: "user namespace", spec: testutil.ContainerSpec{Capabilities: with,
			Namespaces: []string{"user", "pid", "mount", "ipc", "uts", "network", "cgroup"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := attacked(t, tc.spec)
			for _, what := range []string{"flip", "refused", "opener", "ioctl", "descriptors", "badcalls", "killed", "flood"} {
				t.Run(what, func(t *testing.T) {
					status, text := execInside(t, c.ID, "--", "/app/"+attackName, what)
					if status != 0 {
						t.Errorf("status %d: %s", status, text)
					}
				})
			}
			if status, text := execInside(t, next.ID, "--", "perf", "stat", "-a", "true"); status != 0 {
				t.Errorf("the neighbour: status %d\n%s", status, text)
			}
		})
	}
}

// TestTracers: a container whose root may trace every process has events only where
// the kernel's addresses are no secret.
func TestTracers(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	c := attacked(t, testutil.ContainerSpec{
		Capabilities: append([]string{"CAP_SYS_PTRACE"}, testutil.DefaultCapabilities...)})
	status, text := execInside(t, c.ID, "--", "/app/"+attackName, "tasks", "1")
	if status != 1 || !strings.Contains(text, "CAP_SYS_PTRACE") || !strings.Contains(text, "hint: ") {
		t.Errorf("status %d\n%s", status, text)
	}
	if status, text := execInside(t, "--kernel", c.ID, "--", "/app/"+attackName, "tasks", "1"); status != 0 {
		t.Errorf("--kernel: status %d\n%s", status, text)
	}
}

// TestTracersHide: the process that asks, and the first one of its container, have given
// CAP_SYS_PTRACE up; another one has it still.
func TestTracersHide(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	c := attacked(t, testutil.ContainerSpec{Args: []string{"/app/" + attackName, "hide"}, Ready: "ready",
		Capabilities: append([]string{"CAP_SYS_PTRACE"}, testutil.DefaultCapabilities...)})
	status, text := execInside(t, c.ID, "--", "/app/"+attackName, "tasks", "1")
	if status != 1 || !strings.Contains(text, "CAP_SYS_PTRACE") {
		t.Errorf("status %d\n%s", status, text)
	}
	// One without, in the same pid namespace.
	beside := attacked(t, testutil.ContainerSpec{Name: "beside", Join: map[string]*testutil.Container{"pid": c}})
	status, text = execInside(t, beside.ID, "--", "/app/"+attackName, "tasks", "1")
	if status != 1 || !strings.Contains(text, "CAP_SYS_PTRACE") {
		t.Errorf("beside it: status %d\n%s", status, text)
	}
}

// TestNamespaces: containers of other shapes see their own tasks, and no others.
func TestNamespaces(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc", "unshare"))
	testutil.CheckLeaks(t)
	host := testutil.StartReady(t, exec.Command(testutil.SpinProgram(t, "host_hot")))
	hostPID := strconv.Itoa(host.Process.Pid)
	prog := "/app/" + attackName
	ok := func(t *testing.T, args ...string) {
		t.Helper()
		if status, text := execInside(t, args...); status != 0 {
			t.Errorf("%s: status %d\n%s", strings.Join(args, " "), status, text)
		}
	}
	t.Run("host pid", func(t *testing.T) {
		c := attacked(t, testutil.ContainerSpec{Namespaces: []string{"mount", "ipc", "uts", "network", "cgroup"}})
		ok(t, c.ID, "--", prog, "tasks", strconv.Itoa(c.PID))
		ok(t, c.ID, "--", prog, "denied", "1", hostPID, strconv.Itoa(os.Getpid()))
	})
	t.Run("shared pid", func(t *testing.T) {
		one := attacked(t, testutil.ContainerSpec{Name: "one"})
		two := attacked(t, testutil.ContainerSpec{Name: "two", Join: map[string]*testutil.Container{"pid": one}})
		var st bytes.Buffer
		cmd := two.Exec("/bin/sh", "-c", "echo $PPID; grep -l cat /proc/[0-9]*/comm")
		cmd.Stdout = &st
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		ok(t, two.ID, "--", prog, "denied", "1")
		ok(t, one.ID, "--", prog, "tasks", "1")
		ok(t, two.ID, "--", prog, "tasks", innerPID(t, two.PID))
		ok(t, one.ID, "--", prog, "denied", innerPID(t, two.PID))
	})
	t.Run("nested pid", func(t *testing.T) {
		c := attacked(t, testutil.ContainerSpec{
			Namespaces: []string{"user", "pid", "mount", "ipc", "uts", "network", "cgroup"}})
		ok(t, c.ID, "--", "unshare", "-rpf", prog, "refused")
		ok(t, c.ID, "--", "unshare", "-rpf", prog, "ioctl")
	})
	t.Run("sub-cgroup", func(t *testing.T) {
		c := attacked(t, testutil.ContainerSpec{})
		sub := filepath.Join(c.CgroupDir, "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		child := c.Exec("/bin/sh", "-c", "echo $$; read x")
		inner := testutil.StartReady(t, child)
		pids, err := os.ReadFile(c.CgroupDir + "/cgroup.procs")
		if err != nil {
			t.Fatal(err)
		}
		moved := 0
		for _, text := range strings.Fields(string(pids)) {
			if text == strconv.Itoa(c.PID) {
				continue
			}
			if err := os.WriteFile(filepath.Join(sub, "cgroup.procs"), []byte(text), 0); err != nil {
				t.Fatal(err)
			}
			moved++
		}
		if moved == 0 {
			t.Fatalf("no process to move:\n%s", pids)
		}
		ok(t, c.ID, "--", prog, "tasks", "1", strings.TrimSpace(inner.First))
		if err := inner.End(); err == nil {
			t.Error("read from the end of input succeeds")
		}
	})
	t.Run("other user", func(t *testing.T) {
		c := attacked(t, testutil.ContainerSpec{})
		ok(t, "--user", "1000", c.ID, "--", prog, "ioctl")
	})
	t.Run("same name again", func(t *testing.T) {
		id := "gantry-test-again-" + testutil.RandomHex(8)
		for range 2 {
			c := attacked(t, testutil.ContainerSpec{ID: id})
			ok(t, c.ID, "--", prog, "tasks", "1")
			ok(t, c.ID, "--", prog, "ioctl")
			c.Delete(t)
		}
	})
}

// innerPID is the number of a process in its own pid namespace.
func innerPID(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
			return f[len(f)-1]
		}
	}
	t.Fatal("no NSpid")
	return ""
}
