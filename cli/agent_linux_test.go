// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/agent/broker"
	"github.com/gantry-tools/gantry/agent/client"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// testAgent is an agent that runs, with sockets of its own.
type testAgent struct {
	seccomp, socket, tracing, audit, config string
	namespaces                              string // "": none
	cmd                                     *exec.Cmd

	mu  sync.Mutex
	log []string
}

// startAgent starts an agent with a configuration and waits until it serves.
func startAgent(t *testing.T, config string) *testAgent {
	t.Helper()
	return startAgentFor(t, config, "")
}

// startAgentFor starts one that serves tracing namespaces, too.
func startAgentFor(t *testing.T, config, namespaces string) *testAgent {
	t.Helper()
	dir := t.TempDir()
	a := &testAgent{
		namespaces: namespaces,
		seccomp:    filepath.Join(dir, "seccomp.sock"), socket: filepath.Join(dir, "client/agent.sock"),
		tracing: filepath.Join(dir, "tracing"), audit: filepath.Join(dir, "audit"),
		config: filepath.Join(dir, "config"),
	}
	a.configure(t, config)
	a.cmd = exec.Command("/proc/self/exe", "agent", "--seccomp-socket", a.seccomp, "--socket", a.socket,
		"--tracing-dir", a.tracing, "--ns-dir", a.namespaces, "--audit", a.audit, "--config", a.config)
	// It is what tests kill, and no terminal of theirs.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stderr, err := a.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	t.Cleanup(func() {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		<-read
		if err := a.cmd.Wait(); err != nil {
			t.Errorf("the agent: %v\n%s", err, a.text())
		}
	})
	go func() {
		defer close(read)
		for sc := bufio.NewScanner(stderr); sc.Scan(); {
			a.mu.Lock()
			a.log = append(a.log, sc.Text())
			a.mu.Unlock()
		}
	}()
	a.awaitReady(t, 1)
	return a
}

func (a *testAgent) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(a.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *testAgent) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.log, "\n")
}

// awaitReady waits until so many workers have been ready.
func (a *testAgent) awaitReady(t *testing.T, n int) {
	t.Helper()
	testutil.Poll(t, "the agent is ready", func() bool { return strings.Count(a.text(), ": ready") >= n })
}

// ready is how many workers have been ready.
func (a *testAgent) ready() int { return strings.Count(a.text(), ": ready") }

// worker is the process that serves.
func (a *testAgent) worker(t *testing.T) int {
	t.Helper()
	var pid int
	testutil.Poll(t, "the agent has a worker", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", a.cmd.Process.Pid, a.cmd.Process.Pid))
		if err != nil || len(bytes.Fields(text)) == 0 {
			// Another thread may have started it.
			list, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", a.cmd.Process.Pid))
			for _, file := range list {
				if text, err = os.ReadFile(file); err == nil && len(bytes.Fields(text)) > 0 {
					break
				}
			}
		}
		n, err := fmt.Sscan(string(text), &pid)
		return n == 1 && err == nil
	})
	return pid
}

// profile is the file of a seccomp profile for the agent.
func (a *testAgent) profile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(file, []byte(gantry(t, "agent", "profile", "--seccomp-socket", a.seccomp)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// link makes this program be called by another name.
func link(t *testing.T, name string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(self, at); err != nil {
		t.Fatal(err)
	}
	return at
}

// inside runs a command in a container and fails the test if that fails.
func inside(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out.Bytes())
	}
	return out.String()
}

// execer runs commands in a container.
type execer interface {
	Exec(args ...string) *exec.Cmd
}

