// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// execInside runs gantry exec and returns its status and what the program wrote to
// both streams.
func execInside(t *testing.T, args ...string) (status int, output string) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	status = Main(null, out, out, append([]string{"exec"}, args...))
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, string(text)
}

// aContainer is a container of any runtime with the host's programs in it.
type aContainer struct {
	id, rootfs string
	pid        int
}

// startOf starts a container of a runtime whose command burns CPU in inside_hot.
func startOf(t *testing.T, runtime string) aContainer {
	t.Helper()
	prog := testutil.SpinProgram(t, "inside_hot")
	if runtime == "podman" {
		// Its first process has no input: a shell that never ends gives it one.
		p := testutil.StartPodman(t, testutil.PodmanSpec{Name: "in", HostPrograms: true,
			Files: map[string]string{"/app/inside": prog}, Args: []string{"/bin/sh", "-c", "sleep 86400 | /app/inside"}})
		return aContainer{p.ID, p.Rootfs, p.PID}
	}
	c := testutil.StartContainer(t, testutil.ContainerSpec{Runtime: runtime, HostPrograms: true,
		Capabilities: testutil.DefaultCapabilities, Files: map[string]string{"/app/inside": prog},
		Args: []string{"/app/inside"}, Ready: "ready"})
	return aContainer{c.ID, c.Rootfs, c.PID}
}

// startNeighbours makes the host and another container busy.
func startNeighbours(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	host := filepath.Join(dir, "hostbusy")
	if err := os.Rename(testutil.SpinProgram(t, "host_hot"), host); err != nil {
		t.Fatal(err)
	}
	testutil.StartReady(t, exec.Command(host))
	testutil.StartContainer(t, testutil.ContainerSpec{Name: "neighbour",
		Files: map[string]string{"/app/nextbusy": testutil.SpinProgram(t, "neighbour_hot")},
		Args:  []string{"/app/nextbusy"}, Ready: "ready"})
}

// own are the commands that tests have in their containers. perf-exec is perf before
// it becomes its command.
var own = regexp.MustCompile(`^(inside|perf|perf-exec|sleep|sh|spin|true|gantry-opener|gantry-join|:?-?[0-9]+)$`)

// burn is a command that takes ample CPU time.
const burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"

