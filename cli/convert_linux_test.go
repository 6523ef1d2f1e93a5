// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestConvertedForPerf converts a recording of containers that are gone, with
// different programs at one path. perf, which has no store, names every sample of
// them as gantry names those of the recording: by the paths in it.
func TestConvertedForPerf(t *testing.T) {
	testutil.Require(t, testutil.Tool("perf"))
	g := recordGone(t, goneProgram{"sha1", ""}, goneProgram{"sha1", ""}, goneProgram{"none", ""},
		goneProgram{"none", ""},
		goneProgram{"0xfeedfeedfeedfeed", ""}, goneProgram{"0xfeedfeedfeedfeed", ""})
	out := filepath.Join(g.empty, "for perf.data")
	gantry(t, "convert", "--compat", "-i", g.data, "-o", out, "--buildid-dir", g.store)
	fields := []string{"script", "-F", "pid,time,ip,sym", "--ns"}
	want := gantry(t, append(slices.Clone(fields), "-i", g.data, "--buildid-dir", g.store)...)
	for _, name := range g.hot {
		if !strings.Contains(want, name) {
			t.Fatalf("nothing of %s was recorded", name)
		}
	}
	if err := os.RemoveAll(g.store); err != nil {
		t.Fatal(err)
	}
	text, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		cmd := exec.Command("perf", append(slices.Clone(fields), "-i", out)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		return cmd
	})
	if err != nil {
		t.Fatalf("perf script: %v\n%s", err, stderr)
	}
	got, wanted := samplesOf(string(text)), samplesOf(want)
	if len(got) != len(wanted) {
		t.Fatalf("perf has %d samples, the recording %d", len(got), len(wanted))
	}
	for i := range got {
		// Of other containers that start meanwhile there may be a stripped runc,
		// whose functions perf does not know.
		if got[i] != wanted[i] && !strings.HasSuffix(got[i], "[unknown]") || got[i] != wanted[i] &&
			strings.Contains(wanted[i], "gone_hot") {
			t.Fatalf("sample %d: perf has %q, want %q", i, got[i], wanted[i])
		}
	}
}

// samplesOf are the lines of samples, with single blanks.
func samplesOf(text string) (list []string) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			list = append(list, strings.Join(f, " "))
		}
	}
	return list
}