// TestAgentPerf: with an agent behind the seccomp filters of containers an unmodified
// perf works in them, however they are made.
func TestAgentPerf(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2,
		testutil.Tool("runc", "crun", "podman", "containerd", "gcc", "perf", "stress-ng"))
	testutil.CheckLeaks(t)
	startNeighbours(t)
	a := startAgent(t, "policy: [{tracepoints: ['raw_syscalls:*']}]")
	t.Setenv(seccompEnv, a.seccomp)
	t.Setenv(tracingEnv, a.tracing)
	prog := testutil.SpinProgram(t, "inside_hot")
	files := map[string]string{"/app/inside": prog}
	profile, err := os.ReadFile(a.profile(t))
	if err != nil {
		t.Fatal(err)
	}
	spec := testutil.ContainerSpec{HostPrograms: true, Capabilities: testutil.DefaultCapabilities, Files: files,
		Args: []string{"/app/inside"}, Ready: "ready"}
	forever := []string{"/bin/sh", "-c", "sleep 86400 | /app/inside"}
	for _, tc := range []struct {
		name  string
		start func(*testing.T) (c execer, rootfs string)
	}{
		{"gantry-runc", func(t *testing.T) (execer, string) {
			s := spec
			s.Runtime = link(t, runcName)
			c := testutil.StartContainer(t, s)
			return c, c.Rootfs
		}},
		{"runc", func(t *testing.T) (execer, string) {
			s := spec
			s.Seccomp = profile
			c := testutil.StartContainer(t, s)
			return c, c.Rootfs
		}},
		{"crun", func(t *testing.T) (execer, string) {
			s := spec
			s.Runtime, s.Seccomp = "crun", profile
			c := testutil.StartContainer(t, s)
			return c, c.Rootfs
		}},
		{"podman", func(t *testing.T) (execer, string) {
			p := testutil.StartPodman(t, testutil.PodmanSpec{Name: "in", HostPrograms: true, Files: files, Args: forever,
				Options: []string{"--security-opt", "seccomp=" + a.profile(t)}})
			return p, p.Rootfs
		}},
		{"containerd", func(t *testing.T) (execer, string) {
			c := testutil.StartContainerd(t, &testutil.ContainerdSpec{HostPrograms: true, Files: files, Args: forever,
				Profile: a.profile(t)})
			return c, c.Rootfs
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, rootfs := tc.start(t)
			for _, command := range []string{
				"perf stat -a -e task-clock,page-faults -- sleep 0.3",
				"perf record -a -g -F 2000 -o /tmp/perf.data -- sleep 0.5",
				"perf record -F 2000 -p $(pidof inside) -o /tmp/perf.data -- sleep 0.5",
				"perf record -F 2000 -o /tmp/perf.data -- sh -c '" + burn + "'",
			} {
				text := inside(t, c.Exec("/bin/sh", "-c", command))
				if strings.Contains(command, "perf.data") {
					text += checkRecording(t, filepath.Join(rootfs, "tmp/perf.data"))
				}
				for _, foreign := range []string{"hostbusy", "nextbusy", "host_hot", "neighbour_hot"} {
					if strings.Contains(text, foreign) {
						t.Errorf("%s: %q in what perf saw\n%s", command, foreign, text)
					}
				}
			}
			text := inside(t, c.Exec("stress-ng", "--cpu", "1", "--perf", "-t", "1"))
			if !strings.Contains(text, "CPU Clock") {
				t.Errorf("stress-ng --perf counted nothing:\n%s", text)
			}
			if tc.name == "gantry-runc" { // which mounts the tracepoints
				text := inside(t, c.Exec("perf", "record", "-e", "raw_syscalls:sys_enter", "-a", "-o", "/tmp/perf.data",
					"sleep", "0.3")) + checkRecording(t, filepath.Join(rootfs, "tmp/perf.data"))
				if !strings.Contains(text, "raw_syscalls:sys_enter") {
					t.Errorf("no tracepoint in\n%s", text)
				}
			}
		})
	}
}

