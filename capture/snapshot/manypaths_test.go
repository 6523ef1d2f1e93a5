// SPDX-License-Identifier: Apache-2.0

//go:build linux

package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/linux/procfs"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// pathsSource maps one file by many paths, in a mount namespace of its own, and
// has a child in another root directory, with the same mappings.
const pathsSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

static void check(long bad, const char *what) { if (bad) { perror(what); exit(1); } }

static void map(const char *name) {
	static char *at = (char *)0x10000000000;
	int fd = open(name, O_RDONLY);
	check(fd < 0, name);
	for (int i = 0; i < 2; i++, at += 8 * 4096)
		check(mmap(at, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, i * 4096) != at, "mmap");
	close(fd);
}

int main(int argc, char **argv) {
	char c;

	check(unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0) || chdir(argv[1]), "unshare");
	check(mount("files", "a", 0, MS_BIND, 0) || mount("files", "b", 0, MS_BIND, 0), "mount");
	map("files/one"); // the same object of the kernel twice
	map("files/one"); // the same file, opened again
	map("a/one");
	map("files/link");
	map("b/one");
	map("b/two");
	map("a/link");
	if (fork() == 0) {
		check(chroot("a") || chdir("/"), "chroot");
		map("one");
		map("/link");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		puts("ready");
		fflush(stdout);
		for (;;)
			pause();
	}
	while (read(0, &c, 1) > 0)
		;
	return 0;
}
`

// A file has as many paths as it is mapped by: each record has its own, though
// files are told of once.
func TestOneFileByManyPaths(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("gcc"))
	dir := t.TempDir()
	for _, name := range []string{"files", "a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(filepath.Join(dir, "files", name), make([]byte, 8192), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "files/one"), filepath.Join(dir, "files/link")); err != nil {
		t.Fatal(err)
	}
	bpf := newBPF(t)
	parent := startProgram(t, testutil.CompileC(t, pathsSource, "-static"), dir).Process.Pid
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", parent))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(list)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is known from before stays right
		got := takeAll(t, bpf, Scope{PIDs: []int{parent, child}})
		got.compare(t, parent)
		got.compare(t, child)
		if n := paths(got, parent, dir); n != 6 {
			t.Errorf("process %d has mapped %d paths, want 6", parent, n)
		}
		if n := paths(got, child, "/"); n != 7 {
			t.Errorf("process %d has mapped %d paths, want 7", child, n)
		}
	}
	if _, err := (procfs.FS{}).Proc(child).Stat(); err != nil {
		t.Errorf("the child ended too early: %v", err)
	}
}

// paths is how many paths below dir a process has mapped.
func paths(f *found, pid int, dir string) int {
	seen := make(map[string]bool)
	for _, m := range f.maps[int32(pid)] {
		if strings.HasPrefix(m.Filename, dir) && m.Ino != 0 {
			seen[m.Filename] = true
		}
	}
	return len(seen)
}
