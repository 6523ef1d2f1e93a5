// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// warm has the library make what it keeps for ever.
var warm = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "gantry-test-warm")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	f, err := Mount(dir, &Options{})
	if err != nil {
		return err
	}
	space := filepath.Join(dir, "warm")
	err = os.Mkdir(space, 0o755)
	_, readErr := os.ReadFile(filepath.Join(space, "options"))
	err = errors.Join(err, readErr, f.Unmount())
	f.Wait()
	return err
})

// checkLeaks is testutil.CheckLeaks for tests of mounts.
func checkLeaks(t *testing.T) {
	t.Helper()
	testutil.Require(t, testutil.Root)
	if err := warm(); err != nil {
		t.Fatal(err)
	}
	testutil.CheckLeaks(t)
}

// mount mounts the file system for a test.
func mount(t *testing.T) *FS { return mountWith(t, &Options{}) }

func mountWith(t *testing.T, o *Options) *FS {
	t.Helper()
	testutil.Require(t, testutil.Root)
	// Not t.TempDir: containers and other users must get there.
	dir, err := os.MkdirTemp("", "gantry-test-ns")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := Mount(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Error(err)
		}
		f.Wait()
	})
	return f
}

func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestTree(t *testing.T) {
	checkLeaks(t)
	f := mount(t)
	at := func(path ...string) string { return filepath.Join(append([]string{f.Dir()}, path...)...) }
	wants(t, "mkdir", os.Mkdir(at("one"), 0o755), nil)
	wants(t, "mkdir again", os.Mkdir(at("one"), 0o755), syscall.EEXIST)
	wants(t, "mkdir a bad name", os.Mkdir(at("1 2"), 0o755), syscall.EINVAL)
	wants(t, "rmdir what is not there", os.Remove(at("none")), syscall.ENOENT)
	wants(t, "a file beside", os.WriteFile(at("file"), nil, 0o600), syscall.EROFS)
	wants(t, "remove the options", os.Remove(at("one", "options")), syscall.EPERM)
	wants(t, "remove root", os.Remove(at("one", "root")), syscall.EPERM)
	text, err := os.ReadFile(at("one", "options"))
	wants(t, "read options", err, nil)
	for _, line := range []string{"owner 0\n", "mode 0700\n", "user_events.max-events 1000\n"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("no %q in the options:\n%s", line, text)
		}
	}
	write := func(text string) error { return os.WriteFile(at("one", "options"), []byte(text), 0) }
	wants(t, "options", write("owner 1000\ngroup 1001\nmode 0750\nuser_events.max-events 5\n"), nil)
	wants(t, "an unknown option", write("colour red\n"), syscall.EINVAL)
	wants(t, "a bad value", write("mode 9999\n"), syscall.EINVAL)
	fi, err := os.Stat(at("one", "root"))
	wants(t, "stat", err, nil)
	st := fi.Sys().(*syscall.Stat_t)
	if st.Uid != 1000 || st.Gid != 1001 || fi.Mode().Perm() != 0o750 {
		t.Errorf("root is %d:%d %v", st.Uid, st.Gid, fi.Mode())
	}
	wants(t, "chmod", os.Chmod(at("one", "root"), 0o777), syscall.EPERM)
	open, err := os.Open(at("one", "root", "user_events_data"))
	wants(t, "open", err, nil)
	wants(t, "rmdir while a file is open", os.Remove(at("one")), syscall.EBUSY)
	open.Close()
	// The kernel tells of the last close a moment later.
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(at("one")) == nil })
	wants(t, "stat what is gone", func() error { _, err := os.Stat(at("one")); return err }(), syscall.ENOENT)
	wants(t, "mkdir anew", os.Mkdir(at("one"), 0o755), nil)
	wants(t, "rmdir", os.Remove(at("one")), nil)
}

