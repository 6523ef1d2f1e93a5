// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// shortSource takes the name of its function and burns CPU in it for so many
// milliseconds.
const shortSource = `
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void short_hot_000(unsigned long n) {
	for (unsigned long i = 0; i < n; i++)
		sink += i * i;
}

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
	long end = now() + atol(argv[1]);
	prctl(PR_SET_NAME, "short_hot_000");
	do
		short_hot_000(10000);
	while (now() < end);
	return 0;
}
`

// shortPrograms makes programs of different content that are the same but for
// the name of their function, and but for every fifth, which has none, for their
// build-id.
func shortPrograms(t *testing.T, n int) (paths []string) {
	t.Helper()
	const id = "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"
	var texts [2][]byte
	for i, flag := range []string{"0x" + id, "none"} {
		text, err := os.ReadFile(testutil.CompileC(t, shortSource, "-static", "-Wl,--build-id="+flag))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = text
	}
	dir := t.TempDir()
	for i := range n {
		text := texts[0]
		if i%5 == 4 {
			text = texts[1]
		}
		text = bytes.ReplaceAll(text, []byte("short_hot_000"), fmt.Appendf(nil, "short_hot_%03d", i))
		text = bytes.ReplaceAll(text, bytes.Repeat([]byte{0xa5}, 20), fmt.Appendf(nil, "gantry short prog%03d", i))
		path := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// runShort runs a container for each program, some at the same time, each for 50
// to 200 ms. Nothing is left of them.
func runShort(t *testing.T, programs []string) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(programs) {
					return
				}
				t.Run(strconv.Itoa(i), func(t *testing.T) {
					testutil.RunContainer(t, testutil.ContainerSpec{
						Name: "short", Overlay: true, Files: map[string]string{"/app/server": programs[i]},
						Args: []string{"/app/server", strconv.Itoa(50 + i*37%151)},
					})
				})
			}
		})
	}
	all.Wait()
}

// verdict is what was made of the samples of short containers.
type verdict struct {
	right, wrong, unnamed int
	containers            map[string]bool // with samples
	missing               map[string]bool // with samples without a name
	example               string          // of a wrong name
}

// judgeShort reads the output of script -F comm,ip,sym,dso. A sample has the name of
// another function than the one of its container, or of one of libc's, or none. The
// vdso, which reads the clock, has code that it names for nobody.
func judgeShort(script string) *verdict {
	v := &verdict{containers: make(map[string]bool), missing: make(map[string]bool)}
	short := regexp.MustCompile(`^short_hot_\d{3}$`)
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) < 3 || !short.MatchString(f[0]) {
			continue
		}
		comm, sym := f[0], f[2]
		v.containers[comm] = true
		switch {
		case sym == "[unknown]" && f[len(f)-1] != "([vdso])":
			v.unnamed++
			v.missing[comm] = true
		case short.MatchString(sym) && sym != comm:
			v.wrong++
			v.example = strings.TrimSpace(line)
		default:
			v.right++
		}
	}
	return v
}

func (v *verdict) String() string {
	return fmt.Sprintf("%d containers with samples; samples named right %d, wrong %d, without a name %d (of %d "+
		"containers) %s",
		len(v.containers), v.right, v.wrong, v.unnamed, len(v.missing), v.example)
}

// TestShortContainers: of containers that live for 50 to 200 ms, with different
// programs at one path, every sample has the right name, or what could not be kept
// is told. perf's own recording of the same time is printed beside it. There are
// 200 with GANTRY_TEST_LONG=1 in the environment.
func TestShortContainers(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc", "perf"))
	n := 20
	if os.Getenv("GANTRY_TEST_LONG") != "" {
		n = 200
	}
	programs := shortPrograms(t, n)
	dir := t.TempDir()
	ours, theirs, store := filepath.Join(dir, "ours.data"), filepath.Join(dir, "theirs.data"),
		filepath.Join(dir, "store")
	var said bytes.Buffer
	stopPerf := perfMachine(t, theirs, filepath.Join(dir, "perf-store"))
	stop := recordMachine(t, &said, "record", "-v", "-e", "cpu-clock:u", "-F", "1000", "--buildid-dir", store, "-o",
		ours, "-a")
	runShort(t, programs)
	stop()
	stopPerf()
	got := judgeShort(gantry(t, "script", "-F", "comm,ip,sym,dso", "-i", ours, "--buildid-dir", store))
	listed := 0
	if m := regexp.MustCompile(`(\d+) binar\w+ not kept`).FindStringSubmatch(said.String()); m != nil {
		listed, _ = strconv.Atoi(m[1])
	}
	t.Logf("gantry: %v; listed as not kept: %d\n%s", got, listed, said.String())
	script, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "--buildid-dir", filepath.Join(dir, "perf-store"), "script", "-F",
			"comm,ip,sym,dso", "-i", theirs)
	})
	t.Logf("perf:   %v %v", judgeShort(string(script)), err)
	if err != nil {
		t.Log(stderr)
	}
	if strings.Contains(said.String(), "records about tasks and mappings were lost") {
		listed = n
	}
	if got.wrong > 0 || len(got.missing) > listed || len(got.containers) < n/2 {
		t.Errorf("%v, of %d\n%s", got, n, said.String())
	}
}

// perfMachine has perf record the machine until stop is called.
func perfMachine(t *testing.T, file, store string) (stop func()) {
	t.Helper()
	in, end := io.Pipe()
	var stderr bytes.Buffer
	cmd := exec.Command("perf", "--buildid-dir", store, "record", "-q", "-a", "-e", "cpu-clock:u", "-F", "1000", "-o",
		file, "--", "sh", "-c", "echo begun; read x; exit 0")
	cmd.Stdin, cmd.Stderr = in, &stderr
	begun, err := cmd.StdoutPipe()
	if err := cmp.Or(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		end.Close()
		if err := cmd.Wait(); err != nil {
			t.Logf("perf record: %v\n%s", err, stderr.String())
		}
	})
	t.Cleanup(stop)
	if _, err := begun.Read(make([]byte, 16)); err != nil {
		t.Logf("perf record has not begun: %v", err)
	}
	return stop
}
