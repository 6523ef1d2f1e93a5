// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// holdSource waits for a byte and then for the file of its argument, with its
// mmap_lock held: the kernel reads a page ahead, and a mapping that goes past the
// page cache waits for that page.
const holdSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
	int cached = open(argv[1], O_RDONLY), direct = open(argv[1], O_RDONLY | O_SYNC);
	char c;
	if (cached < 0 || direct < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	read(0, &c, 1);
	readahead(cached, 0, 4096);
	mmap(0, 4096, PROT_READ, MAP_PRIVATE, direct, 0);
	return 0;
}
`

// HoldMemory starts a process that nobody can read the mappings of: it holds
// its mmap_lock, waiting for a file system of its own that does not answer. The
// uid is whose process it is. It is gone when the test ends.
func HoldMemory(t testing.TB, uid uint32) (pid int) {
	t.Helper()
	program := CompileC(t, holdSource, "-static")
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	served := MountFUSE(t, 0, dir, make([]byte, 4096))
	// By way of a shell: a Go program stands still until what it starts is executed.
	cmd := exec.Command("sh", "-c", `exec "$0" "$1"`, program, filepath.Join(dir, FUSEFile))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	p := StartReady(t, cmd)
	t.Cleanup(func() {
		served.Abort()
		p.Cmd.Process.Kill()
	})
	served.Silence()
	if _, err := p.In.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	Poll(t, "a process that waits", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
		return err == nil && strings.Contains(string(text), ") D ")
	})
	return p.Cmd.Process.Pid
}
