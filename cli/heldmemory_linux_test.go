// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestHeldMemory: a user's process that holds its mmap_lock keeps no recording and no
// snapshot from beginning.
func TestHeldMemory(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc"))
	testutil.HoldMemory(t, 65534)
	data := filepath.Join(t.TempDir(), "held.data")
	for _, tc := range []struct {
		args   []string
		status int
	}{
		{[]string{"record", "-a", "-e", "cpu-clock", "-o", data, "--", "sh", "-c", "exit 3"}, 3},
		{[]string{"record", "-a", "--call-graph", "dwarf", "-e", "cpu-clock", "-o", data, "--", "sh", "-c", "exit 3"},
			3},
		{[]string{"record", "-e", "cpu-clock", "--container", "pod:any", "--wait", "-o", data, "--", "sh", "-c",
			"exit 3"}, 3},
		{[]string{"snapshot", "--format", "json"}, 0},
	} {
		var stdout, stderr bytes.Buffer
		ended := make(chan int, 1)
		go func() { ended <- Main(strings.NewReader(""), &stdout, &stderr, tc.args) }()
		select {
		case status := <-ended:
			if status != tc.status {
				t.Errorf("gantry %s: status %d\n%s", strings.Join(tc.args, " "), status, stderr.String())
			}
		case <-time.After(time.Minute):
			t.Fatalf("gantry %s does not end", strings.Join(tc.args, " "))
		}
	}
}
