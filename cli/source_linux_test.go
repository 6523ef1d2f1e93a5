// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestSourceOfAnother: a program in another root names a file of the host as
// its source. perf's recording does not tell of mount namespaces, and the store
// has the program: its source is still not the host's.
func TestSourceOfAnother(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf", "gcc", "unshare", "chroot"))
	dir := t.TempDir()
	secret, root, data, store := filepath.Join(dir, "secret"), filepath.Join(dir, "root"), filepath.Join(dir, "data"),
		filepath.Join(dir, "store")
	if err := os.WriteFile(secret, []byte("nobody may see this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	prog := testutil.CompileC(t, `
#include <time.h>
static volatile unsigned long sink;
int main(void) { while (clock() < CLOCKS_PER_SEC / 3) hostile(100000); }
`, "-static", "-g", "-include", hostileHeader(t, dir, secret))
	if err := os.Rename(prog, filepath.Join(root, "spin")); err != nil {
		t.Fatal(err)
	}
	if _, stderr, err := testutil.RecordPerf(t, data, func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "--buildid-mmap", "-e", "cpu-clock:u", "-o", data, "--", "unshare",
			"-m", "chroot", root, "/spin")
	}); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	gantry(t, "buildid", "add", "--buildid-dir", store, filepath.Join(root, "spin"))
	out := gantry(t, "annotate", "-i", data, "--buildid-dir", store, "hostile*")
	if !strings.Contains(out, "secret:1") || strings.Contains(out, "nobody may") {
		t.Errorf("got:\n%s", out)
	}
}

// hostileHeader is a header with a function that says it is line 1 of a file.
func hostileHeader(t *testing.T, dir, file string) string {
	t.Helper()
	path := filepath.Join(dir, "hostile.h")
	text := "static volatile unsigned long sink;\n#line 1 \"" + file +
		"\"\n__attribute__((noinline)) static void hostile(unsigned long n) { for (unsigned long i = 0; i < n; i++) " +
		"sink += i; }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
