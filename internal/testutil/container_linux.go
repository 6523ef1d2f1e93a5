// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readyTimeout bounds every wait for a container.
const readyTimeout = 60 * time.Second

// ContainerSpec says what an OCI test container is. The zero value is a
// busybox that prints "ready" and waits until its standard input ends.
type ContainerSpec struct {
	// Runtime is "runc" (default), "crun", or the path of one that is called like runc.
	Runtime string
	// Root is the runtime's state directory; default the runtime's own
	// (/run/runc, /run/crun), where gantry looks for names.
	Root string
	// Name ends the container's id; default "c".
	Name string
	// ID replaces the made-up id, for tests that need its form (64 hex
	// digits). It must be unique: see RandomHex.
	ID string
	// Files are copied into the rootfs: path in the container -> host path.
	// They are executable there. /bin/busybox and /bin/sh are always there.
	Files map[string]string
	// HostPrograms mounts the host's directories of programs and libraries,
	// read-only, so that perf and a shell are in the container.
	HostPrograms bool
	// Args is the command.
	Args []string
	// Env follows PATH.
	Env []string
	// Ready is the line on standard output that StartContainer and Start wait
	// for; default "ready" with the default Args, else none.
	Ready string
	// CgroupPath is where the container lives below a unique cgroup of this
	// test, such as "/docker/HEX"; default that unique cgroup itself.
	CgroupPath string
	// SameCgroup has RunContainer use one path for all containers of a test
	// that run one after the other.
	SameCgroup bool
	// Namespaces are the OCI names; default pid, mount, ipc, uts, network and
	// cgroup. With "user", uid 0 inside is UserNSBase outside.
	Namespaces []string
	// Join maps OCI names of Namespaces to the container whose namespace is
	// used in place of a new one, as the containers of a pod do.
	Join map[string]*Container
	// Overlay puts the rootfs on overlayfs.
	Overlay bool
	// UID is the uid and gid of the command.
	UID uint32
	// Capabilities of the command, such as "CAP_PERFMON"; default none.
	Capabilities []string
	// Seccomp is the profile, linux.seccomp of config.json; nil is none.
	Seccomp []byte
	// Mounts are directories of the host, read-only: path in the container -> host path.
	Mounts map[string]string
	// WritableMounts are the same, to be written to.
	WritableMounts map[string]string
	// Annotations go to config.json.
	Annotations map[string]string
	// Hostname is the name in the uts namespace; default the id.
	Hostname string
}

// DefaultCapabilities are what Docker, Podman and containerd leave a container's root.
var DefaultCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",
	"CAP_AUDIT_WRITE",
}

// UserNSBase is the host uid and gid of a user namespace container's root.
const UserNSBase = 100000

// Container is a created or running OCI container. The test's Cleanup kills
// and deletes it.
type Container struct {
	// ID is the runtime's id; unique on this machine.
	ID string
	// PID is the init process in the host's pid namespace.
	PID int
	// CgroupPath is the path on the cgroup2 hierarchy, as /proc/PID/cgroup
	// has it for a process of the host.
	CgroupPath string
	// CgroupDir is the directory of CgroupPath.
	CgroupDir string
	// Bundle is the OCI bundle's directory, Rootfs the root in it.
	Bundle, Rootfs string

	runtime *ociRuntime
	spec    ContainerSpec
	// process is a pidfd of PID: that number may be another's once the
	// container has ended.
	process *os.File
	stdin   *os.File
	stdout  *bufio.Reader
	outFile *os.File
}

// ownPrefix starts the names of all that this process makes.
func ownPrefix() string { return fmt.Sprintf("gantry-test-%d-", os.Getpid()) }

// uniqueName is a name no other test of this machine uses.
func uniqueName() string { return ownPrefix() + RandomHex(8) }

// RandomHex returns n random hexadecimal digits.
func RandomHex(n int) string {
	b := make([]byte, (n+1)/2)
	rand.Read(b)
	return hex.EncodeToString(b)[:n]
}

// StartContainer makes a container and runs it. It returns when the command
// has printed its Ready line.
func StartContainer(t testing.TB, spec ContainerSpec) *Container {
	t.Helper()
	c := CreateContainer(t, spec)
	c.Start(t)
	return c
}

// CreateContainer makes a container whose command has not been executed yet:
// its PID, namespaces and cgroup exist, the process is the runtime's.
func CreateContainer(t testing.TB, spec ContainerSpec) *Container {
	t.Helper()
	spec.setDefaults()
	rt := newRuntime(t, &spec)
	c := &Container{ID: spec.ID, runtime: rt, spec: spec}
	c.makeBundle(t)
	unique := "/" + uniqueName()
	c.CgroupPath = unique + spec.CgroupPath
	// Cleanups run last first: the cgroups go after the container.
	t.Cleanup(func() { removeCgroups(t, unique) })
	c.writeConfig(t)
	c.create(t)
	mount, err := cgroup2Mount()
	if err != nil {
		t.Fatal(err)
	}
	c.CgroupDir = filepath.Join(mount, c.CgroupPath)
	return c
}

// RunContainer makes a container and runs it to its end, at the cost of one call
// of the runtime, and returns its id. Its bundle stays until the test ends.
func RunContainer(t testing.TB, spec ContainerSpec) (id string) {
	t.Helper()
	spec.setDefaults()
	c := &Container{ID: spec.ID, runtime: newRuntime(t, &spec), spec: spec}
	c.makeBundle(t)
	unique := "/" + uniqueName()
	if spec.SameCgroup {
		unique = "/" + ownPrefix() + "same"
	}
	c.CgroupPath = unique + spec.CgroupPath
	t.Cleanup(func() { removeCgroups(t, unique) })
	c.writeConfig(t)
	if err := c.runtime.run(c.runtime.command("run", "--bundle", c.Bundle, c.ID)); err != nil {
		c.delete(t)
		t.Fatal(err)
	}
	return c.ID
}

