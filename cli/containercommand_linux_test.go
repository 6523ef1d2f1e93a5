// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestContainerWithCommand: where a command says how long a container is recorded, what
// runs in it already has its names all the same.
func TestContainerWithCommand(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	prog := testutil.SpinProgram(t, "inside_hot")
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Files: map[string]string{"/inside": prog}, Args: []string{"/inside"}, Ready: "ready"})
	dir := t.TempDir()
	data, store := filepath.Join(dir, "c.data"), filepath.Join(dir, "store")
	for _, selector := range []string{c.ID, "pod:any"} {
		gantry(t, "record", "-q", "-e", "cpu-clock:u", "-F", "1000", "--buildid-dir", store, "-o", data, "--container", selector, "--",
			"sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
		out := gantry(t, "report", "-g", "none", "-i", data, "--buildid-dir", store, "--sort", "container,comm,sym")
		if !strings.Contains(out, "inside_hot") || strings.Contains(out, "[host]") || strings.Contains(out, "  :") {
			t.Errorf("--container %s:\n%s", selector, out)
		}
	}
}
