// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestHostFileReplaced: a program of the host that has no build-id is replaced at its
// path after it was recorded, also by one that gets its inode's number. The report does
// not take the other's names.
func TestHostFileReplaced(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc", "sh"))
	programs := make([]string, 2)
	for i := range programs {
		text, err := os.ReadFile(testutil.CompileC(t, strings.ReplaceAll(shortSource, "short_hot_000", fmt.Sprintf("short_hot_%03d", i)),
			"-static", "-Wl,--build-id=none"))
		if err != nil {
			t.Fatal(err)
		}
		programs[i] = filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(programs[i], text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, replace := range map[string]string{
		"not":       ":",
		"in place":  "cat %[2]s > %[1]s",
		"rm and cp": "rm %[1]s; cp %[2]s %[1]s",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program, data := filepath.Join(dir, "program"), filepath.Join(dir, "host.data")
			sh := func(format string) {
				t.Helper()
				if out, err := exec.Command("sh", "-c", fmt.Sprintf(format+"\n: %[1]s %[2]s %[3]s", program, programs[1], programs[0])).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			sh("cp %[3]s %[1]s")
			gantry(t, "record", "-q", "-e", "cpu-clock:u", "-F", "1000", "-o", data, "--", program, "200")
			sh(replace)
			out := gantry(t, "report", "-i", data, "--sort", "sym")
			// In a mount namespace of their own the tests are a container, whose files are kept.
			if strings.Contains(out, "short_hot_001") || name == "not" && !strings.Contains(out, "short_hot_000") {
				t.Errorf("names of the other program, or none of its own:\n%s", out)
			}
		})
	}
}
