// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nsfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// registerSource registers an event as writerSource does, in the directory of its second
// argument, and then does what its third says.
const registerSource = `
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct user_reg {
	uint32_t size;
	uint8_t enable_bit, enable_size;
	uint16_t flags;
	uint64_t enable_addr, name_args;
	uint32_t write_index;
} __attribute__((packed));

static uint32_t enabled;

int main(int argc, char **argv)
{
	struct user_reg r = { .size = sizeof(r), .enable_size = 4, .enable_addr = (uint64_t)&enabled,
		.name_args = (uint64_t)"request u32 id" };
	int fd = open(argv[1], O_RDWR);
	char line[16];

	if (!strcmp(argv[2], "held")) { /* the bit lies in a file whose server does not answer */
		int held = open(argv[3], O_RDONLY);

		r.enable_addr = (uint64_t)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, held, 0);
		puts("ready");
		fflush(stdout);
		fgets(line, sizeof(line), stdin);
	}
	printf("%d\n", ioctl(fd, _IOWR('*', 0, struct user_reg *), &r));
	fflush(stdout);
	if (!strcmp(argv[2], "exec"))
		execlp("cat", "cat", NULL);
	if (!strcmp(argv[2], "fork") && fork() == 0) {
		fgets(line, sizeof(line), stdin);
		return 0;
	}
	fgets(line, sizeof(line), stdin);
	return 0;
}
`

// startRegistered starts a program that has registered the event request.
func startRegistered(t *testing.T, space string, args ...string) *testutil.Child {
	t.Helper()
	prog := testutil.CompileC(t, registerSource)
	args = append([]string{filepath.Join(space, "root/user_events_data")}, args...)
	return testutil.StartReady(t, exec.Command(prog, args...))
}

// TestExec: the memory of a registration is another program's after exec, which must not
// be written to; its files are still open.
func TestExec(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	space := filepath.Join(f.Dir(), "exec")
	wants(t, "mkdir", os.Mkdir(space, 0o755), nil)
	p := startRegistered(t, space, "exec")
	testutil.Poll(t, "it is cat", func() bool {
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Process.Pid))
		return err == nil && string(comm) == "cat\n"
	})
	wants(t, "enable", os.WriteFile(filepath.Join(space, "root/events/request/enable"), []byte("1"), 0), nil)
	if _, err := p.In.Write([]byte("alive\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := p.Out.ReadString('\n'); err != nil || line != "alive\n" {
		t.Errorf("%q, %v", line, err)
	}
	wants(t, "its end", p.End(), nil)
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}

// TestFork: a child has the files open; the events end with the last of both.
func TestFork(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	space := filepath.Join(f.Dir(), "fork")
	wants(t, "mkdir", os.Mkdir(space, 0o755), nil)
	p := startRegistered(t, space, "fork")
	wants(t, "rmdir", os.Remove(space), syscall.EBUSY)
	wants(t, "its end", p.End(), nil)
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}

// TestKilled: a program that is killed leaves nothing behind.
func TestKilled(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	space := filepath.Join(f.Dir(), "killed")
	wants(t, "mkdir", os.Mkdir(space, 0o755), nil)
	p := startRegistered(t, space, "wait")
	wants(t, "kill", p.Process.Kill(), nil)
	if err := p.End(); err == nil {
		t.Error("it was not killed")
	}
	testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
}

// TestHeldBit: a bit in memory that nobody can read is EFAULT, and other programs and
// namespaces do not wait for it.
func TestHeldBit(t *testing.T) {
	checkLeaks(t)
	testutil.Require(t, testutil.Tool("gcc"))
	f := mount(t)
	bad, good := filepath.Join(f.Dir(), "bad"), filepath.Join(f.Dir(), "good")
	wants(t, "mkdir", os.Mkdir(bad, 0o755), nil)
	wants(t, "mkdir", os.Mkdir(good, 0o755), nil)
	at := t.TempDir()
	fuse := testutil.MountFUSE(t, 0, at, make([]byte, 4096))
	p := startRegistered(t, bad, "held", filepath.Join(at, testutil.FUSEFile))
	fuse.Silence()
	if _, err := p.In.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		one := startRegistered(t, good, "wait")
		if one.First != "0\n" {
			t.Errorf("register beside it: %q", one.First)
		}
		wants(t, "its end", one.End(), nil)
	}
	if line, err := p.Out.ReadString('\n'); err != nil || line != "-1\n" {
		t.Errorf("register: %q, %v", line, err)
	}
	fuse.Abort()
	wants(t, "its end", p.End(), nil)
	for _, space := range []string{bad, good} {
		testutil.Poll(t, "the namespace is free", func() bool { return os.Remove(space) == nil })
	}
}