// TestAgentRestart: workers are killed and replaced while containers open events, and
// the containers do not notice.
func TestAgentRestart(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	a := startAgent(t, "")
	t.Setenv(seccompEnv, a.seccomp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := testutil.StartContainer(t, testutil.ContainerSpec{Runtime: link(t, runcName),
		Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/" + attackName: self}})
	const kills = 8
	// It opens events, and prints a line for each hundred, until its input ends.
	cmd := c.Exec("/app/"+attackName, "open")
	opens := testutil.StartReady(t, cmd)
	for i := range kills {
		sig := syscall.SIGKILL
		if i%2 == 1 {
			sig = syscall.SIGTERM
		}
		n := a.ready()
		if err := syscall.Kill(a.worker(t), sig); err != nil {
			t.Fatal(err)
		}
		a.awaitReady(t, n+1)
		if line, err := opens.Out.ReadString('\n'); err != nil || line != "100\n" {
			t.Fatalf("after %d kills: %q, %v\n%s", i, line, err, a.text())
		}
	}
	if err := opens.End(); err != nil {
		t.Errorf("a container noticed that workers were killed: %v", err)
	}
}

// TestAgentPolicy: the rules of the configuration, those of another one after SIGHUP,
// the audit log.
func TestAgentPolicy(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc", "perf"))
	testutil.CheckLeaks(t)
	a := startAgent(t, `
policy:
- container: none-is-called-so
  kernel: true
- selector: gantry=nothing
  tasks: nobody
  all-tasks: nobody
- max-events: 8
  all-tasks: root
`)
	t.Setenv(seccompEnv, a.seccomp)
	wrapper := link(t, runcName)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := testutil.StartContainer(t, testutil.ContainerSpec{Runtime: wrapper, HostPrograms: true,
		Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/" + attackName: self}})
	all := []string{"perf", "stat", "-a", "-e", "cpu-clock:u", "sleep", "0.1"}
	inside(t, c.Exec(all...))
	asUser := func(args ...string) *exec.Cmd {
		cmd := c.Exec(args...)
		cmd.Args = append(cmd.Args[:len(cmd.Args)-len(args)-1], append([]string{"--user", "1000:1000", c.ID}, args...)...)
		return cmd
	}
	// Neither of all tasks, nor of root's; also not as root of a user namespace of its own.
	inside(t, asUser("/app/"+attackName, "denied", "-1", "1"))
	inside(t, asUser("unshare", "-r", "/app/"+attackName, "denied", "-1", "1"))
	// Nine events at a time are one too many.
	nine := "'{" + strings.TrimSuffix(strings.Repeat("task-clock:u,", 9), ",") + "}'"
	if out, err := c.Exec("/bin/sh", "-c", "perf stat -e "+nine+" -- true").CombinedOutput(); err == nil {
		t.Errorf("more events than the policy has:\n%s", out)
	}
	a.configure(t, "policy: [{all-tasks: anyone}]")
	n := a.ready()
	if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(t, n+1)
	inside(t, asUser(all...))
	granted, refused := readAudit(t, a.audit)
	if granted == 0 || refused == 0 {
		t.Errorf("the audit log has %d granted, %d refused", granted, refused)
	}
}

// TestAgentSameName: a container follows another one of its name and its cgroup's path.
func TestAgentSameName(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	a := startAgent(t, "")
	t.Setenv(seccompEnv, a.seccomp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := testutil.ContainerSpec{Runtime: link(t, runcName), ID: "gantry-test-again-" + testutil.RandomHex(8),
		Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/" + attackName: self}}
	for range 3 {
		c := testutil.StartContainer(t, spec)
		inside(t, c.Exec("/app/"+attackName, "ioctl"))
		inside(t, c.Exec("/app/"+attackName, "tasks", "1"))
		c.Delete(t)
	}
	// Its root is root, in a user namespace as well.
	spec.Namespaces = []string{"user", "pid", "mount", "ipc", "uts", "network", "cgroup"}
	spec.ID += "-user"
	inside(t, testutil.StartContainer(t, spec).Exec("/app/"+attackName, "ioctl"))
}

// readAudit counts the entries of an audit log.
func readAudit(t *testing.T, file string) (granted, refused int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var e broker.Entry
		err := dec.Decode(&e)
		if errors.Is(err, io.EOF) {
			return granted, refused
		}
		if err != nil {
			t.Fatalf("audit log: %v\n%s", err, text)
		}
		switch {
		case e.Container == "" || e.Comm == "" || e.Event == "" || e.Count < 1:
			t.Errorf("an entry without a part: %+v", e)
		case e.Decision == broker.Granted:
			granted++
		case e.Reason == "" || e.Error == "":
			t.Errorf("a refusal without a reason: %+v", e)
		default:
			refused++
		}
	}
}

// TestAgentClient: gantry in a container has its events by the agent's socket, and
// knows what the container is called; doctor says so.
func TestAgentClient(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	startNeighbours(t)
	a := startAgent(t, "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := testutil.StartContainer(t, testutil.ContainerSpec{HostPrograms: true, Capabilities: testutil.DefaultCapabilities,
		Mounts: map[string]string{filepath.Dir(client.DefaultSocket): filepath.Dir(a.socket)},
		Files:  map[string]string{"/app/" + gantryName: self, "/app/inside": testutil.SpinProgram(t, "inside_hot")},
		Args:   []string{"/app/inside"}, Ready: "ready"})
	g := "/app/" + gantryName
	inside(t, c.Exec(g, "record", "-a", "-g", "-F", "1000", "-o", "/tmp/g.data", "--duration", "500ms"))
	text := inside(t, c.Exec(g, "report", "-i", "/tmp/g.data", "-g", "none", "--sort", "container,comm,sym"))
	if !strings.Contains(text, c.ID) || !strings.Contains(text, "inside_hot") {
		t.Errorf("no %s or no inside_hot in\n%s", c.ID, text)
	}
	for _, foreign := range []string{"hostbusy", "nextbusy", "host_hot", "neighbour_hot"} {
		if strings.Contains(text, foreign) {
			t.Errorf("%q in\n%s", foreign, text)
		}
	}
	text = inside(t, c.Exec(g, "doctor"))
	if !strings.Contains(text, "gantry agent answers at") {
		t.Errorf("doctor does not know of the agent:\n%s", text)
	}
	// A process of the host is in no container.
	t.Setenv(client.SocketEnv, a.socket)
	conn, err := client.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var refused *client.Refusal
	if _, err := conn.About(); !errors.As(err, &refused) {
		t.Errorf("the host asks: %v, want a refusal", err)
	}
}

// TestAgentSocketAbuse: a container that keeps all connections it can get, and says
// nonsense on them, keeps nobody else from the agent.
func TestAgentSocketAbuse(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	a := startAgent(t, "")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mounts := map[string]string{filepath.Dir(client.DefaultSocket): filepath.Dir(a.socket)}
	bad := testutil.StartContainer(t, testutil.ContainerSpec{Name: "bad", Capabilities: testutil.DefaultCapabilities,
		Mounts: mounts, Files: map[string]string{"/app/" + attackName: self}})
	good := testutil.StartContainer(t, testutil.ContainerSpec{Name: "good", HostPrograms: true, Mounts: mounts,
		Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/" + gantryName: self}})
	abuse := testutil.StartReady(t, bad.Exec("/app/"+attackName, "socket"))
	inside(t, good.Exec("/app/"+gantryName, "record", "-a", "-o", "/tmp/g.data", "--", "/bin/true"))
	if err := abuse.End(); err != nil {
		t.Error(err)
	}
	inside(t, good.Exec("/app/"+gantryName, "record", "-a", "-o", "/tmp/g.data", "--", "/bin/true"))
}

// TestAgentHeldMemory: a container whose call points to memory that nobody can read keeps
// neither others waiting nor a new worker from taking over.
func TestAgentHeldMemory(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc"))
	testutil.CheckLeaks(t)
	a := startAgent(t, "")
	t.Setenv(seccompEnv, a.seccomp)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	wrapper := link(t, runcName)
	start := func(name string) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Runtime: wrapper,
			Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/" + attackName: self}})
	}
	bad, good := start("bad"), start("good")
	fuse := testutil.MountFUSE(t, bad.PID, "/tmp", make([]byte, 4096))
	held := testutil.StartReady(t, bad.Exec("/app/"+attackName, "held", "/tmp/"+testutil.FUSEFile))
	fuse.Silence()
	if _, err := io.WriteString(held.In, "\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := held.Out.ReadString('\n'); err != nil || line != "opening\n" {
		t.Fatalf("%q, %v", line, err)
	}
	inside(t, good.Exec("/app/"+attackName, "ioctl"))
	n := a.ready()
	if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	a.awaitReady(t, n+1)
	inside(t, good.Exec("/app/"+attackName, "ioctl"))
	fuse.Abort()
	if err := held.End(); err != nil {
		t.Error(err)
	}
	inside(t, bad.Exec("/app/"+attackName, "ioctl"))
}
