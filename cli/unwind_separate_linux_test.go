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

// TestUnwindSeparate unwinds a program without .eh_frame and without frame
// pointers, whose CFI is in its debug file.
func TestUnwindSeparate(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("gcc", "objcopy", "strip"),
		testutil.Arch("amd64"))
	dir := t.TempDir()
	prog := compileAs(t, filepath.Join(dir, "prog"), "gcc", `
#define NOINLINE __attribute__((noinline))
static volatile unsigned long sink;
NOINLINE unsigned long spin(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i; return sink; }
NOINLINE unsigned long outer(unsigned long n) { volatile char room[100]; room[n % 100] = 1; return spin(n) + room[3]; }
NOINLINE unsigned long outermost(unsigned long n) { return outer(n) + sink; }
int main(void) { for (int i = 0; i < 8000; i++) outermost(20000); return 0; }
`, []string{"-g", "-O1", "-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"})
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", prog, prog + ".debug"}, {"strip", "--strip-all", prog},
		{"objcopy", "--add-gnu-debuglink=" + prog + ".debug", prog},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	data, store := filepath.Join(dir, "data"), t.TempDir()
	gantry(t, "record", "-q", "-e", "cpu-clock:u", "-F", "1999", "--call-graph", "dwarf", "--buildid-dir", store, "-o",
		data, prog)
	whole := func(store string) (n, samples int) {
		for _, stack := range stackBlocks(gantry(t, "script", "-i", data, "-F", "ip,sym", "--no-inline",
			"--buildid-dir", store)) {
			text := strings.Join(stack, "\n")
			if !strings.Contains(text, " spin") {
				continue
			}
			samples++
			names := []string{}
			for _, frame := range stack {
				names = append(names, parseFrame(frame).sym)
			}
			if i := slices.Index(names, "spin"); i >= 0 &&
				slices.Equal(names[i:min(i+4, len(names))], []string{"spin", "outer", "outermost", "main"}) {
				n++
			}
		}
		return n, samples
	}
	if n, samples := whole(store); samples < 20 || n*100 < samples*99 {
		t.Errorf("%d of %d stacks are whole", n, samples)
	}
	if err := os.Remove(prog + ".debug"); err != nil {
		t.Fatal(err)
	}
	if n, _ := whole(t.TempDir()); n > 0 {
		t.Errorf("%d stacks are whole without the debug file: nothing was tested", n)
	}
}