// modes are the ways in which perf is used; $F is a file to record to, and $P the
// busy program, both as the container has them.
var modes = []struct {
	name, command string
	// has are texts that must be in what perf prints, or in the recording's script.
	has []string
	// tracepoints that the mode needs.
	tracepoints string
}{
	{name: "stat all", command: "perf stat -a -e task-clock,context-switches,page-faults -- sleep 0.3",
		has: []string{"task-clock"}},
	{name: "stat each CPU", command: "perf stat -a -A -e cpu-clock:u -- sleep 0.3", has: []string{"CPU0"}},
	{name: "stat command", command: "perf stat -- sh -c '" + burn + "'", has: []string{"task-clock"}},
	{name: "stat pid", command: "perf stat -p $P -e task-clock:u -- sleep 0.3", has: []string{"task-clock"}},
	{name: "record all", command: "perf record -a -g -F 2000 -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "record command", command: "perf record -F 2000 -o $F -- sh -c '" + burn + "'", has: []string{"sh "}},
	{name: "record pid", command: "perf record -F 2000 -p $P -g -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "record thread", command: "perf record -F 2000 -t $P -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "record CPU", command: "perf record -F 2000 -C 0,1 -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "record per thread", command: "perf record -F 2000 --per-thread -p $P -o $F -- sleep 0.5",
		has: []string{"inside"}},
	{name: "group", command: "perf stat -e '{task-clock:u,page-faults:u}' -p $P -- sleep 0.3",
		has: []string{"page-faults"}},
	{name: "group read", command: "perf record -e '{cpu-clock:u,page-faults:u}:S' -a -o $F -- sleep 0.5",
		has: []string{"inside"}},
	{name: "dwarf", command: "perf record -F 500 --call-graph dwarf -a -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "switches", command: "perf record --switch-events -F 2000 -a -o $F -- sleep 0.5", has: []string{"inside"}},
	{name: "top", command: "sleep 4 | TERM=dumb timeout -s INT 3 perf top --stdio -d 1 -F 500 | head -c 100000",
		has: []string{"inside"}},
	{name: "tracepoints", command: "perf record -e raw_syscalls:sys_enter -a -o $F -- sleep 0.3",
		has:         []string{"raw_syscalls:sys_enter"},
		tracepoints: "raw_syscalls:*"},
	{name: "trace", command: "perf trace -s -a -- sleep 0.3", has: []string{"sleep"}, tracepoints: "raw_syscalls:*"},
}

// TestExecPerf: an unmodified perf in unprivileged containers, in all its modes, and
// nothing of the busy host and the busy neighbour.
func TestExecPerf(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2,
		testutil.Tool("runc", "crun", "podman", "gcc", "perf"))
	testutil.CheckLeaks(t)
	startNeighbours(t)
	for _, runtime := range []string{"runc", "crun", "podman"} {
		t.Run(runtime, func(t *testing.T) {
			c := startOf(t, runtime)
			for _, m := range modes {
				t.Run(m.name, func(t *testing.T) {
					perfInside(t, c, m.command, m.tracepoints, m.has)
				})
			}
		})
	}
}

// perfInside runs a shell command with perf in a container and looks at what it saw.
func perfInside(t *testing.T, c aContainer, command, tracepoints string, has []string) {
	t.Helper()
	pid := "1"
	if _, text := execInside(t, c.id, "--", "pidof", "inside"); strings.TrimSpace(text) != "" {
		pid = strings.Fields(text)[0]
	}
	command = strings.NewReplacer("$F", "/tmp/perf.data", "$P", pid).Replace(command)
	args := []string{c.id, "--", "sh", "-c", command}
	if tracepoints != "" {
		args = append([]string{"--tracepoints", tracepoints}, args...)
	}
	status, text := execInside(t, args...)
	if status != 0 {
		t.Fatalf("%s: status %d\n%s", command, status, text)
	}
	if strings.Contains(command, "/tmp/perf.data") {
		text += checkRecording(t, filepath.Join(c.rootfs, "tmp/perf.data"))
	}
	for _, foreign := range []string{"hostbusy", "nextbusy", "host_hot", "neighbour_hot"} {
		if strings.Contains(text, foreign) {
			t.Errorf("%s: %q in what perf saw\n%s", command, foreign, text)
		}
	}
	for _, word := range has {
		if !strings.Contains(text, word) {
			t.Errorf("%s: no %q in\n%s", command, word, text)
		}
	}
}

// checkRecording checks that all that is in a recording is the container's own: its
// commands, its small numbers of processes, addresses of user space. It returns the
// recording in words.
func checkRecording(t *testing.T, file string) string {
	t.Helper()
	raw, err := exec.Command("perf", "script", "-f", "-i", file, "-F", "comm,tid,pid,ip,sym,event").Output()
	if err != nil {
		t.Fatalf("perf script: %v", err)
	}
	events, err := exec.Command("perf", "script", "-f", "-i", file, "--show-task-events", "--show-mmap-events").Output()
	if err != nil {
		t.Fatalf("perf script: %v", err)
	}
	header := regexp.MustCompile(`^\s*(\S.*?)\s+(-?\d+)/(-?\d+)\s`)
	samples := 0
	for line := range strings.Lines(string(raw)) {
		m := header.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		samples++
		if !own.MatchString(m[1]) {
			t.Errorf("a sample of %q in %s", m[1], line)
		}
		for _, number := range m[2:4] {
			if n, err := strconv.Atoi(number); err != nil || n > 2000 {
				t.Errorf("process %s in %s", number, line)
			}
		}
	}
	if samples == 0 {
		t.Errorf("no sample in %s", file)
	}
	if !bytes.Contains(raw, []byte("raw_syscalls")) {
		// Its memory and its code; perf's unwinder ends some stacks with -1.
		if at := regexp.MustCompile(`(?m)^.*\sffff([89a-e][0-9a-f]{11}|ffff[89a-c][0-9a-f]{7})\s.*$`).Find(raw); at != nil {
			t.Errorf("an address of the kernel: %s", at)
		}
	}
	return fmt.Sprintf("%s\n%s", raw, events)
}
