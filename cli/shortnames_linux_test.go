// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// burnSource calls itself as its second argument says, and burns CPU for so many
// milliseconds of it.
const burnSource = `
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

int main(int argc, char **argv) {
	static volatile unsigned long sink;
	struct timespec t;
	prctl(PR_SET_NAME, argv[2]);
	do {
		for (int i = 0; i < 10000; i++)
			sink += i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < atol(argv[1]));
	return 0;
}
`

// TestShortNames: containers that follow each other, each for 30 ms, with the
// namespaces' numbers, and every second time the cgroup's path, of the one before.
// Each is a row of its own with the runtime's name, which nobody could be asked
// for later. There are ten rounds with GANTRY_TEST_LONG=1 in the environment.
func TestShortNames(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	rounds := 2
	if os.Getenv("GANTRY_TEST_LONG") != "" {
		rounds = 10
	}
	const containers = 20
	burn := testutil.CompileC(t, burnSource, "-static")
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "short.data")
			var said bytes.Buffer
			stop := recordMachine(t, &said, "record", "-e", "cpu-clock:u", "-F", "2000", "-o", data, "-a")
			name, ids := make(map[string]string), make(map[string]bool) // by comm; all of them
			for i := range containers {
				comm := fmt.Sprintf("short%d", i)
				t.Run(comm, func(t *testing.T) {
					name[comm] = testutil.RunContainer(t, testutil.ContainerSpec{
						Name: comm, SameCgroup: round%2 == 1, Files: map[string]string{"/burn": burn},
						Args: []string{"/burn", "30", comm},
					})
					ids[name[comm]] = true
				})
			}
			stop()
			right, nameless := 0, 0
			rows := make(map[string]bool)
			for line := range strings.Lines(gantry(t, "script", "-F", "comm,container", "-i", data)) {
				f := strings.Fields(line)
				if len(f) < 2 || name[f[0]] == "" {
					continue
				}
				got := strings.TrimPrefix(f[1], "container=")
				rows[got] = true
				switch {
				case got == name[f[0]]:
					right++
				case ids[got]:
					t.Errorf("a sample of %s is %s's", name[f[0]], got)
				default:
					nameless++
				}
			}
			if len(rows) != containers || 20*nameless > right+nameless || right == 0 {
				t.Errorf("%d rows, %d samples with the runtime's name, %d with another one\n%s", len(rows), right,
					nameless, said.String())
			}
		})
	}
}

// TestShortUnnamed: what is in namespaces of its own, without a runtime or a cgroup, is a
// row for each life of the namespaces, though their numbers come again.
func TestShortUnnamed(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.Tool("unshare", "gcc"))
	const lives = 8
	burn := testutil.CompileC(t, burnSource, "-static")
	data := filepath.Join(t.TempDir(), "unnamed.data")
	var said bytes.Buffer
	stop := recordMachine(t, &said, "record", "-e", "cpu-clock:u", "-F", "2000", "-o", data, "-a")
	for i := range lives {
		cmd := exec.Command("unshare", "--pid", "--mount", "--fork", burn, "30", fmt.Sprintf("short%d", i))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	stop()
	rowOf, commOf := make(map[string]string), make(map[string]string)
	for line := range strings.Lines(gantry(t, "script", "-F", "comm,container", "-i", data)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[0], "short") {
			continue
		}
		if row := rowOf[f[0]]; row != "" && row != f[1] || commOf[f[1]] != "" && commOf[f[1]] != f[0] {
			t.Fatalf("%s is in %s and %s, which has %s", f[0], row, f[1], commOf[f[1]])
		}
		rowOf[f[0]], commOf[f[1]] = f[1], f[0]
	}
	if len(rowOf) != lives {
		t.Errorf("%d rows: %v\n%s", len(rowOf), rowOf, said.String())
	}
	// A row is chosen by its text, and by it alone.
	for comm, row := range rowOf {
		text := strings.TrimPrefix(row, "container=")
		if !strings.Contains(text, "#") {
			text = strings.Replace(text, ",", "#1,", 1)
		}
		out := gantry(t, "report", "-i", data, "--sort", "comm", "--container", text)
		for other := range rowOf {
			if strings.Contains(out, other+"\n") != (other == comm) {
				t.Errorf("--container %s of %s:\n%s", text, comm, out)
			}
		}
	}
}
