// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestReplacedPrograms: programs that follow each other at one path of an overlay, 60 ms
// each, as a build or a test does it. No sample has the name of another one's function,
// and most have their own.
func TestReplacedPrograms(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	const programs = 8
	paths := shortPrograms(t, programs)
	for name, replace := range map[string]string{
		"rm and cp": "rm -f /app/server; cp /new/%d /app/server",
		"cp and mv": "cp /new/%d /app/next; mv /app/next /app/server",
		"in place":  "cat /new/%d >/app/server; chmod 755 /app/server",
	} {
		t.Run(name, func(t *testing.T) {
			var script strings.Builder
			files := map[string]string{"/app/server": paths[0]}
			for i, path := range paths {
				files[fmt.Sprintf("/new/%d", i)] = path
				fmt.Fprintf(&script, replace+"; /app/server 60\n", i)
			}
			dir := t.TempDir()
			data, store := filepath.Join(dir, "replaced.data"), filepath.Join(dir, "store")
			var said bytes.Buffer
			stop := recordMachine(t, &said, "record", "-e", "cpu-clock:u", "-F", "2000", "--buildid-dir", store, "-o", data, "-a")
			testutil.RunContainer(t, testutil.ContainerSpec{
				Name: "replaced", Overlay: true, Files: files, Args: []string{"/bin/sh", "-c", script.String()},
			})
			stop()
			v := judgeShort(gantry(t, "script", "-F", "comm,ip,sym,dso", "-i", data, "--buildid-dir", store))
			t.Logf("%v", v)
			if v.wrong > 0 || len(v.containers) != programs || v.right < 4*v.unnamed {
				t.Errorf("%v, of %d programs\n%s", v, programs, said.String())
			}
		})
	}
}
