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

// comparePerf lets perf report name the recording out of the store: it finds
// those that have a build-id and their symbols in them. (perf 6.1 takes the
// addresses in the separate symbols of a program that is not relocatable for
// others.)
func comparePerf(t *testing.T, store, data string) {
	t.Helper()
	testutil.Require(t, testutil.Tool("perf"))
	out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "--buildid-dir", store, "report", "-i", data, "--stdio", "--sort", "sym")
	})
	if err != nil {
		t.Fatalf("perf report: %v\n%s", err, stderr)
	}
	for _, i := range []int{0, 1} {
		if name := fmt.Sprintf("gone_hot_%d", i); !strings.Contains(string(out), name) {
			t.Errorf("perf does not find %s in the store:\n%s", name, out)
		}
	}
}

// stripped strips a program and returns its symbols.
func stripped(t *testing.T, prog string) (debug string) {
	t.Helper()
	debug = filepath.Join(filepath.Dir(prog), "server.debug") // as the link is to say
	for _, args := range [][]string{
		{"objcopy", "--only-keep-debug", prog, debug}, {"strip", "--strip-all", prog}, {"objcopy", "--add-gnu-debuglink=" + debug, prog},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return debug
}

// TestContainersGone records containers with different programs at one path,
// some of them without a build-id, some with their symbols elsewhere in the
// container, and reports when containers and files are gone: each has its own
// function. So does an archive.
func TestContainersGone(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc", "objcopy", "strip"))
	dir := t.TempDir()
	store, data, packed := filepath.Join(dir, "store"), filepath.Join(dir, "gone.data"), filepath.Join(dir, "gone.gantry")
	hot := make(map[string]string) // function by container
	var list []*testutil.Container
	record := []string{"record", "-e", "cpu-clock:u", "-F", "500", "--duration", "1s", "--buildid-dir", store, "-o", data, "-a"}
	const byID = "/usr/lib/debug/.build-id/01/23456789abcdef.debug"
	for i, p := range []struct{ id, debug string }{
		{"sha1", ""}, {"sha1", ""}, {"none", ""}, {"none", ""},
		{"0x0123456789abcdef", byID}, {"sha1", "/app/.debug/server.debug"}, {"sha1", "/usr/lib/debug/app/server.debug"},
	} {
		name := fmt.Sprintf("gone_hot_%d", i)
		prog := testutil.CompileC(t, fmt.Sprintf(spinForever, name, i), "-static", "-Wl,--build-id="+p.id)
		files := map[string]string{"/app/server": prog}
		if p.debug != "" {
			files[p.debug] = stripped(t, prog)
		}
		c := testutil.StartContainer(t, testutil.ContainerSpec{
			Name: fmt.Sprint(i), Overlay: true, Args: []string{"/app/server"}, Ready: "ready", Files: files,
		})
		hot[c.ID], list = name, append(list, c)
		record = append(record, "--container", c.ID)
	}
	gantry(t, record...)
	for _, c := range list {
		c.Delete(t)
		if err := os.Remove(filepath.Join(c.Rootfs, "app/server")); err != nil {
			t.Fatal(err)
		}
	}
	report := []string{"report", "-g", "none", "--no-children", "--sort", "container,sym", "--buildid-dir"}
	if out := gantry(t, append(report, dir, "-i", data)...); strings.Contains(out, "gone_hot") {
		t.Fatalf("there are names without a store:\n%s", out)
	}
	out := gantry(t, append(report, store, "-i", data)...)
	rows := make(map[string]int)
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || !strings.HasSuffix(f[0], "%") {
			continue
		}
		if f[3] != hot[f[1]] && f[3] != "main" {
			t.Errorf("container %s has the function of another: %s", f[1], line)
		}
		if f[3] == hot[f[1]] {
			rows[f[1]]++
		}
	}
	if len(rows) != len(list) {
		t.Errorf("of %d containers %v are named:\n%s", len(list), rows, out)
	}
	comparePerf(t, store, data)
	gantry(t, "archive", "-i", data, "-o", packed, "--buildid-dir", store)
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	if got := gantry(t, append(report[:len(report)-1], "-i", packed)...); got != out {
		t.Errorf("the archive's report differs:\n%s\nwant:\n%s", got, out)
	}
}