func TestManyNamespaces(t *testing.T) {
	f := mount(t)
	const many = 10000
	for i := range many {
		if err := os.Mkdir(filepath.Join(f.Dir(), fmt.Sprintf("ns%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadDir(f.Dir())
	if err != nil || len(list) != many {
		t.Errorf("%d namespaces: %v", len(list), err)
	}
	for i := range many {
		if err := os.Remove(filepath.Join(f.Dir(), fmt.Sprintf("ns%d", i))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUserEvents: a program sees of a namespace what it sees of the kernel's user_events,
// whose words tools/user-events-oracle keeps.
func TestUserEvents(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	source, err := os.ReadFile("testdata/user_events.c")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/user_events.golden")
	if err != nil {
		t.Fatal(err)
	}
	f := mount(t)
	space := filepath.Join(f.Dir(), "shop")
	if err := os.Mkdir(space, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(space, "root")
	program := testutil.CompileC(t, string(source), "-O1", "-pthread")
	got, err := exec.Command(program, root, filepath.Join(root, "events")).Output()
	if err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimLeft(string(got), "\n"), "\n")
	if diff := cmp.Diff(strings.Split(string(want), "\n"), lines); diff != "" {
		t.Errorf("the kernel's (-) and ours (+):\n%s", diff)
	}
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}

// programSource registers an event and writes it when it is told to.
const programSource = `
#include <stdint.h>
#include <stdio.h>
#include "userevents.h"

static struct user_events events;
static struct user_event request, second;

int main(int argc, char **argv)
{
	struct { uint32_t id; } data = { 42 };

	if (user_events_open(&events, argv[1]) || user_event_register(&events, &request, "request u32 id") ||
	    user_event_register(&events, &second, "second")) {
		perror("register");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	if (getchar() != 'g')
		return 1;
	return user_event_write(&request, &data, sizeof(data)) != 0;
}
`

// TestTrace: what a user reads of an event.
func TestTrace(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	space := filepath.Join(f.Dir(), "shop")
	if err := os.Mkdir(space, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(space, "root")
	header, err := filepath.Abs("../userevents")
	if err != nil {
		t.Fatal(err)
	}
	p := testutil.StartReady(t, exec.Command(testutil.CompileC(t, programSource, "-I"+header), root))
	for name, want := range map[string]string{
		"events/request/enable": "0\n", "user_events_status": "request\nsecond\n\nActive: 2\nBusy: 0\n",
		"events/second/id": "3\n", // 1 is the marker's
	} {
		if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", name, text, err, want)
		}
	}
	format, err := os.ReadFile(filepath.Join(root, "events/request/format"))
	if err != nil || !bytes.Contains(format, []byte("\tfield:u32 id;\toffset:8;\tsize:4;\tsigned:0;\n")) {
		t.Errorf("%v\n%s", err, format)
	}
	pipe, err := os.Open(filepath.Join(root, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.In.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(pipe).ReadString('\n')
	if err != nil || !strings.Contains(line, ": request: id=42") ||
		!strings.Contains(line, fmt.Sprint("-", p.Process.Pid)) {
		t.Errorf("trace_pipe: %q, %v", line, err)
	}
	pipe.Close()
	if err := p.End(); err != nil {
		t.Error(err)
	}
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}

// writerSource registers the event of its second argument, and writes it whenever it is
// enabled, until its input ends.
const writerSource = `
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

static volatile uint32_t enabled;

int main(int argc, char **argv)
{
	struct user_reg r = { .size = sizeof(r), .enable_bit = 31, .enable_size = 4,
		.enable_addr = (uint64_t)&enabled, .name_args = (uint64_t)argv[1] };
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char data[64] = "";
	int fd = open("/events/user_events_data", O_RDWR);

	if (fd < 0 || ioctl(fd, _IOWR('*', 0, struct user_reg *), &r)) {
		perror("register");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	memcpy(data, &r.write_index, 4);
	memset(data + 4, 'A', 16);
	while (poll(&in, 1, 5) == 0)
		if (enabled >> 31)
			write(fd, data, 4 + 16);
	return 0;
}
`

// TestIsolation: two containers with one event name and other fields; each namespace has
// its own container's, and enabling one does not enable the other.
func TestIsolation(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	f := mount(t)
	writer := testutil.CompileC(t, writerSource, "-static")
	for _, ns := range []struct{ name, uid string }{{"one", "0"}, {"two", fmt.Sprint(testutil.UserNSBase)}} {
		dir := filepath.Join(f.Dir(), ns.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "options"), []byte("owner "+ns.uid+"\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	start := func(name, event string, namespaces ...string) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Files: map[string]string{"/app/writer": writer},
			Args: []string{"/app/writer", event}, Ready: "ready", Namespaces: namespaces,
			WritableMounts: map[string]string{"/events": filepath.Join(f.Dir(), name, "root")}})
	}
	one := start("one", "same u32 n; char[8] text", "pid", "mount", "ipc", "uts", "network", "cgroup")
	two := start("two", "same u64 big", "user", "pid", "mount", "ipc", "uts", "network", "cgroup")
	for name, want := range map[string]string{
		"one": `: same: n=1094795585 text="AAAAAAAA"`, "two": ": same: big=4702111234474983745",
	} {
		pipe, err := os.Open(filepath.Join(f.Dir(), name, "root/trace_pipe"))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(pipe)
		for range 3 {
			line, err := lines.ReadString('\n')
			if err != nil || !strings.Contains(line, want) || !strings.Contains(line, "writer-") {
				t.Errorf("%s: %q, %v, want %q", name, line, err, want)
			}
		}
		other := map[string]string{"one": "two", "two": "one"}[name]
		text, err := os.ReadFile(filepath.Join(f.Dir(), other, "root/events/same/enable"))
		if err != nil || string(text) != "0\n" {
			t.Errorf("while %s is listened to, %s is enabled: %q, %v", name, other, text, err)
		}
		pipe.Close()
	}
	// The container's end is the end of its registrations.
	one.Delete(t)
	two.Delete(t)
	for _, name := range []string{"one", "two"} {
		testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(filepath.Join(f.Dir(), name)) == nil })
	}
}

// TestMarker: lines of text, with and without a listener.
func TestMarker(t *testing.T) {
	checkLeaks(t)
	f := mount(t)
	space := filepath.Join(f.Dir(), "texts")
	wants(t, "mkdir", os.Mkdir(space, 0o755), nil)
	marker := filepath.Join(space, "root/marker")
	wants(t, "write while nobody listens", os.WriteFile(marker, []byte("early\n"), 0), nil)
	pipe, err := os.Open(filepath.Join(space, "root/trace_pipe"))
	wants(t, "open", err, nil)
	wants(t, "write", os.WriteFile(marker, []byte("one\ntwo\x1b[31m\nwithout an end"), 0), nil)
	lines := bufio.NewReader(pipe)
	for _, want := range []string{`: marker:print: text="one"`, `text="two\x1b[31m"`, `text="without an end"`} {
		line, err := lines.ReadString('\n')
		if err != nil || !strings.HasSuffix(line, want+"\n") {
			t.Errorf("%q, %v, want %s", line, err, want)
		}
	}
	wants(t, "read the marker", func() error { _, err := os.ReadFile(marker); return err }(), syscall.EOPNOTSUPP)
	pipe.Close()
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}
