// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestTwins: programs of the host that have one build-id, at different paths, each have
// their own names: as leaves, in dumped stacks, and in script.
func TestTwins(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	data := filepath.Join(t.TempDir(), "twins.data")
	pids := make(map[string]string) // function by process
	for i := range 3 {
		fn := fmt.Sprintf("twin_hot_%d", i)
		prog := testutil.CompileC(t, fmt.Sprintf(spinForever, fn, i), "-static", "-Wl,--build-id=0xc7c7c7c7c7c7c7c7")
		process := testutil.StartReady(t, exec.Command(prog)).Cmd.Process
		t.Cleanup(func() { process.Kill() })
		pids[fmt.Sprint(process.Pid)] = fn
	}
	gantry(t, "record", "-q", "-e", "cpu-clock:u", "-F", "500", "--call-graph", "dwarf,1024", "--duration", "1s", "-o", data, "-a")
	for what, args := range map[string][]string{
		"report":        {"report", "-i", data, "-g", "none", "--no-children", "--sort", "pid,sym"},
		"with children": {"report", "-i", data, "-g", "none", "--sort", "pid,sym"},
		"script":        {"script", "-i", data, "-F", "pid,ip,sym"},
	} {
		found, pid := make(map[string]bool), ""
		for line := range strings.Lines(gantry(t, args...)) {
			for _, f := range strings.Fields(line) {
				if pids[f] != "" {
					pid = f
				}
				if !strings.HasPrefix(f, "twin_hot_") {
					continue
				}
				if found[f] = true; pids[pid] != f {
					t.Fatalf("%s: process %s runs %s: %s", what, pid, pids[pid], line)
				}
			}
			if strings.TrimSpace(line) == "" {
				pid = ""
			}
		}
		if len(found) != len(pids) {
			t.Errorf("%s: functions %v of %v", what, found, pids)
		}
	}
}
