// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// annotated is what gantry annotate --format json says.
type annotated struct {
	Functions []struct {
		Name, Missing string
		Samples       uint64
		Instructions  []struct {
			Addr, Samples uint64
			Source        string
			Calls         []struct {
				Function, File string
				Line           int
			}
		}
	}
}

func annotateJSON(t *testing.T, args ...string) annotated {
	t.Helper()
	var out, stderr strings.Builder
	if status := Main(strings.NewReader(""), &out, &stderr,
		append([]string{"annotate", "--format", "json"}, args...)); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	var a annotated
	if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// burner burns CPU in mix, with an inlined call, and in main.
const burner = `
static inline unsigned step(unsigned x)
{
	return x * 1103515245 + 12345;
}
__attribute__((noinline)) unsigned mix(unsigned x)
{
	for (volatile int i = 0; i < 1000; i++)
		x = step(x) ^ x >> 3;
	return x;
}
int main(void)
{
	unsigned x = 1;
	for (int i = 0; i < 60000; i++)
		x += mix(x);
	return x == 7;
}
`

// TestAnnotateAsPerf: each instruction has the samples that perf annotate gives
// it, of the same recording.
func TestAnnotateAsPerf(t *testing.T) {
	testutil.Require(t, testutil.Tool("perf"), testutil.Tool("objdump"), testutil.PerfEvents)
	prog := testutil.CompileC(t, burner, "-g")
	data := filepath.Join(t.TempDir(), "perf.data")
	if _, stderr, err := testutil.RecordPerf(t, data, func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "-e", "cpu-clock", "-c", "200000", "-o", data, prog)
	}); err != nil {
		t.Fatalf("perf record: %v\n%s", err, stderr)
	}
	a := annotateJSON(t, "-i", data, "mix")
	if len(a.Functions) != 1 || a.Functions[0].Samples == 0 {
		t.Fatalf("%+v", a)
	}
	ours, lines := make(map[uint64]uint64), make(map[string]bool)
	for _, in := range a.Functions[0].Instructions {
		if in.Samples > 0 {
			ours[in.Addr] = in.Samples
		}
		if len(in.Calls) == 2 && in.Calls[0].Function == "step" && in.Calls[0].Line == 4 {
			lines[strings.TrimSpace(in.Source)] = true
		}
	}
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "annotate", "--stdio", "-n", "-i", data, "-s", "mix")
	})
	if err != nil {
		t.Fatalf("perf annotate: %v\n%s", err, stderr)
	}
	theirs := make(map[uint64]uint64)
	for _, m := range regexp.MustCompile(`(?m)^ +([0-9]+) +: +([0-9a-f]+):`).FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		addr, _ := strconv.ParseUint(m[2], 16, 64)
		if n > 0 {
			theirs[addr] = n
		}
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("- perf, + gantry\n%s", diff)
	}
	if !lines["return x * 1103515245 + 12345;"] {
		t.Errorf("no line of the inlined call, but %v", lines)
	}
}
