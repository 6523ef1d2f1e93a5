// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// jitSource copies a function into memory of its own, says so in a perf map, and
// runs it there.
const jitSource = `
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned long sink;

__attribute__((noinline, aligned(64))) void spin(volatile unsigned long *s, unsigned long n) {
	for (unsigned long i = 0; i < n; i++)
		*s += i;
}

int main(void) {
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char path[64], buf[64];
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, (void *)spin, 256);
	__builtin___clear_cache(code, code + 256);
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(path, "w");
	if (!map || fprintf(map, "%lx 100 LazyCompile:*generated /app/x.js:3\n", (unsigned long)code) < 0 || fclose(map))
		return 1;
	puts("ready");
	fflush(stdout);
	for (;;) {
		((void (*)(volatile unsigned long *, unsigned long))code)(&sink, 10 * 1000 * 1000);
		if (poll(&in, 1, 0) == 1 && read(0, buf, sizeof buf) <= 0)
			return 0;
	}
}
`

// TestGeneratedCodeInContainer: what a container's process generated has the
// names of its perf map, which is in the container's /tmp under the number that
// the process has there.
func TestGeneratedCodeInContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	program := testutil.CompileC(t, jitSource, "-static")
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "jit", Files: map[string]string{"/app/jit": program}, Args: []string{"/app/jit"}, Ready: "ready",
	})
	file := filepath.Join(t.TempDir(), "perf.data")
	gantry(t, "record", "-q", "-e", "cpu-clock", "-F", "499", "--container", c.ID, "--duration", "1s", "-o", file)
	out := gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "dso,sym", "--symbol", "LazyCompile*")
	if !strings.Contains(out, "[JIT] tid ") || !strings.Contains(out, "[.] LazyCompile:*generated /app/x.js:3") {
		t.Errorf("%s\n%s", out, gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "dso,sym"))
	}
}
