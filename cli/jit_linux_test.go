// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// jitSource copies a function into memory of its own, says so in a perf map or a
// jitdump file, and runs it there; a little later it does so with another one.
// With "twice" the memory is a memfd that it has mapped twice, as .NET has.
// With a number it ends after so many milliseconds of CPU time; with "one" there
// is no other function.
const jitSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static int out, dump;
static long away; // from where code is written to where it runs

__attribute__((noinline, aligned(64))) void spin(volatile unsigned long *s, unsigned long n) {
	for (unsigned long i = 0; i < n; i++)
		*s += i;
}

static void put(const void *b, size_t n) {
	if (write(out, b, n) != (ssize_t)n)
		exit(3);
}

static void begin(void) {
	char path[64];
	snprintf(path, sizeof path, dump ? "/tmp/jit-%d.dump" : "/tmp/perf-%d.map", getpid());
	if ((out = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600)) < 0)
		exit(2);
	if (!dump)
		return;
	uint32_t head[6] = { 0x4A695444, 1, 40, 62, 0, getpid() };
	uint64_t rest[2] = { 1, 0 };
	put(head, sizeof head);
	put(rest, sizeof rest);
	if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, out, 0) == MAP_FAILED)
		exit(4);
}

static void *generate(char *code, const char *name) {
	char line[128];
	memcpy(code, (void *)spin, 256);
	__builtin___clear_cache(code, code + 256);
	if (!dump) {
		put(line, snprintf(line, sizeof line, "%lx 100 %s\n", (unsigned long)code + away, name));
		return code + away;
	}
	uint32_t prefix[2] = { 0, 56 + strlen(name) + 1 + 256 };
	uint64_t now = 1, where[4] = { (uintptr_t)code, (uintptr_t)code, 256, 1 };
	uint32_t ids[2] = { getpid(), getpid() };
	put(prefix, sizeof prefix);
	put(&now, sizeof now);
	put(ids, sizeof ids);
	put(where, sizeof where);
	put(name, strlen(name) + 1);
	put(code, 256);
	return code;
}

static char *map_twice(void) {
	int fd = memfd_create("doublemapper", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, 4096))
		exit(5);
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	char *runs = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	if (code == MAP_FAILED || runs == MAP_FAILED)
		exit(6);
	away = runs - code;
	return code;
}

