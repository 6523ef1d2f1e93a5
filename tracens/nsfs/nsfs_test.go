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
func mount(t *testing.T) *FS {
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
	f, err := Mount(dir, &Options{})
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
	const many = 1000
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

// programSource is a program that uses user_events as the kernel's documents say, and
// prints what happens. Its argument is the directory of the files.
const programSource = `
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

struct user_unreg {
	uint32_t size;
	uint8_t disable_bit, reserved;
	uint16_t reserved2;
	uint64_t disable_addr;
} __attribute__((packed));

#define REG _IOWR('*', 0, struct user_reg *)
#define DEL _IOW('*', 1, char *)
#define UNREG _IOW('*', 2, struct user_unreg *)

static uint32_t enabled[4];

static void result(const char *what, long r)
{
	printf("%s: %ld %s\n", what, r < 0 ? -1 : r, r < 0 ? strerror(errno) : "ok");
	fflush(stdout);
}

static long reg(int fd, struct user_reg *r, const char *text, void *addr)
{
	memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->enable_size = 4;
	r->enable_addr = (uint64_t)addr;
	r->name_args = (uint64_t)text;
	return ioctl(fd, REG, r);
}

static long put(int fd, uint32_t index, uint32_t value)
{
	struct iovec v[] = { { &index, sizeof(index) }, { &value, sizeof(value) } };

	return writev(fd, v, 2);
}

int main(int argc, char **argv)
{
	struct user_reg r;
	struct user_unreg u;
	char path[512], line[64];
	void *read_only;
	int fd;

	snprintf(path, sizeof(path), "%s/user_events_data", argv[1]);
	fd = open(path, O_RDWR);
	if (fd < 0) {
		perror(path);
		return 1;
	}
	result("register", reg(fd, &r, "request u32 id", &enabled[0]));
	printf("index %u\n", r.write_index);
	result("register again", reg(fd, &r, "request u32 id", &enabled[1]));
	printf("index %u\n", r.write_index);
	result("register the bit again", reg(fd, &r, "request u32 id", &enabled[0]));
	result("other fields", reg(fd, &r, "request u64 id", &enabled[2]));
	result("bad field", reg(fd, &r, "bad nothing x", &enabled[2]));
	result("no text", reg(fd, &r, (char *)8, &enabled[2]));
	result("no address", reg(fd, &r, "other u32 id", (void *)16));
	result("not aligned", reg(fd, &r, "other u32 id", (char *)enabled + 1));
	read_only = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	result("read only", reg(fd, &r, "other u32 id", read_only));
	result("second", reg(fd, &r, "second __rel_loc char[] msg", &enabled[2]));
	printf("index %u\n", r.write_index);
	memset(&r, 0, sizeof(r));
	r.size = 8;
	result("short struct", ioctl(fd, REG, &r));
	result("write while disabled", put(fd, 0, 1));
	result("unknown index", put(fd, 77, 1));
	printf("ready\n");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	printf("enabled %u %u\n", enabled[0], enabled[1]);
	result("write", put(fd, 0, 42));
	result("short data", write(fd, "\0\0\0\0\1", 5));
	result("short index", write(fd, "\0", 1));
	result("delete what is used", ioctl(fd, DEL, "request"));
	result("delete what is not there", ioctl(fd, DEL, "nothing"));
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	printf("enabled %u %u\n", enabled[0], enabled[1]);
	memset(&u, 0, sizeof(u));
	u.size = sizeof(u);
	u.disable_addr = (uint64_t)&enabled[0];
	result("unregister", ioctl(fd, UNREG, &u));
	result("unregister twice", ioctl(fd, UNREG, &u));
	u.disable_addr = (uint64_t)&enabled[1];
	result("unregister the other", ioctl(fd, UNREG, &u));
	result("read", read(fd, line, sizeof(line)));
	close(fd);
	printf("end\n");
	return 0;
}
`

// until reads lines until one is last.
func until(t *testing.T, out *bufio.Reader, last string) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatalf("%v behind %q", err, b.String())
		}
		if line == last+"\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// TestUserEvents: a program that knows the kernel's files only.
func TestUserEvents(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	space := filepath.Join(f.Dir(), "shop")
	if err := os.Mkdir(space, 0o755); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(space, "root")
	p := testutil.StartReady(t, exec.Command(testutil.CompileC(t, programSource), root))
	got := p.First + until(t, p.Out, "ready")
	want := `register: 0 ok
index 0
register again: 0 ok
index 0
register the bit again: -1 Address already in use
other fields: -1 Address already in use
bad field: -1 Invalid argument
no text: -1 Bad address
no address: -1 Bad address
not aligned: -1 Invalid argument
read only: -1 Bad address
second: 0 ok
index 1
short struct: -1 Invalid argument
write while disabled: -1 Bad file descriptor
unknown index: -1 No such file or directory
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
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
	testutil.Poll(t, "nobody listens", func() bool {
		text, err := os.ReadFile(filepath.Join(root, "events/request/enable"))
		return err == nil && string(text) == "0\n"
	})
	if err := os.Remove(space); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("rmdir while events are registered: %v", err)
	}
	if _, err := p.In.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	got = until(t, p.Out, "end")
	want = `enabled 1 1
write: 8 ok
short data: -1 Invalid argument
short index: -1 Bad address
delete what is used: -1 Device or resource busy
delete what is not there: -1 No such file or directory
enabled 0 0
unregister: 0 ok
unregister twice: -1 No such file or directory
unregister the other: 0 ok
read: -1 Invalid argument
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
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
