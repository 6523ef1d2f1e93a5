// SPDX-License-Identifier: Apache-2.0

//go:build linux

package probe

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
)

// On any machine a check answers, names a layer and a hint with every No, and
// leaves nothing behind.
func TestLiveChecks(t *testing.T) {
	testutil.CheckLeaks(t)
	p := New()
	for _, c := range Checks() {
		r := p.Check(c)
		t.Logf("%s = %v %s | %s | %s", r.Check, r.Answer, r.Layer, r.Observed, r.Hint)
		if r.Answer == Unknown && r.Err == nil || r.Answer == No && (r.Layer == "" || r.Hint == "" || strings.HasPrefix(r.Hint, "none needed") != (r.Effort == EffortNone)) {
			t.Errorf("%s: incomplete result %+v", c, r)
		}
		if r.Observed == "" || r.Check != c {
			t.Errorf("%s says nothing: %+v", c, r)
		}
	}
	t.Logf("%+v", p.Privilege())
}

func TestLiveRoot(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2)
	p := New()
	for _, c := range []Check{Syscall, OwnUser, OwnKernel, CPUWide, CgroupEvents, Rings} {
		if r := p.Check(c); r.Answer != Yes {
			t.Errorf("%s: %v, %s (%s)", c, r.Answer, r.Observed, r.Hint)
		}
	}
}

// liveTable runs TestLiveChecks of this test's own program somewhere else and
// returns what each check answered, as "answer layer".
func liveTable(t *testing.T, run func(program string) *exec.Cmd) map[string]string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	table := map[string]string{}
	for _, m := range regexp.MustCompile(`: (\S+) = (yes|no|unknown) (\S*) \|`).FindAllStringSubmatch(string(out), -1) {
		table[m[1]] = strings.TrimSpace(m[2] + " " + m[3])
	}
	if len(table) != len(Checks()) {
		t.Fatalf("%d of %d checks answered:\n%s", len(table), len(Checks()), out)
	}
	return table
}

func wantAnswers(t *testing.T, got, want map[string]string) {
	t.Helper()
	for check, answer := range want {
		if got[check] != answer {
			t.Errorf("%s: %q, want %q", check, got[check], answer)
		}
	}
}

func TestLiveUnprivileged(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("setpriv"))
	if level, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid"); err != nil || string(level) != "2\n" {
		testutil.NotHere(t, "kernel.perf_event_paranoid is %q, %v, not 2", level, err)
	}
	got := liveTable(t, func(program string) *exec.Cmd {
		// The program's directory is for its owner only.
		dir := t.TempDir()
		for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		copied := filepath.Join(dir, "probe.test")
		b, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied, b, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--",
			copied, "-test.v", "-test.run=^TestLiveChecks$")
		cmd.Dir = dir
		return cmd
	})
	wantAnswers(t, got, map[string]string{
		"syscall": "yes", "own-user": "yes", "own-kernel": "no paranoid", "cpu-wide": "no paranoid",
		"cgroup-events": "no paranoid", "other-tasks": "no capability", "lost-counts": "yes",
		"namespaces": "no capability", "bpf-iterators": "no capability", "bpf-filter": "no capability", "bpf-copies": "no capability", "bpf-details": "no capability",
	})
}

func TestLiveInContainer(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.Tool("runc", "go"))
	// The test's own program may be linked with a libc that is not there.
	program := filepath.Join(t.TempDir(), "probe.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, msg)
	}
	c := testutil.StartContainer(t, testutil.ContainerSpec{Files: map[string]string{"/probe.test": program}})
	got := liveTable(t, func(string) *exec.Cmd {
		return c.Exec("/probe.test", "-test.v", "-test.run=^TestLiveChecks$")
	})
	wantAnswers(t, got, map[string]string{
		"syscall": "yes", "own-user": "yes", "own-kernel": "no paranoid", "cpu-wide": "no paranoid",
		"other-tasks": "no namespace", "tracepoints": "no filesystem", "lost-counts": "yes",
	})
}