func (s *ContainerSpec) setDefaults() {
	if s.Runtime == "" {
		s.Runtime = "runc"
	}
	if s.Name == "" {
		s.Name = "c"
	}
	if s.ID == "" {
		s.ID = uniqueName() + "-" + s.Name
	}
	if s.Args == nil {
		s.Args = []string{"/bin/sh", "-c", "echo ready; exec cat"}
		s.Ready = "ready"
	}
	if s.Namespaces == nil {
		s.Namespaces = []string{"pid", "mount", "ipc", "uts", "network", "cgroup"}
	}
	if s.Hostname == "" {
		s.Hostname = s.ID
	}
}

// create runs the runtime's create with pipes for the command's standard
// input and output.
func (c *Container) create(t testing.TB) {
	t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin, c.outFile, c.stdout = inW, outR, bufio.NewReader(outR)
	t.Cleanup(func() { outR.Close() })
	t.Cleanup(func() { c.process.Close() })
	t.Cleanup(func() { c.delete(t) })
	t.Cleanup(func() { inW.Close() })
	pidFile := filepath.Join(c.Bundle, "pid")
	cmd := c.runtime.command("create", "--bundle", c.Bundle, "--pid-file", pidFile, c.ID)
	cmd.Stdin, cmd.Stdout = inR, outW
	err = c.runtime.run(cmd)
	inR.Close()
	outW.Close()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if c.PID, err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
		t.Fatalf("pid file: %v", err)
	}
	if c.process, err = pidfdOpen(c.PID); err != nil {
		t.Fatalf("pidfd of container %s: %v", c.ID, err)
	}
}

// Start executes the command of a created container and waits for its Ready
// line.
func (c *Container) Start(t testing.TB) {
	t.Helper()
	if err := c.runtime.run(c.runtime.command("start", c.ID)); err != nil {
		t.Fatal(err)
	}
	if c.spec.Ready == "" {
		return
	}
	for {
		line := c.ReadLine(t)
		if line == c.spec.Ready {
			return
		}
	}
}

// Namespace is the inode number of the container's namespace of a kind, by its
// name in /proc/PID/ns.
func (c *Container) Namespace(t testing.TB, kind string) uint64 {
	t.Helper()
	info, err := os.Stat(c.namespaceFile(kind))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

func (c *Container) namespaceFile(kind string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", c.PID, kind)
}

// ReadLine returns the next line the command prints, without its end. It
// fails the test at the end of the output or after a minute.
func (c *Container) ReadLine(t testing.TB) string {
	t.Helper()
	if err := c.outFile.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		t.Fatal(err)
	}
	line, err := c.stdout.ReadString('\n')
	if err != nil {
		t.Fatalf("container %s: read its output: %v (so far %q)%s", c.ID, err, line, c.runtime.diagnosis())
	}
	return strings.TrimSuffix(line, "\n")
}

// Write sends s to the command's standard input.
func (c *Container) Write(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, s); err != nil {
		t.Fatalf("container %s: write to it: %v", c.ID, err)
	}
}

// Exec returns a command that runs args inside the container.
func (c *Container) Exec(args ...string) *exec.Cmd {
	return c.runtime.command(append([]string{"exec", c.ID}, args...)...)
}

// Kill sends SIGKILL to the container's init and waits until it is gone.
func (c *Container) Kill(t testing.TB) {
	t.Helper()
	if err := killAndWait(c.process); err != nil {
		t.Fatalf("kill container %s: %v", c.ID, err)
	}
}

// Delete kills and removes the container before the test ends.
func (c *Container) Delete(t testing.TB) {
	t.Helper()
	c.Kill(t)
	c.delete(t)
}

// delete removes the container; a second time is no error.
func (c *Container) delete(t testing.TB) {
	if c.process != nil {
		c.Kill(t)
	}
	if c.runtime == nil {
		return
	}
	err := c.runtime.run(c.runtime.command("delete", "--force", c.ID))
	if err != nil && !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("cleanup: %v", err)
	}
}

const sysPidfdNonblock = syscall.O_NONBLOCK

// pidfdOpen returns a descriptor that is readable once the process is gone.
func pidfdOpen(pid int) (*os.File, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(pid), sysPidfdNonblock, 0)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "pidfd"), nil
}

// killAndWait sends SIGKILL to the process of a pidfd and waits until it is gone.
func killAndWait(process *os.File) error {
	conn, err := process.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	if err := conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(sysPidfdSendSignal, fd, uintptr(syscall.SIGKILL), 0, 0, 0, 0)
	}); err != nil {
		return err
	}
	if errno != 0 && errno != syscall.ESRCH {
		return errno
	}
	return waitReadable(process)
}

// waitReadable waits, at most readyTimeout, until f is readable.
func waitReadable(f *os.File) error {
	if err := f.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool { return pollReadable(fd) })
}

// diagnosis is the runtime's log, for messages.
func (r *ociRuntime) diagnosis() string {
	data, err := os.ReadFile(r.log)
	if err != nil || len(data) == 0 {
		return ""
	}
	return "\n" + string(bytes.TrimSpace(data))
}

// run runs a command of the runtime; its error carries the runtime's words.
func (r *ociRuntime) run(cmd *exec.Cmd) error {
	if cmd.Stderr == nil {
		stderr, err := os.OpenFile(r.log+".stderr", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer stderr.Close()
		cmd.Stderr = stderr
	}
	if err := cmd.Run(); err != nil {
		words, _ := os.ReadFile(r.log + ".stderr")
		return fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, words, r.diagnosis())
	}
	return nil
}
