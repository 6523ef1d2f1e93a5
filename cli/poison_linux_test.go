// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gantry-tools/gantry/buildid"
	"github.com/gantry-tools/gantry/buildid/debuginfod"
	"github.com/gantry-tools/gantry/internal/testutil"
)

// TestPoisonedStore: a container brings a program with the build-id of the host's, at
// the same path, and symbols for it where packages have them. Whatever is recorded
// while it runs, the host's names stay the host's: in gantry's reports, in perf's with
// the same store, and for clients of gantry buildid serve. So it is when the container is
// gone, and when the host's file is.
func TestPoisonedStore(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2,
		testutil.Tool("runc", "gcc", "perf", "objcopy", "strip"))
	const id = "b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5b5"
	compile := func(fn string) string {
		return testutil.CompileC(t, fmt.Sprintf(spinForever, fn, 0), "-static", "-Wl,--build-id=0x"+id)
	}
	dir := t.TempDir()
	good, evil, guest := filepath.Join(dir, "program"), compile("evil_hot"), compile("evil_hot")
	if err := os.Rename(compile("good_hot"), good); err != nil {
		t.Fatal(err)
	}
	stripped(t, guest)
	c := testutil.StartContainer(t, testutil.ContainerSpec{
		Name: "poison", Overlay: true, Ready: "ready", Args: []string{"/bin/sh", "-c", "/guest & exec " + good},
		Files: map[string]string{good: evil, "/guest": guest, "/usr/lib/debug/.build-id/" + id[:2] + "/" + id[2:] + ".debug": evil},
	})
	host := testutil.StartReady(t, exec.Command(good))
	t.Cleanup(func() { host.Cmd.Process.Kill() })
	store := filepath.Join(dir, "store")
	data := func(n int) string { return filepath.Join(dir, fmt.Sprint(n, ".data")) }
	record := func(n int) {
		gantry(t, "record", "-e", "cpu-clock:u", "-F", "1000", "--duration", "1s", "--buildid-dir", store, "-o", data(n), "-a")
	}
	// named counts the rows of the host's process with its own name.
	named := func(what string, n int) (count int) {
		t.Helper()
		report := gantry(t, "report", "-g", "none", "--no-children", "--sort", "container,sym", "-i", data(n), "--buildid-dir", store)
		for line := range strings.Lines(report) {
			f := strings.Fields(line)
			switch {
			case len(f) < 4 || f[3] != "good_hot" && f[3] != "evil_hot":
			case f[1] == "[host]" && f[3] == "evil_hot", f[1] == c.ID && f[3] == "good_hot":
				t.Errorf("%s: a name of another: %s", what, line)
			case f[1] == "[host]":
				count++
			}
		}
		return count
	}
	check := func(what string, n int) {
		t.Helper()
		if named(what, n) == 0 {
			t.Errorf("%s: the host's process has no names", what)
		}
	}
	record(0)
	check("the container runs", 0)
	perf := func(n int) string {
		out, stderr, err := testutil.RunPerf(t, func() *exec.Cmd {
			return exec.Command("perf", "--buildid-dir", store, "report", "-i", data(n), "--stdio", "--sort", "pid,sym")
		})
		if err != nil {
			t.Fatalf("perf report: %v\n%s", err, stderr)
		}
		return string(out)
	}
	pid := fmt.Sprint(host.Cmd.Process.Pid, ":")
	for line := range strings.Lines(perf(0)) {
		if strings.Contains(line, pid) && strings.Contains(line, "evil_hot") {
			t.Errorf("perf: %s", line)
		}
	}
	checkServed(t, store, id)
	c.Delete(t)
	check("the container is gone", 0)
	record(1)
	check("a later recording", 1)
	for line := range strings.Lines(perf(1)) {
		if strings.Contains(line, "evil_hot") {
			t.Errorf("perf, a later recording: %s", line)
		}
	}
	// Without the host's file its samples do not get the container's names.
	if err := os.Remove(good); err != nil {
		t.Fatal(err)
	}
	if err := host.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		named("without the host's file", n)
	}
}

// checkServed: a client that asks for the host's build-id does not get what the
// container brought, unless the server was told to give it; then it says so.
func checkServed(t *testing.T, dir, id string) {
	t.Helper()
	store, err := buildid.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, containers := range []bool{false, true} {
		h := debuginfod.NewHandler(store)
		h.Containers = containers
		srv := httptest.NewServer(h)
		for _, what := range []string{"executable", "debuginfo", "section/.symtab"} {
			r, err := http.Get(srv.URL + "/buildid/" + id + "/" + what)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r.Body)
			r.Body.Close()
			if err != nil || !containers && (r.StatusCode != http.StatusNotFound || strings.Contains(string(b), "evil_hot")) {
				t.Errorf("containers %v: %s: %s, %v", containers, what, r.Status, err)
			}
			if r.StatusCode == http.StatusOK && what != "section/.symtab" && r.Header.Get("X-Gantry-From") != "container" {
				t.Errorf("containers %v: %s: it is not said whose it is", containers, what)
			}
		}
		srv.Close()
	}
}
