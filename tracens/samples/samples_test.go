// SPDX-License-Identifier: Apache-2.0

//go:build linux

package samples

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-tools/gantry/capture"
	"github.com/gantry-tools/gantry/capture/perfevent"
	"github.com/gantry-tools/gantry/internal/linux/sys"
	"github.com/gantry-tools/gantry/internal/testutil"
	"github.com/gantry-tools/gantry/tracens/ctf"
	"github.com/gantry-tools/gantry/tracens/nsfs"
	"github.com/gantry-tools/gantry/tracens/userevents"
)

// programSource writes an event of its argument's fields, whose data are letters A, once a
// millisecond.
const programSource = `
#include "userevents.h"

static struct user_events events;
static struct user_event same;

int main(int argc, char **argv)
{
	char data[16];

	memset(data, 'A', sizeof(data));
	data[sizeof(data) - 1] = 0;
	if (argc < 2 || user_events_open(&events, "/events") || user_event_register(&events, &same, argv[1])) {
		perror("register");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (user_event_enabled(&same))
			user_event_write(&same, data, sizeof(data));
		usleep(1000);
	}
}
`

// descriptions are the event of two containers, and what it prints.
var descriptions = map[string]struct{ text, perf, ctf string }{
	"one": {"same u32 n; char[12] text", "n=1094795585 text=AAAAAAAAAAA", `n = 1094795585, text = "AAAAAAAAAAA"`},
	"two": {"same u64 big; u64 more", "big=4702111234474983745 more=18367622009667905",
		"big = 4702111234474983745, more = 18367622009667905"},
}

// start mounts namespaces and starts two containers, one of them with a user namespace,
// that have one event name with other fields.
func start(t *testing.T) *nsfs.FS {
	t.Helper()
	testutil.Require(t, testutil.Root, testutil.PerfEvents, testutil.CgroupV2, testutil.Tool("runc", "gcc"))
	// Not t.TempDir: the containers' users must get there.
	dir, err := os.MkdirTemp("", "gantry-test-samples")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := nsfs.Mount(dir, &nsfs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Error(err)
		}
		f.Wait()
	})
	header := t.TempDir()
	if err := os.WriteFile(filepath.Join(header, "userevents.h"), userevents.Header, 0o666); err != nil {
		t.Fatal(err)
	}
	program := testutil.CompileC(t, programSource, "-static", "-I"+header)
	all := []string{"pid", "mount", "ipc", "uts", "network", "cgroup"}
	for name, namespaces := range map[string][]string{"one": all, "two": append([]string{"user"}, all...)} {
		space := filepath.Join(dir, name)
		if err := os.Mkdir(space, 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "two" {
			owner := fmt.Sprintf("owner %d\n", testutil.UserNSBase)
			if err := os.WriteFile(filepath.Join(space, "options"), []byte(owner), 0); err != nil {
				t.Fatal(err)
			}
		}
		testutil.StartContainer(t, testutil.ContainerSpec{Name: name, Files: map[string]string{"/app/writer": program},
			Args: []string{"/app/writer", descriptions[name].text}, Ready: "ready", Namespaces: namespaces,
			WritableMounts: map[string]string{"/events": filepath.Join(space, "root")}})
	}
	return f
}

// TestPerfScript: events of two containers in one recording, beside samples, as perf
// prints them.
func TestPerfScript(t *testing.T) {
	testutil.Require(t, testutil.Tool("perf"))
	f := start(t)
	o := capture.Options{PMUs: perfevent.NewPMUs(nil), Duration: 500 * time.Millisecond}
	defer o.PMUs.Close()
	var err error
	if o.Groups, err = perfevent.Parse("cpu-clock", o.PMUs); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two"} {
		s, err := Open(f.Dir(), name, func(system, event string) bool { return system == "user_events" && event == "same" })
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		o.Sources = append(o.Sources, s)
	}
	r, err := capture.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	file := filepath.Join(t.TempDir(), "perf.data")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	result, err := r.Run(context.Background(), capture.Output{File: out})
	if err != nil || result.Lost != 0 {
		t.Fatalf("%v, %+v", err, result)
	}
	text, err := exec.Command("perf", "script", "-i", file, "-F", "comm,pid,time,event,trace").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%.2000s", err, text)
	}
	if strings.Contains(string(text), "below last timeslice") {
		t.Errorf("out of order:\n%.2000s", text)
	}
	for name, want := range descriptions {
		n := 0
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, " user_events."+name+":same: ") {
				continue
			}
			if n++; !strings.HasSuffix(strings.TrimSpace(line), want.perf) || !strings.Contains(line, "writer") {
				t.Fatalf("%s: %q, want %s", name, line, want.perf)
			}
		}
		if n < 10 {
			t.Errorf("%s: %d events in\n%.2000s", name, n, text)
		}
	}
	if !strings.Contains(string(text), "cpu-clock") {
		t.Error("no samples beside them")
	}
	_, err = Open(f.Dir(), "one", func(string, string) bool { return false })
	if !errors.Is(err, ErrNoEvents) {
		t.Errorf("no events that match: %v", err)
	}
	if _, err = Open(f.Dir(), "none", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no namespace: %v", err)
	}
}

// TestBabeltrace: the same as traces, one for each namespace.
func TestBabeltrace(t *testing.T) {
	testutil.Require(t, testutil.Tool("babeltrace2"))
	f := start(t)
	for name, want := range descriptions {
		ns, err := f.Registry().Find(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.Events(ns).ListenHost(nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "trace")
		w, err := ctf.Create(dir, sys.MonotonicTime(0))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for n < 20 {
			list, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range list {
				if err := w.Write(name, &list[i]); err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		r.Close()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("babeltrace2", dir).CombinedOutput()
		if err != nil || strings.Count(string(out), "\n") != n ||
			strings.Count(string(out), "user_events."+name+":same:") != n || strings.Count(string(out), want.ctf) != n {
			t.Errorf("%s: %d events, %v:\n%.2000s", name, n, err, out)
		}
	}
}

// TestLate: events that were registered after the recording began are lost, and told;
// those that were not asked for are neither.
func TestLate(t *testing.T) {
	testutil.Require(t, testutil.Root)
	f, err := nsfs.Mount(t.TempDir(), &nsfs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Error(err)
		}
		f.Wait()
	})
	if err := os.Mkdir(filepath.Join(f.Dir(), "late"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := userevents.Open(filepath.Join(f.Dir(), "late/root"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	write := func(description string) {
		t.Helper()
		e, err := p.Register(description)
		if err == nil {
			testutil.Poll(t, "it is enabled", e.Enabled)
			err = e.Write(userevents.Append(nil).Uint32(7))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Register("wanted u32 n"); err != nil {
		t.Fatal(err)
	}
	s, err := Open(f.Dir(), "late", func(_, event string) bool { return strings.HasPrefix(event, "wanted") })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	write("other u32 n")
	write("wanted_late u32 n")
	write("wanted u32 n")
	got, lost := 0, uint64(0)
	testutil.Poll(t, "both are taken", func() bool {
		list, n, err := s.Take()
		if err != nil {
			t.Error(err)
		}
		got, lost = got+len(list), n
		return got == 1 && lost == 1
	})
}
