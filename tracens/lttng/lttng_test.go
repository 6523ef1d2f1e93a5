// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lttng

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens"
)

// providerSource is the tracepoint, which LTTng includes several times by its path.
const providerSource = `
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER gantry_test
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "%[1]s"
#if !defined(GANTRY_TEST_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define GANTRY_TEST_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_EVENT(gantry_test, request, LTTNG_UST_TP_ARGS(int, id),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, id, id)))
#endif
#include <lttng/tracepoint-event.h>
`

// programSource writes a hundred events with its argument and one, then waits.
const programSource = `
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "%[1]s"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int n = atoi(argv[1]);

	for (int i = 0; i < 100; i++)
		lttng_ust_tracepoint(gantry_test, request, n);
	puts("ready");
	fflush(stdout);
	return getchar() == 0;
}
`

func compile(t *testing.T) string {
	t.Helper()
	header := filepath.Join(t.TempDir(), "provider.h")
	if err := os.WriteFile(header, fmt.Appendf(nil, providerSource, header), 0o666); err != nil {
		t.Fatal(err)
	}
	return testutil.CompileC(t, fmt.Sprintf(programSource, header), "-llttng-ust", "-ldl")
}

// TestContainers: programs of two containers, each with the LTTng of its namespace; one of
// them has a user namespace.
func TestContainers(t *testing.T) {
	testutil.Require(t, testutil.Root, testutil.CgroupV2, testutil.Tool("runc", "gcc", "lttng", "babeltrace2"))
	program := compile(t)
	// Not t.TempDir: the containers' users must get there.
	state, err := os.MkdirTemp("", "gantry-test-lttng")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	if err := os.Chmod(state, 0o755); err != nil {
		t.Fatal(err)
	}
	s, r := New(state, "/nothing/here"), tracens.NewRegistry()
	if err := r.Register(s); err != nil {
		t.Fatal(err)
	}
	all := []string{"pid", "mount", "ipc", "uts", "network", "cgroup"}
	namespaces := map[string][]string{"one": all, "two": append([]string{"user"}, all...)}
	traces := make(map[string]string)
	for name := range namespaces {
		ns, err := r.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		traces[name] = filepath.Join(t.TempDir(), "trace")
		t.Cleanup(func() { s.Remove(ns) })
		err = r.Configure(ns, "lttng create s --output="+traces[name]+"\nlttng enable-event -u -a\nlttng start\n")
		if err != nil {
			t.Fatal(err)
		}
		text, err := r.Show(ns)
		if err != nil || !strings.Contains(text, s.of(ns).apps()) || !strings.Contains(text, "[active]") {
			t.Errorf("%v\n%s", err, text)
		}
		if err := r.Configure(ns, "lttng enable-event --nonsense"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("nonsense: %v", err)
		}
		if err := r.Configure(ns, "lttng load x"); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a command that is none of ours: %v", err)
		}
		if err := r.Remove(name); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("remove with a session: %v", err)
		}
		entries, err := os.ReadDir(s.of(ns).apps())
		if err != nil || len(entries) != 1 || entries[0].Name() != socketName {
			t.Errorf("containers get %v, %v", entries, err)
		}
	}
	numbers := map[string]string{"one": "1001", "two": "2002"}
	for name, list := range namespaces {
		ns, err := r.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		shm := t.TempDir()
		if err := errors.Join(os.Chmod(shm, 0o777), os.Chmod(filepath.Dir(shm), 0o755)); err != nil {
			t.Fatal(err)
		}
		c := testutil.StartContainer(t, testutil.ContainerSpec{Name: name, HostPrograms: true, Namespaces: list,
			Files: map[string]string{"/app/program": program}, Args: []string{"/app/program", numbers[name]}, Ready: "ready",
			Env: []string{"LTTNG_UST_REGISTER_TIMEOUT=-1"}, Mounts: map[string]string{"/var/run/lttng": s.of(ns).apps()},
			WritableMounts: map[string]string{"/dev/shm": shm}})
		c.Delete(t)
	}
	for name, number := range numbers {
		ns, err := r.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Configure(ns, "lttng stop\nlttng destroy\n"); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("babeltrace2", traces[name]).CombinedOutput()
		all, n := strings.Count(string(out), "gantry_test:request:"), strings.Count(string(out), "id = "+number+" }")
		if err != nil || n != 100 || all != n {
			t.Errorf("%s: %d events with %s, %v:\n%.2000s", name, n, number, err, out)
		}
		if err := r.Remove(name); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(state); err == nil && len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestAbsent: without LTTng its commands say so.
func TestAbsent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, r := New(t.TempDir(), ""), tracens.NewRegistry()
	if err := r.Register(s); err != nil {
		t.Fatal(err)
	}
	ns, err := r.Create("ns")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Configure(ns, "lttng start"); !errors.Is(err, syscall.ENOSYS) {
		t.Errorf("a command: %v", err)
	}
	if text, err := r.Show(ns); err != nil || !strings.Contains(text, "install") {
		t.Errorf("%q, %v", text, err)
	}
	if err := r.Remove("ns"); err != nil {
		t.Error(err)
	}
}
