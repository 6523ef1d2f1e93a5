// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// spinForever burns CPU in a function of the given name. The number makes its
// code another one, and with that its build-id: names do not.
const spinForever = `
#include <stdio.h>
static volatile unsigned long sink;
__attribute__((noinline)) void %[1]s(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * i + %[2]d; }
int main(void) { puts("ready"); fflush(stdout); for (;;) %[1]s(1000000); }
`

// stripped strips a program and returns its symbols.
func stripped(t *testing.T, prog string) (debug string) {
	t.Helper()
	debug = filepath.Join(filepath.Dir(prog), "server.debug") // as the link is to say
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", prog, debug}, {"strip", "--strip-all", prog},
		{"objcopy", "--add-gnu-debuglink=" + debug, prog},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return debug
}

// goneProgram is how a program is linked, and where its symbols are if they are
// not in it.
type goneProgram struct{ id, debug string }

// gone is a recording of containers of which nothing is left.
type gone struct {
	data, store, empty string
	hot                map[string]string // function by container
	// theirs is perf's own recording of the same time, with its own store.
	theirs, theirStore string
}

// logPerf prints what perf makes of its own recording.
func (g *gone) logPerf(t *testing.T) {
	t.Helper()
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "--buildid-dir", g.theirStore, "report", "-i", g.theirs, "--stdio", "--sort",
			"dso,sym", "--comm", "server")
	})
	t.Logf("perf's own recording of the same: %v %s\n%s", err, stderr, firstRows(string(out), 2*len(g.hot)))
}

// recordGone records containers with different programs at one path, and
// removes both.
func recordGone(t *testing.T, programs ...goneProgram) *gone {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2,
		testutil.Tool("runc", "gcc", "objcopy", "strip", "perf"))
	dir := t.TempDir()
	g := &gone{filepath.Join(dir, "gone.data"), filepath.Join(dir, "store"), dir, make(map[string]string),
		filepath.Join(dir, "theirs.data"), filepath.Join(dir, "theirs")}
	var list []*testutil.Container
	record := []string{"record", "-e", "cpu-clock:u", "-F", "1000", "--duration", "2s", "--buildid-dir", g.store, "-o",
		g.data, "-a"}
	for i, p := range programs {
		name := fmt.Sprintf("gone_hot_%d", i)
		prog := testutil.CompileC(t, fmt.Sprintf(spinForever, name, i), "-static", "-Wl,--build-id="+p.id)
		files := map[string]string{"/app/server": prog}
		if p.debug != "" {
			files[p.debug] = stripped(t, prog)
		}
		c := testutil.StartContainer(t, testutil.ContainerSpec{
			Name: fmt.Sprint(i), Overlay: true, Args: []string{"/app/server"}, Ready: "ready", Files: files,
		})
		g.hot[c.ID], list = name, append(list, c)
		record = append(record, "--container", c.ID)
	}
	stop := perfMachine(t, g.theirs, g.theirStore)
	gantry(t, record...)
	stop()
	for _, c := range list {
		c.Delete(t)
		if err := os.Remove(filepath.Join(c.Rootfs, "app/server")); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestContainersGone reports when containers and files are gone: each has its
// own function, whether its program has a build-id, has none, has that of
// another, or has its symbols elsewhere in the container. So does an archive.
func TestContainersGone(t *testing.T) {
	g := recordGone(t, goneProgram{"sha1", ""}, goneProgram{"sha1", ""}, goneProgram{"none", ""},
		goneProgram{"none", ""},
		goneProgram{"0xfeedfeedfeedfeed", ""}, goneProgram{"0xfeedfeedfeedfeed", ""},
		goneProgram{"0x0123456789abcdef", "/usr/lib/debug/.build-id/01/23456789abcdef.debug"},
		goneProgram{"sha1", "/app/.debug/server.debug"}, goneProgram{"sha1", "/usr/lib/debug/app/server.debug"})
	report := []string{"report", "-g", "none", "--no-children", "--sort", "container,sym", "-i", g.data,
		"--buildid-dir"}
	if out := gantry(t, append(report, g.empty)...); strings.Contains(out, "gone_hot") {
		t.Fatalf("there are names without a store:\n%s", out)
	}
	out := gantry(t, append(report, g.store)...)
	rows := make(map[string]int)
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.HasSuffix(f[0], "%") {
			continue
		}
		if f[3] != g.hot[f[1]] && f[3] != "main" {
			t.Errorf("container %s has the function of another: %s", f[1], line)
		}
		if f[3] == g.hot[f[1]] {
			rows[f[1]]++
		}
	}
	if len(rows) != len(g.hot) {
		t.Errorf("of %d containers %v are named:\n%s", len(g.hot), rows, out)
	}
	t.Logf("gantry: %d of %d containers have their own function", len(rows), len(g.hot))
	g.logPerf(t)
	packed := filepath.Join(g.empty, "gone.gantry")
	gantry(t, "archive", "-i", g.data, "-o", packed, "--buildid-dir", g.store)
	if err := os.RemoveAll(g.store); err != nil {
		t.Fatal(err)
	}
	if got := gantry(t, "report", "-g", "none", "--no-children", "--sort", "container,sym", "-i", packed); got != out {
		t.Errorf("the archive's report differs:\n%s\nwant:\n%s", got, out)
	}
}

// TestPerfReadsGone lets perf report name the containers out of the store, if it is
// told to believe what containers say. By default it is not.
func TestPerfReadsGone(t *testing.T) {
	g := recordGone(t, goneProgram{"sha1", ""}, goneProgram{"sha1", ""})
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "--buildid-dir", filepath.Join(g.store, "containers"), "report", "-i", g.data, "--stdio",
			"--sort", "sym")
	})
	if err != nil {
		t.Fatalf("perf report: %v\n%s", err, stderr)
	}
	for _, name := range g.hot {
		if !strings.Contains(string(out), name) {
			t.Errorf("perf does not find %s in the store:\n%s", name, out)
		}
	}
	t.Logf("gantry's recording, perf report with gantry's store:\n%s", firstRows(string(out), 2*len(g.hot)))
	g.logPerf(t)
}
