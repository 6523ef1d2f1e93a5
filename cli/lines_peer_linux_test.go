// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

const inlinedSource = `static inline __attribute__((always_inline)) unsigned long step(unsigned long x) {
	for (int i = 0; i < 50; i++)
		x = x * 6364136223846793005ul + 1;
	return x;
}
static inline __attribute__((always_inline)) unsigned long twice(unsigned long x) {
	return step(x)
		^ step(x + 1);
}
volatile unsigned long sink;
__attribute__((noinline)) void outer(unsigned long n) {
	for (unsigned long i = 0; i < n; i++)
		sink += twice(i);
}
int main(void) {
	for (int i = 0; i < 100; i++)
		outer(20000);
	return 0;
}
`

// recordInlined records a program with inlined calls with the real perf.
func recordInlined(t *testing.T) string {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("perf", "gcc"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "inlined.c"), []byte(inlinedSource), 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := exec.Command("gcc", "-O2", "-g", "-o", "inlined", "inlined.c")
	gcc.Dir = dir
	if text, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	file := filepath.Join(dir, "perf.data")
	_, stderr, err := testutil.RecordPerf(t, file, func() *exec.Cmd {
		cmd := exec.Command("perf", "record", "-q", "-N", "-B", "--call-graph", "dwarf,4096", "-F", "499", "-e",
			"cpu-clock:u", "-o", "perf.data", "./inlined")
		cmd.Dir = dir
		return cmd
	})
	if err != nil {
		t.Fatalf("perf record: %v\n%s", err, stderr)
	}
	return file
}

// Source lines and inlined calls are those of perf.
func TestLinesAgainstPerf(t *testing.T) {
	file := recordInlined(t)
	for _, sort := range []string{"srcline,sym", "srcfile,dso", "srcline"} {
		t.Run(sort, func(t *testing.T) {
			ours := func(s shares) shares {
				out := shares{}
				for key, v := range s {
					if strings.Contains(key, "inlined.c") {
						out[key] = v
					}
				}
				return out
			}
			compareSelf(t, ours(perfShares(t, file, sort, false)), ours(gantryShares(t, file, sort, false)))
		})
	}
	for _, args := range [][]string{{"-F", "ip,sym,srcline"}, {"-F", "ip,sym,symoff"},
		{"-F", "ip,sym,srcline", "--no-inline"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) { compareFrames(t, file, args) })
	}
	t.Run("children", func(t *testing.T) {
		const sort = "dso,sym"
		want, got := perfShares(t, file, sort, true), gantryShares(t, file, sort, true)
		key := "inlined | [.] twice (inlined)"
		w, g := want[key], got["inlined | [.] twice"]
		if w.children < 50 || g != w && max(g.children-w.children, w.children-g.children) > 0.02 {
			t.Errorf("%v, perf has %v in %v", g, w, want)
		}
	})
}

// ofProgram are the frames of functions of the program, with their line if there is one.
var ofProgram = regexp.MustCompile(`(?m)^\t +[0-9a-f]+ (?:step|twice|outer|main)\b.*(?:\n  .*)?$`)

func compareFrames(t *testing.T, file string, args []string) {
	args = append([]string{"script", "-i", file}, args...)
	p := peer{t: t, dir: t.TempDir()}
	want := ofProgram.FindAllString(p.perf(args...), -1)
	var stdout, stderr bytes.Buffer
	if code := Main(nil, &stdout, &stderr, args); code != 0 {
		t.Fatalf("gantry %q: exit status %d\n%s", args, code, &stderr)
	}
	got := ofProgram.FindAllString(stdout.String(), -1)
	if len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("perf has %d frames of the program, gantry %d", len(want), len(got))
		for i := range min(len(want), len(got)) {
			if want[i] != got[i] {
				t.Fatalf("frame %d\nperf   %q\ngantry %q", i, want[i], got[i])
			}
		}
	}
}
