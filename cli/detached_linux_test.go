// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// detachedSource starts its argument from a mount of that file alone, which is
// in no tree of mounts.
const detachedSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
int main(int argc, char **argv, char **env) {
	int fd = syscall(SYS_open_tree, AT_FDCWD, argv[1], 1 /* OPEN_TREE_CLONE */ | O_CLOEXEC);
	if (fd < 0) { perror("open_tree"); return 1; }
	syscall(SYS_execveat, fd, "", argv + 1, env, AT_EMPTY_PATH);
	perror("execveat");
	return 1;
}
`

// TestDetachedMount names the functions of a program that was started from a
// detached mount, as runc starts itself: its path is "/" for the kernel. Both
// programs of the test have it.
func TestDetachedMount(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	launcher := testutil.CompileC(t, detachedSource)
	dir := t.TempDir()
	data, store := filepath.Join(dir, "perf.data"), filepath.Join(dir, "store")
	record := []string{"record", "-e", "cpu-clock:u", "--buildid-dir", store, "-o", data, "-a"}
	before := testutil.StartReady(t, exec.Command(launcher, testutil.SpinProgram(t, "detached_before")))
	gantry(t, append(record, "--", launcher, testutil.CompileC(t, detachedBriefly, "-static"))...)
	before.End()
	out := gantry(t, "report", "-g", "none", "--no-children", "--sort", "dso,sym", "-i", data, "--buildid-dir", store)
	for _, name := range []string{"detached_before", "detached_briefly"} {
		if !strings.Contains(out, name) {
			t.Errorf("no %s in\n%s", name, out)
		}
	}
}

const detachedBriefly = `
#include <time.h>
static volatile unsigned long sink;
__attribute__((noinline)) void detached_briefly(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; }
int main(void) { while (clock() < CLOCKS_PER_SEC) detached_briefly(100000); }
`