static long spent(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
	struct pollfd in = { .fd = 0, .events = POLLIN };
	char buf[64];
	dump = !strcmp(argv[1], "dump");
	long most = argc > 2 ? atol(argv[2]) : 0;
	int late = argc > 2 && !strcmp(argv[2], "one") ? 2 : 0;
	char *code = !strcmp(argv[1], "twice") ? map_twice() :
		mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 1;
	begin();
	void (*run)(volatile unsigned long *, unsigned long) = generate(code, "LazyCompile:*generated /app/x.js:3");
	puts("ready");
	fflush(stdout);
	while (!most || spent() < most) {
		run(&sink, 1000 * 1000);
		if (late == 0 && spent() > 200) {
			run = generate(code + 1024, "LazyCompile:*late /app/x.js:9");
			late = 1;
		}
		if (late == 1 && spent() > 350) {
			puts("sampled");
			fflush(stdout);
			late = 2;
		}
		if (!most && poll(&in, 1, 0) == 1 && read(0, buf, sizeof buf) <= 0)
			break;
	}
	return 0;
}
`

// TestGeneratedCodeInContainer: what a container's process generated has the
// names of its perf map, which is in the container's /tmp under the number that
// the process has there.
func TestGeneratedCodeInContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	testutil.CheckLeaks(t)
	program := testutil.CompileC(t, jitSource, "-static")
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "jit", Files: map[string]string{"/app/jit": program}, Args: []string{"/app/jit", "map", "one"},
		Ready: "ready",
	})
	file := filepath.Join(t.TempDir(), "perf.data")
	gantry(t, "record", "-q", "--no-buildid-cache", "-e", "cpu-clock", "-F", "499", "--container", c.ID, "--duration",
		"1s", "-o", file)
	out := gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "dso,sym", "--symbol",
		"LazyCompile*")
	if !strings.Contains(out, "[JIT] tid ") || !strings.Contains(out, "[.] LazyCompile:*generated /app/x.js:3") {
		t.Errorf("%s\n%s", out, gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "dso,sym"))
	}
}

// TestGeneratedCodeGone: the names are there as well when nothing is left of the
// container, whether it ended while it was recorded or ran on, and what was
// written last is among them.
func TestGeneratedCodeGone(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	program := testutil.CompileC(t, jitSource, "-static")
	dir := t.TempDir()
	file, store := filepath.Join(dir, "perf.data"), filepath.Join(dir, "store")
	record := []string{"record", "-q", "-e", "cpu-clock:u", "-F", "1000", "--buildid-dir", store, "-o", file, "-a"}
	var list []*testutil.Container
	for i, args := range [][]string{{"map"}, {"map", "400"}, {"dump"}, {"dump", "400"}, {"twice"}} {
		c := testutil.CreateContainer(t, testutil.ContainerSpec{
			Name: fmt.Sprint(i), Overlay: true, Files: map[string]string{"/app/jit": program},
			Args: append([]string{"/app/jit"}, args...), Ready: "sampled",
		})
		list = append(list, c)
		record = append(record, "--container", c.ID)
	}
	stop := recordMachine(t, new(bytes.Buffer), record...)
	for _, c := range list {
		c.Start(t)
	}
	stop()
	for _, c := range list {
		c.Delete(t)
		if err := os.RemoveAll(filepath.Join(c.Bundle, "upper", "tmp")); err != nil {
			t.Fatal(err)
		}
	}
	out := gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "container,dso,sym",
		"--buildid-dir", store)
	for _, c := range list {
		for _, name := range []string{"generated /app/x.js:3", "late /app/x.js:9"} {
			found := regexp.MustCompile(c.ID + ` +\[JIT\] tid \d+ +\[\.\] LazyCompile:\*` + name)
			if !found.MatchString(out) {
				t.Errorf("no %s of container %s:\n%s", name, c.ID, out)
			}
		}
	}
	if regexp.MustCompile(`\[JIT\] .* 0x[0-9a-f]+`).MatchString(out) {
		t.Errorf("there is generated code without a name:\n%s", out)
	}
}

// recordMachine runs gantry record in the background, from when it returns until
// stop is called. What it says goes to stderr.
func recordMachine(t *testing.T, stderr *bytes.Buffer, args ...string) (stop func()) {
	t.Helper()
	args = append(args, "--", "sh", "-c", "echo begun; read x; exit 0")
	in, end := io.Pipe()
	begun, out := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- Main(in, out, stderr, args)
		out.Close()
	}()
	stop = sync.OnceFunc(func() {
		end.Close()
		if got := <-code; got != 0 {
			t.Errorf("gantry %s: status %d\n%s", strings.Join(args, " "), got, stderr)
		}
	})
	t.Cleanup(stop)
	if _, err := begun.Read(make([]byte, 16)); err != nil {
		t.Fatal("the recording has not begun")
	}
	go io.Copy(io.Discard, begun)
	return stop
}

// nodeSource warms a function up and runs it for ever.
const nodeSource = `
function hotInScript(n) { let s = 0; for (let i = 0; i < n; i++) s = (s + i * i) % 1000003; return s; }
for (let i = 0; i < 50; i++) hotInScript(100000);
console.log("ready");
setInterval(() => { const end = Date.now() + 50; while (Date.now() < end) hotInScript(1000000); }, 1);
`

// TestNodeGone: the functions of a script have their names in a container that
// is gone, and perf's own recording of it has not.
func TestNodeGone(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2,
		testutil.Tool("runc", "node", "ldd", "perf"))
	dir := t.TempDir()
	file, store, script := filepath.Join(dir, "perf.data"), filepath.Join(dir, "store"), filepath.Join(dir, "hot.js")
	if err := os.WriteFile(script, []byte(nodeSource), 0o644); err != nil {
		t.Fatal(err)
	}
	files := withLibraries(t, "node", "/app/node")
	files["/app/hot.js"] = script
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "node", Files: files, Args: []string{"/app/node", "--perf-basic-prof", "/app/hot.js"}, Ready: "ready",
	})
	gantry(t, "record", "-q", "-e", "cpu-clock:u", "-F", "1000", "--container", c.ID, "--duration", "2s",
		"--buildid-dir", store, "-o", file)
	theirs := filepath.Join(dir, "theirs.data")
	if _, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "record", "-q", "-e", "cpu-clock:u", "-F", "1000", "-p", fmt.Sprint(c.PID), "-o",
			theirs, "--", "sleep", "1")
	}); err != nil {
		t.Logf("perf record: %v\n%s", err, stderr)
	}
	c.Delete(t)
	if err := os.RemoveAll(c.Rootfs); err != nil {
		t.Fatal(err)
	}
	out := gantry(t, "report", "-i", file, "-g", "none", "--no-children", "--sort", "dso,sym", "--buildid-dir", store)
	if !regexp.MustCompile(`\[JIT\] tid \d+ +\[\.\] \S*hotInScript /app/hot.js:2`).MatchString(out) {
		t.Errorf("the script's function has no name:\n%s", out)
	}
	t.Logf("gantry:\n%s", firstRows(out, 8))
	perf, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
		return exec.Command("perf", "report", "-i", theirs, "--stdio", "--sort", "dso,sym")
	})
	t.Logf("perf: %v %s\n%s", err, stderr, firstRows(string(perf), 8))
}

// withLibraries are the files that a dynamic program needs, by their path in a
// container, where the program is at path.
func withLibraries(t *testing.T, program, path string) map[string]string {
	t.Helper()
	program, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		t.Fatalf("ldd %s: %v", program, err)
	}
	files := map[string]string{path: program}
	for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(out), -1) {
		files[lib] = lib
	}
	return files
}

// firstRows are the first rows of a report, without its comments.
func firstRows(out string, n int) string {
	var rows []string
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") && len(rows) < n {
			rows = append(rows, line)
		}
	}
	return strings.Join(rows, "")
}
