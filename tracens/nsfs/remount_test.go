// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// markSource writes the lines of its input to /events/marker and prints what came of it.
const markSource = `
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	char line[128];

	setvbuf(stdout, NULL, _IONBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		int fd = open("/events/marker", O_WRONLY | O_CLOEXEC);
		int bad = fd < 0 || write(fd, line, strlen(line)) < 0;

		printf("%d\n", bad ? errno : 0);
		close(fd);
	}
	return 0;
}
`

// remounted are containers that outlive the servers of their namespaces.
type remounted struct {
	one, two *testutil.Container // of the namespaces one and two
	old      *testutil.Container // of a namespace that was removed, and made again
}

// serveApart starts a server for a test to end.
func serveApart(t *testing.T, dir, state string) *testutil.Child {
	cmd := exec.Command(os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), "GANTRY_TEST_SERVE="+dir, "GANTRY_TEST_STATE="+state)
	return testutil.StartReady(t, cmd)
}

func startRemounted(t *testing.T, dir string) (r *remounted) {
	program := testutil.CompileC(t, markSource, "-static")
	start := func(name string, namespaces ...string) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Ready: "ready", Namespaces: namespaces,
			Files: map[string]string{"/app/mark": program}, Args: []string{"/app/mark"},
			WritableMounts: map[string]string{"/events": filepath.Join(dir, name, rootName)}})
	}
	for name, uid := range map[string]int{"one": 0, "two": testutil.UserNSBase, "old": 0} {
		wants(t, "mkdir", os.Mkdir(filepath.Join(dir, name), 0o755), nil)
		options := filepath.Join(dir, name, "options")
		wants(t, "options", os.WriteFile(options, fmt.Appendf(nil, "owner %d\n", uid), 0), nil)
	}
	all := []string{"pid", "mount", "ipc", "uts", "network", "cgroup"}
	r = &remounted{one: start("one", all...), two: start("two", append(all, "user")...), old: start("old", all...)}
	old := filepath.Join(dir, "old")
	wants(t, "rmdir", os.Remove(old), nil)
	testutil.Poll(t, "the kernel knows that the directory is gone", func() bool {
		m := mountsOf(t, r.old)
		return len(m) == 1 && strings.HasSuffix(m[0].Root, "//deleted")
	})
	wants(t, "mkdir", os.Mkdir(old, 0o755), nil)
	return r
}

// mountsOf are the mounts of tracing namespaces that a container has.
func mountsOf(t *testing.T, c *testutil.Container) (list []procfs.Mount) {
	t.Helper()
	all, err := procfs.New("").Proc(c.PID).Mounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Type == fsType {
			list = append(list, m)
		}
	}
	return list
}

// say lets a container write a line, and wants it in the namespace.
func say(t *testing.T, c *testutil.Container, dir, name string) {
	t.Helper()
	pipe, err := os.Open(filepath.Join(dir, name, "root/trace_pipe"))
	wants(t, "open", err, nil)
	defer pipe.Close()
	c.Write(t, "this is "+name+"\n")
	if got := c.ReadLine(t); got != "0" {
		t.Fatalf("%s cannot write: errno %s", name, got)
	}
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil || !strings.Contains(line, "this is "+name) {
		t.Errorf("%q, %v", line, err)
	}
}

// TestRemount: what containers have mounted of a server that ended or was killed is of the
// next one, with the mount's options; not so of a namespace that was removed.
func TestRemount(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	server := serveApart(t, dir, state)
	if _, err := Mount(dir, &Options{State: state}); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("a second server for one directory: %v", err)
	}
	r := startRemounted(t, dir)
	before := mountsOf(t, r.one)
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		say(t, r.one, dir, "one")
		say(t, r.two, dir, "two")
		wants(t, "signal", server.Process.Signal(end), nil)
		server.End()
		r.one.Write(t, "nobody is there\n")
		if got, want := r.one.ReadLine(t), fmt.Sprint(int(syscall.ENOTCONN)); got != want {
			t.Errorf("without a server: errno %s, want %s", got, want)
		}
		server = serveApart(t, dir, state)
	}
	say(t, r.one, dir, "one")
	say(t, r.two, dir, "two")
	for _, c := range []*testutil.Container{r.one, r.two} {
		after := mountsOf(t, c)
		if len(after) != 1 || after[0].Point != "/events" || !slices.Equal(after[0].Options, before[0].Options) {
			t.Errorf("mounted is %+v, before %+v", after, before)
		}
	}
	r.old.Write(t, "this is nowhere\n")
	if got := r.old.ReadLine(t); got == "0" {
		t.Error("a container writes into a namespace that was made after its own was removed")
	}
	for _, c := range []*testutil.Container{r.one, r.two, r.old} {
		c.Delete(t)
	}
	for _, name := range []string{"one", "two", "old"} {
		testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(filepath.Join(dir, name)) == nil })
	}
	wants(t, "signal", server.Process.Signal(syscall.SIGTERM), nil)
	server.End()
	if m, err := mountAt(dir); m != nil || err != nil {
		t.Errorf("%+v stays mounted, which nobody uses: %v", m, err)
	}
}
