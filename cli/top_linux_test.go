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

// screen is a terminal of a test, by tmux.
type screen struct {
	t      *testing.T
	socket string // its path
}

// newScreen runs a shell command in a terminal of 80 x 24.
func newScreen(t *testing.T, command string) *screen {
	t.Helper()
	s := &screen{t, filepath.Join(t.TempDir(), "tmux")}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.Command("tmux", "-S", s.socket, "capture-pane", "-p", "-t", "s").CombinedOutput()
			t.Logf("the screen at the end (%v):\n%s", err, out)
		}
		_ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() // it may have ended
	})
	s.tmux("-f", "/dev/null", "new-session", "-d", "-s", "s", "-x", "80", "-y", "24", command)
	return s
}

func (s *screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (s *screen) text() string {
	s.t.Helper()
	return s.tmux("capture-pane", "-p", "-t", "s")
}

func (s *screen) keys(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys", "-t", "s"}, keys...)...)
}

// await waits until the screen shows all of some texts.
func (s *screen) await(texts ...string) string {
	s.t.Helper()
	var shown string
	testutil.Poll(s.t, fmt.Sprintf("the screen shows %q", texts), func() bool {
		shown = s.text()
		for _, text := range texts {
			if !strings.Contains(shown, text) {
				return false
			}
		}
		return true
	})
	return shown
}

// shown is as much of a container's name as there is room for.
func shown(c *testutil.Container) string { return c.ID[:24] }

// TestTop: containers that run and that start later, what is in them, and a terminal that is
// as it was before, however it ends.
func TestTop(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "tmux", "gcc"))
	testutil.CheckLeaks(t)
	start := func(function string) *testutil.Container {
		return testutil.StartContainer(t, testutil.ContainerSpec{Name: function, Args: []string{"/app/" + function},
			Files: map[string]string{"/app/" + function: testutil.SpinProgram(t, function)}, Ready: "ready"})
	}
	one := start("one_hot")
	program := link(t, gantryName)
	s := newScreen(t, program+" top -F 499 --window 2s; echo status $?; stty -a; cat")
	s.await(shown(one), "one_hot", "CONTAINER", " s of cpu-clock at 499 Hz")
	two := start("two_hot")
	s.await(shown(one), shown(two), " containers, by self")
	s.keys("/", "two_hot", "Enter")
	s.await("with /two_hot", shown(two))
	s.keys("Enter")
	s.await("process in "+two.ID, "COMMAND")
	s.keys("Enter")
	s.await("TOTAL %", "OBJECT", " two_hot")
	s.keys("Escape")
	s.await("COMMAND", "process in ")
	s.tmux("resize-window", "-t", "s", "-x", "40", "-y", "10")
	s.await("enter esc / s space c p f ? q")
	s.keys("c")
	s.await("containers, by self")
	two.Delete(t)
	s.keys("Space")
	s.await("FROZEN")
	s.keys("Space")
	testutil.Poll(t, "a container that is gone is shown no more", func() bool {
		return !strings.Contains(s.text(), shown(two))
	})
	s.tmux("resize-window", "-t", "s", "-x", "80", "-y", "24")
	s.keys("q")
	s.restored("status 0")
	for _, end := range []string{"C-c", "TERM"} {
		file := filepath.Join(t.TempDir(), "pid")
		s := newScreen(t, "sh -c 'echo $$ > "+file+"; exec "+program+" top'; echo status $?; stty -a; cat")
		s.await("CONTAINER")
		if end == "TERM" {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("kill", strings.TrimSpace(string(text))).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		} else {
			s.keys(end)
		}
		s.restored("status ")
	}
}

// TestBrowse: a report in a terminal is browsed, and is text where text is asked for.
func TestBrowse(t *testing.T) {
	testutil.Require(t, testutil.PerfEvents, testutil.Tool("tmux"))
	file := filepath.Join(t.TempDir(), "perf.data")
	gantry(t, "record", "-q", "-e", "cpu-clock,page-faults", "-g", "-o", file, "--", "sh", "-c",
		"i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; ls / > /dev/null")
	program := link(t, gantryName)
	s := newScreen(t, program+" report -i "+file+"; echo status $?; stty -a; cat")
	s.await("cpu-clock: ", " samples in ", "SHARE %", "[host]")
	s.keys("Enter")
	s.await("processes in [host]", "sh")
	s.keys("e")
	s.await("page-faults: ", "SHARE %")
	s.keys("/", "ls", "Enter")
	s.await("with /ls", "process in [host]")
	s.keys("f")
	s.await("TOTAL %", "OBJECT")
	s.keys("q")
	s.restored("status 0")
	s = newScreen(t, program+" report --stdio -i "+file+" | head -3; "+
		program+" report -g none --sort comm -i "+file+"; cat")
	if text := s.await("# Samples: ", "Command"); strings.Contains(text, "SHARE %") {
		t.Errorf("what is asked for as text is browsed:\n%s", text)
	}
}

// restored waits until the program has ended, and wants a terminal as it was before.
func (s *screen) restored(status string) {
	s.t.Helper()
	text := s.await(status, "flusho")
	if strings.Contains(text, "-echo ") || strings.Contains(text, "-icanon") {
		s.t.Errorf("the terminal is left without echo or lines:\n%s", text)
	}
	const flags = "#{alternate_on} #{cursor_flag} #{mouse_any_flag}"
	if got := strings.TrimSpace(s.tmux("display-message", "-p", "-t", "s", flags)); got != "0 1 0" {
		s.t.Errorf("alternate screen, cursor, mouse: %s", got)
	}
}
